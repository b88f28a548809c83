"""How TileLang's users select today: the scheme of the selector among its examples, written anew.

One block of 1024 threads a row, whatever its length; a histogram of the scores' upper eight bits
as float16, then 8-bit digits of the float32 key among the candidates. The candidates' list holds
4096: on rows whose candidates are more the answer is wrong, as the example's is.
"""

# No `from __future__ import annotations`: TileLang evaluates annotations, which use local names.
from pathlib import Path
from typing import Any

from tl_topk.tile.compiler import Program

__all__ = ["LONGEST", "example_program"]

THREADS, BINS, CANDIDATES, ROUNDS = 1024, 256, 4096, 4
LONGEST = 1 << 17  # normal rows with k = 2048 have more candidates beyond


def example_program(k: int) -> Program:
    """Arguments of ``launch``: scores (rows, width) float32, width, indices (rows, k)."""
    return Program(
        name=f"example-k{k}",
        trace=lambda: _trace(k),
        arguments=("scores", "width", "indices"),
        sources=(Path(__file__),),
        passes={
            "tl.disable_tma_lower": True,
            "tl.disable_warp_specialized": True,
            "tl.disable_thread_storage_sync": True,  # the barriers are written out
            "tl.disable_shared_memory_reuse": True,
            "tl.disable_safe_memory_legalize": True,
        },
    )


def _trace(k: int) -> Any:
    import tilelang.language as T  # noqa: N812

    width = T.dynamic("width")

    @T.macro
    def coarse(score, result):
        bits = T.reinterpret(T.cast(score, "float16"), "uint16")
        result[0] = (
            T.cast(
                T.if_then_else(bits & 0x8000 != 0, T.cast(~bits, "uint16"), bits | 0x8000), "int32"
            )
            >> 8
        )

    @T.macro
    def fine(score, shift, result):
        bits = T.reinterpret(score, "uint32")
        key = T.if_then_else(bits & T.uint32(0x80000000) != 0, ~bits, bits | T.uint32(0x80000000))
        result[0] = T.cast((key >> shift) & T.uint32(255), "int32")

    @T.macro
    def find_threshold(thread, histogram, wanted, cut):
        """The bin in which the sum from the top reaches `wanted`; leaves those sums behind."""
        other = T.alloc_local((1,), "int32")
        for step in T.serial(8):
            other[0] = 0
            if thread + (1 << step) < BINS:
                other[0] = histogram[thread + (1 << step)]
            T.sync_threads()
            if thread < BINS:
                histogram[thread] += other[0]
            T.sync_threads()
        if thread < BINS and histogram[thread] >= wanted and histogram[thread + 1] < wanted:
            cut[0] = thread
        T.sync_threads()

    @T.prim_func
    def example(
        scores: T.Tensor((1, width), "float32"),
        indices: T.Tensor((1, k), "int32"),
        grid: T.int32,
    ):
        with T.Kernel(grid, threads=THREADS) as row:
            histogram = T.alloc_shared((BINS + 1,), "int32")
            candidates = T.alloc_shared((2, CANDIDATES), "int32")
            counts = T.alloc_shared((3,), "int32")  # chosen; candidates of either list
            cut = T.alloc_shared((1,), "int32")
            digit = T.alloc_local((1,), "int32")
            place = T.alloc_local((1,), "int32")
            wanted = T.alloc_local((1,), "int32")
            index = T.alloc_local((1,), "int32")
            thread = T.get_thread_binding()

            if thread < BINS + 1:
                histogram[thread] = 0
            if thread < 3:
                counts[thread] = 0
            T.sync_threads()
            for step in T.serial(T.ceildiv(width, THREADS)):
                if step * THREADS + thread < width:
                    coarse(scores[row, step * THREADS + thread], digit)
                    T.atomic_add(histogram[digit[0]], 1)
            T.sync_threads()
            find_threshold(thread, histogram, k, cut)
            wanted[0] = k - histogram[cut[0] + 1]
            for step in T.serial(T.ceildiv(width, THREADS)):
                if step * THREADS + thread < width:
                    coarse(scores[row, step * THREADS + thread], digit)
                    if digit[0] > cut[0]:
                        place[0] = T.atomic_add(counts[0], 1, return_prev=True)
                        indices[row, place[0]] = step * THREADS + thread
                    if digit[0] == cut[0]:
                        place[0] = T.atomic_add(counts[1], 1, return_prev=True)
                        if place[0] < CANDIDATES:
                            candidates[0, place[0]] = step * THREADS + thread
            T.sync_threads()
            for turn in T.unroll(ROUNDS):
                if wanted[0] > 0:
                    if thread < BINS + 1:
                        histogram[thread] = 0
                    if thread == 0:
                        counts[1 + (turn + 1) % 2] = 0
                    T.sync_threads()
                    for step in T.serial(T.ceildiv(counts[1 + turn % 2], THREADS)):
                        if step * THREADS + thread < counts[1 + turn % 2]:
                            index[0] = candidates[turn % 2, step * THREADS + thread]
                            fine(scores[row, index[0]], 24 - 8 * turn, digit)
                            T.atomic_add(histogram[digit[0]], 1)
                    T.sync_threads()
                    find_threshold(thread, histogram, wanted[0], cut)
                    wanted[0] -= histogram[cut[0] + 1]
                    for step in T.serial(T.ceildiv(counts[1 + turn % 2], THREADS)):
                        if step * THREADS + thread < counts[1 + turn % 2]:
                            index[0] = candidates[turn % 2, step * THREADS + thread]
                            fine(scores[row, index[0]], 24 - 8 * turn, digit)
                            if digit[0] > cut[0]:
                                place[0] = T.atomic_add(counts[0], 1, return_prev=True)
                                indices[row, place[0]] = index[0]
                            if digit[0] == cut[0]:
                                place[0] = T.atomic_add(
                                    counts[1 + (turn + 1) % 2], 1, return_prev=True
                                )
                                candidates[(turn + 1) % 2, place[0]] = index[0]
                    T.sync_threads()
            # What is left is equal: any of it, as long as it is wanted.
            if wanted[0] > 0 and thread < wanted[0]:
                indices[row, k - wanted[0] + thread] = candidates[ROUNDS % 2, thread]

    return example
