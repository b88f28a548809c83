"""The selector written in TileLang: what its means allow, the baseline beside the native kernel.

Thread blocks share a row. Each guesses the row's floor from the same sample, then streams its part
of the row through shared memory, loading one tile while it looks at the one before, and keeps what
lies above the floor: a few per cent. The lists meet in global memory; the block that comes last,
known by a ticket, selects the k best of all of them exactly. It waits for nobody, so the blocks
need not run at the same time. Where the floor was wrong (fewer than k above it, or more than the
lists hold) that block selects from the row itself, by digits: exact, and as slow as one block reads
the row three to eight times.
"""

# No `from __future__ import annotations`: TileLang evaluates annotations, which use local names.
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tl_topk.tile.compiler import Program

__all__ = [
    "ARGUMENTS",
    "CAPACITIES",
    "HELD",
    "TILE_BYTES",
    "Specialisation",
    "program",
    "specialise",
]

#: The largest k of each specialisation, and how many entries a block's list holds.
CAPACITIES = {512: 4096, 1024: 4096, 2048: 8192, 4096: 16384}
#: Rows of up to so many scores a block holds whole, without a floor. No row that is wanted whole,
#: wherever it begins, may be longer.
HELD = {512: 4096, 1024: 4096, 2048: 4096, 4096: 8192}

THREADS = 512
_TILE_VECTORS = 2  # of 16 bytes a thread, in each of two tiles
TILE_BYTES = 16 * _TILE_VECTORS * THREADS
_SAMPLE_VECTORS = 4  # a thread looks at, at most
_SCRATCH_WORDS = 2672  # lang::Scratch
_FLOOR_WORDS = 192  # lang::FloorScratch
_DTYPES = {"float32": (0, "int32", 4), "float16": (1, "int16", 8), "bfloat16": (2, "int16", 8)}

#: What ``launch`` takes. ``scores`` is the 16-byte boundary below the first score, ``vectors`` how
#: many whole vectors there are from it to the last score, ``skew`` how many scores lie between.
#: Kinds of integer vectors: 0 not given, 1 int32, 2 int64. ``counters`` (two a row) and ``lists``
#: (``room`` entries of 8 bytes a row) are zero, and left so. ``order``: 0 any, 1 index, 2 value.
ARGUMENTS = (
    "scores",
    "vectors",
    "skew",
    "stride",
    "width",
    "lengths",
    "lengths_kind",
    "starts",
    "starts_kind",
    "indices",
    "indices_stride",
    "values",
    "values_stride",
    "with_values",
    "counters",
    "lists",
    "room",
    "k",
    "blocks",
    "order",
    "largest",
)


@dataclass(frozen=True)
class Specialisation:
    """What is fixed when a kernel is compiled: the dtype, and the largest k."""

    dtype: str
    capacity: int
    cluster: int = 1  # blocks in a cluster that shares a row; 1: blocks meet in global memory
    timed: bool = False  # writes the clocks of its phases, see csrc/lang/pipelined.cuh

    @property
    def name(self) -> str:
        clusters = f"-cluster{self.cluster}" if self.cluster > 1 else ""
        timed = "-timed" if self.timed else ""
        return f"pipelined-{self.dtype}-k{self.capacity}{clusters}{timed}"


def specialise(dtype: str, k: int) -> Specialisation:
    """The smallest specialisation that serves ``k``.

    Raises:
        ValueError: there is none.
    """
    fitting = [capacity for capacity in CAPACITIES if 0 <= k <= capacity]
    if not fitting:
        raise ValueError(f"k: expected 0 to {max(CAPACITIES)} for a TileLang kernel, got {k}")
    return Specialisation(dtype, fitting[0])


def program(which: Specialisation) -> Program:
    """The program of one specialisation."""
    return Program(
        name=which.name,
        trace=lambda: _trace(which),
        arguments=ARGUMENTS,
        sources=(Path(__file__),),
        cluster=which.cluster,
        flags=("-DTL_TOPK_PHASE_CLOCK",) if which.timed else (),
    )


def _trace(which: Specialisation) -> Any:
    import tilelang.language as T  # noqa: N812

    code, word, per_vector = _DTYPES[which.dtype]
    capacity = CAPACITIES[which.capacity]
    alone = HELD[which.capacity]
    tile_vectors = THREADS * _TILE_VECTORS
    sample = _SAMPLE_VECTORS * per_vector
    clustered = which.cluster > 1
    includes = '#include "lang/pipelined.cuh"\n'
    if clustered:
        includes += '#include "lang/cluster.cuh"\n'
    lang = "tl_topk::lang::"
    vectors = T.dynamic("vectors", "int64")
    some = T.dynamic("some", "int64")  # sizes that nothing asks for

    @T.prim_func
    def pipelined(
        scores: T.Tensor((vectors, per_vector), word),
        skew: T.int64,
        stride: T.int64,
        width: T.int64,
        lengths: T.Tensor((some,), "int32"),
        lengths_kind: T.int32,
        starts: T.Tensor((some,), "int32"),
        starts_kind: T.int32,
        indices: T.Tensor((some,), "int32"),
        indices_stride: T.int64,
        values: T.Tensor((some,), word),
        values_stride: T.int64,
        counters: T.Tensor((some,), "int32"),
        lists: T.Tensor((some,), "int64"),
        with_values: T.int32,
        room: T.int32,
        k: T.int32,
        blocks: T.int32,
        order: T.int32,
        largest: T.int32,
        grid: T.int32,
    ):
        with T.Kernel(grid, threads=THREADS) as block:
            T.import_source(includes)
            tile = T.alloc_shared((tile_vectors, per_vector), word)
            entries = T.alloc_shared((capacity,), "int64")
            # Not the tiles once more: TileLang gives a buffer that is also used outside of the
            # pipelined loop the room of one tile, and loads two into it.
            keys = T.alloc_shared((which.capacity,), "int64")
            scratch = T.alloc_shared((_SCRATCH_WORDS,), "int32")
            floor_scratch = T.alloc_shared((_FLOOR_WORDS,), "int32")
            count = T.alloc_shared((2,), "int32")
            held = T.alloc_local((max(alone // THREADS, _TILE_VECTORS * per_vector),), word)
            sampled = T.alloc_local((sample,), word)
            samples = T.alloc_local((1,), "int32")
            floor = T.alloc_local((1,), "float32")
            range_ = T.alloc_local((2,), "int32")
            last = T.alloc_local((1,), "int32")
            # Facts about the row are kept in memory: bound to names they would be copied into every
            # index, and TileLang's simplifier would think about the result for minutes.
            start = T.alloc_local((1,), "int64")
            first = T.alloc_local((1,), "int64")
            length = T.alloc_local((1,), "int32")
            whole = T.alloc_local((1,), "int32")
            head = T.alloc_local((1,), "int32")
            row_vectors = T.alloc_local((1,), "int32")
            parts = T.alloc_local((1,), "int32")
            place = T.alloc_local((1,), "int32")
            tiles = T.alloc_local((1,), "int32")
            each = T.alloc_local((1,), "int32")
            steps = T.alloc_local((1,), "int32")
            row = T.alloc_local((1,), "int32")
            part = T.alloc_local((1,), "int32")
            thread = T.get_thread_binding()
            row[0] = T.call_extern("int32", f"{lang}row_of", block, blocks)
            part[0] = block - row[0] * blocks

            T.call_extern("handle", f"{lang}mark", T.address_of(values[0]), 0)
            T.call_extern(
                "handle",
                f"{lang}find_row",
                width,
                T.address_of(lengths[0]),
                lengths_kind,
                T.address_of(starts[0]),
                starts_kind,
                row[0],
                stride,
                skew,
                T.address_of(start[0]),
                T.address_of(length[0]),
            )
            # Vectors are counted from the 16-byte boundary below the row's first score.
            first[0] = start[0] // per_vector
            head[0] = T.cast(start[0] % per_vector, "int32")
            row_vectors[0] = (length[0] + head[0] + (per_vector - 1)) // per_vector
            # So many of the row's scores lie in whole vectors of the matrix.
            whole[0] = T.cast(
                T.min(vectors * per_vector - start[0], T.cast(length[0], "int64")), "int32"
            )
            if row_vectors[0] <= alone // per_vector:
                # One block holds it all in registers.
                if part[0] == 0:
                    for u in T.unroll(alone // THREADS // per_vector):
                        # Nothing is read of rows that are wanted whole: they may be nowhere.
                        if (u * THREADS + thread) * per_vector - head[0] < whole[0] and length[
                            0
                        ] > k:
                            for e in T.vectorized(per_vector):
                                held[u * per_vector + e] = scores[
                                    first[0] + u * THREADS + thread, e
                                ]
                    T.call_extern(
                        "handle",
                        f"{lang}finish_short<{code}, {THREADS}, {alone // THREADS}>",
                        T.address_of(held[0]),
                        head[0],
                        whole[0],
                        T.address_of(entries[0]),
                        T.address_of(scratch[0]),
                        T.address_of(values[0]),
                        row[0],
                        T.address_of(scores[0, 0]),
                        start[0],
                        length[0],
                        T.address_of(indices[0]),
                        indices_stride,
                        T.address_of(values[0]),
                        values_stride,
                        with_values,
                        k,
                        order,
                        largest,
                        T.address_of(keys[0]),
                    )
                    T.call_extern("handle", f"{lang}mark", T.address_of(values[0]), 6)
            else:
                # Parts are whole tiles. What the last tile copies past the row's end is looked at
                # in vain; past the matrix's last whole vector nothing is copied.
                tiles[0] = T.ceildiv(row_vectors[0], tile_vectors)
                each[0] = T.call_extern("int32", f"{lang}tiles_each", tiles[0], blocks)
                parts[0] = T.call_extern("int32", f"{lang}parts_of", tiles[0], each[0])
                place[0] = part[0] * each[0] * tile_vectors
                steps[0] = T.min(each[0], tiles[0] - part[0] * each[0])
                last[0] = 0
                if part[0] < parts[0]:
                    # Scores from all over the row, whatever the part: all blocks find one floor.
                    samples[0] = T.call_extern(
                        "int32",
                        f"{lang}sample_size<{THREADS}, {per_vector}, {sample}>",
                        length[0],
                        k,
                    )
                    for load in T.unroll(sample // per_vector):
                        if load * per_vector < samples[0]:
                            for e in T.vectorized(per_vector):
                                sampled[load * per_vector + e] = scores[
                                    first[0]
                                    + T.call_extern(
                                        "int32",
                                        f"{lang}sample_place<{THREADS}>",
                                        load,
                                        T.ceildiv(samples[0], per_vector),
                                        row_vectors[0],
                                    ),
                                    e,
                                ]
                T.call_extern("handle", f"{lang}clear_count", T.address_of(count[0]))
                if clustered:
                    T.call_extern("handle", f"{lang}cluster_arrive")
                if part[0] < parts[0]:
                    floor[0] = -T.infinity("float32")
                    for step in T.Pipelined(steps[0], num_stages=2):
                        T.copy(scores[first[0] + place[0] + step * tile_vectors, 0], tile)
                        # At the first step, when the tile has been on its way as long as the
                        # sample.
                        floor[0] = T.call_extern(
                            "float32",
                            f"{lang}find_floor<{code}, {THREADS}, {sample}>",
                            step,
                            floor[0],
                            T.address_of(sampled[0]),
                            samples[0],
                            length[0],
                            k,
                            largest,
                            T.address_of(floor_scratch[0]),
                            T.address_of(range_[0]),
                            T.address_of(scratch[0]),
                            T.address_of(values[0]),
                        )
                        # TileLang's pipeline allows for one statement that reads the tile.
                        for _ in T.unroll(1):
                            for u in T.unroll(_TILE_VECTORS):
                                for e in T.vectorized(per_vector):
                                    held[u * per_vector + e] = tile[u * THREADS + thread, e]
                            T.call_extern(
                                "handle",
                                f"{lang}append<{code}, {THREADS}, {_TILE_VECTORS}>",
                                T.address_of(entries[0]),
                                T.address_of(count[0]),
                                capacity,
                                T.address_of(held[0]),
                                T.address_of(scores[0, 0]),
                                start[0],
                                whole[0],
                                (place[0] + step * tile_vectors + thread) * per_vector - head[0],
                                length[0],
                                floor[0],
                                largest,
                            )
                    T.call_extern("handle", f"{lang}mark", T.address_of(values[0]), 3)
                    last[0] = 1
                    if not clustered and parts[0] > 1:
                        last[0] = T.call_extern(
                            "int32",
                            f"{lang}deliver<{THREADS}>",
                            T.address_of(entries[0]),
                            T.address_of(count[0]),
                            capacity,
                            T.address_of(lists[0]),
                            room,
                            T.address_of(counters[0]),
                            row[0],
                            parts[0],
                            T.address_of(count[1]),
                        )
                if clustered:
                    last[0] = T.call_extern(
                        "int32",
                        f"{lang}deliver_in_cluster<{THREADS}>",
                        T.address_of(entries[0]),
                        T.address_of(count[0]),
                        capacity,
                        part[0],
                        T.address_of(count[1]),
                    )
                if last[0] == 1:
                    T.call_extern("handle", f"{lang}mark", T.address_of(values[0]), 4)
                    T.call_extern(
                        "handle",
                        f"{lang}finish_long<{code}, {THREADS}, {capacity}>",
                        T.address_of(entries[0]),
                        T.address_of(count[0]),
                        T.address_of(lists[0]),
                        0 if clustered else T.if_then_else(parts[0] > 1, room, 0),
                        T.address_of(range_[0]),
                        T.address_of(scratch[0]),
                        T.address_of(values[0]),
                        row[0],
                        T.address_of(scores[0, 0]),
                        start[0],
                        length[0],
                        T.address_of(indices[0]),
                        indices_stride,
                        T.address_of(values[0]),
                        values_stride,
                        with_values,
                        k,
                        order,
                        largest,
                        T.address_of(keys[0]),
                    )
                    T.call_extern("handle", f"{lang}mark", T.address_of(values[0]), 6)

    return pipelined
