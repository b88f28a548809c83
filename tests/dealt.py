"""Which thread of the select kernel looks at which element, and rows made to deceive just that.

The kernel (csrc/cuda/row.cuh, anchors.cuh) deals a row out in vectors of 16 bytes, guesses a floor
from what each block loads first, lists what lies above, and counts that by bins. Rows here are made
for one problem, from its launch configuration: they say something false in exactly the elements
that are looked at first, or fill a list, a table or a bin to the brim. Where the kernel changes
they are still right answers to check, only no longer aimed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference import bits_of, from_bits, quantize
from tl_topk._ffi import exports
from zoo import Rows, ulps_above

Ints = NDArray[np.int64]

H200 = exports.DeviceInfo(0, "H200", 90, 132, 232_448, 60 << 20, 16, [132, 66, 32, 15, 8], ["90a"])
GROUPS = 64  # whose maxima are compared
RESIDUALS = (255, 256, 257)  # elements of one bin that are, and are not, ranked by pairs
_THREADS, _WARP = 512, 32
_FIXED_SHARED_BYTES, _ENTRY_BYTES, _GRID_ENTRIES = 14 * 1024, 8, 40 * 512
_RESIDENT = 8  # entries a thread, where a share of one step stays in registers
# Entries a thread, and bytes of loads under way.
_STAGINGS = ((_RESIDENT, 0), (6, 0), (6, 128 << 10), (10, 0), (10, 128 << 10), (24, 0))


@dataclass(frozen=True)
class Deal:
    """Of each element of an aligned row: who reads it, and when.

    Attributes:
        k, dtype: of the problem.
        block, group: that it belongs to; a group is some lanes of every other warp.
        first: is it among what its block loads first?
        sampled: is it the first element of a vector as well, as the smallest samples are?
        blocks: that share the row.
        room: survivors that a block can list.
        steps: loads that a block makes one after another; 1: its share stays in registers.
    """

    k: int
    dtype: str
    block: Ints
    group: Ints
    first: NDArray[np.bool_]
    sampled: NDArray[np.bool_]
    blocks: int
    room: int
    steps: int

    @property
    def width(self) -> int:
        return len(self.block)


def deal(rows: int, width: int, k: int, dtype: str) -> Deal:
    """As an H200 launches the problem, unordered."""
    config = exports.launch_config(rows, width, k, dtype, "any", True, True, H200, 0)
    per_vector = 4 if dtype == "float32" else 8
    blocks, loads = config.blocks_per_row, config.vectors_per_thread
    warps = _THREADS // _WARP
    chunks = -(-width // (per_vector * _WARP))  # of one vector a lane
    steps = max(1, -(-chunks // (loads * warps * blocks)))
    vector, within = np.divmod(np.arange(width), per_vector)
    chunk, lane = np.divmod(vector, _WARP)
    stream, step = np.divmod(chunk, steps)
    warp, turned = np.divmod(stream % (warps * blocks), blocks)
    block = (turned - warp) % blocks
    first = step == steps // 2
    return Deal(
        k=k,
        dtype=dtype,
        block=block,
        group=warp % (GROUPS // _WARP) * _WARP + lane,
        first=first,
        sampled=first & (within == 0),
        blocks=blocks,
        room=_room(config),
        steps=steps,
    )


def _room(config: exports.LaunchConfig) -> int:
    """Survivors that a block can list; there is a queue of loads beside the list."""
    if config.scope == "grid":
        return _GRID_ENTRIES // config.blocks_per_row
    return config.threads * (_RESIDENT if config.large_k else _staging(config)[0])


def _staging(config: exports.LaunchConfig) -> tuple[int, int]:
    """Of an unordered launch: entries a thread, and bytes of the queue of loads."""
    for entries, queue in _STAGINGS:
        listed = entries * config.threads * _ENTRY_BYTES
        if config.shared_bytes == _FIXED_SHARED_BYTES + queue + listed:
            return entries, queue
    raise LookupError(f"no kernel takes {config.shared_bytes} bytes")


class Kernel(NamedTuple):
    """What csrc/cuda/select_launch.cuh tells kernels of one dtype apart by, mapped or not.

    Attributes:
        name: of the template.
        scope: what works on a row.
        loads: vectors that a thread loads a step.
        entries: survivors that a thread has room for.
        queued: are steps under way in shared memory?
    """

    name: str
    scope: str
    loads: int = 0
    entries: int = 0
    queued: bool = False


def kernel_of(rows: int, width: int, k: int, dtype: str, blocks: int = 0) -> Kernel:
    """That an H200 launches the problem as, with so many blocks a row if not 0."""
    config = exports.launch_config(rows, width, k, dtype, "any", True, True, H200, blocks)
    if config.large_k or config.scope == "grid":
        return Kernel("large_k" if config.large_k else "grid", config.scope)
    entries, queue = _staging(config)
    return Kernel("select", config.scope, config.vectors_per_thread, entries, queue > 0)


def lying(given: Deal, rng: np.random.Generator) -> Rows:
    """The elements looked at first are of another kind than the rest, in all blocks or in some."""
    normal = rng.standard_normal(given.width)
    leader, last = given.block == 0, given.block == given.blocks - 1
    rows = {}
    for seen, who in ((given.first, "loaded first"), (given.sampled, "sampled")):
        kinds = {
            "high": normal + 100,
            "low": normal - 100,
            "the same": np.full(given.width, 0.5),
            "in one bin": 0.5 + 1e-5 * normal,
            "NaN": np.full(given.width, np.nan),
            "+inf": np.full(given.width, np.inf),
            "-inf": np.full(given.width, -np.inf),
            "near the largest": 3e38 + 1e37 * normal.clip(-3, 3),
        }
        for name, values in kinds.items():
            rows[f"{who}: {name}"] = np.where(seen, values, normal)
        rows[f"{who}: in one bin, the rest everywhere"] = np.where(
            seen, kinds["in one bin"], 50 * normal
        )
        for blocks, where in ((leader, "leader"), (last, "last block"), (~leader, "followers")):
            for name in ("high", "low", "in one bin", "NaN"):
                rows[f"{who} by the {where}: {name}"] = np.where(seen & blocks, kinds[name], normal)
        rows[f"{who} by the leader high, by others low"] = np.where(
            seen, np.where(leader, normal + 100, normal - 100), normal
        )
        for count in (1, 8, 33, 63):
            high = seen & (given.group < count)
            rows[f"{who} by {count} groups: high"] = np.where(high, normal + 100, normal)
    return {name: quantize(row, given.dtype) for name, row in rows.items()}


def one_a_group(given: Deal, rng: np.random.Generator) -> Rows:
    """A floor that too few elements pass: one high element in each group of each block."""
    rows: Rows = {}
    for name, base in (("normal", rng.standard_normal(given.width)), ("equal", 1.0)):
        for height in (100.0, 1.0078125):
            row = np.full(given.width, base)
            where = np.flatnonzero(given.sampled)
            _, firsts = np.unique(
                given.block[where] * GROUPS + given.group[where], return_index=True
            )
            row[where[firsts]] = height
            rows[f"one of {height} a group, the rest {name}"] = quantize(row, given.dtype)
    return rows


def brimming(given: Deal, rng: np.random.Generator) -> Rows:
    """Exactly so many elements of a block pass its floor: lists and 16-bit counts at their ends."""
    limits = {given.room, 0xFFFF // given.blocks, _THREADS}
    counts = sorted({limit + step for limit in limits for step in (-1, 0, 1)})
    rows: Rows = {}
    for count in counts:
        for kind in ("equal", "distinct"):
            row = np.where(given.first, 0.0, -1.0)
            filled = np.zeros(given.width, bool)
            for block in range(given.blocks):
                places = np.flatnonzero((given.block == block) & ~given.sampled)
                filled[rng.permutation(places)[:count]] = True
            heights = 50.0 if kind == "equal" else 50 + rng.standard_normal(filled.sum())
            row[filled] = heights
            rows[f"{count} of each block stand out, {kind}"] = quantize(row, given.dtype)
    # Keys are rounded down to groups of 64: all of these pass the floor, though they are equal.
    above = ulps_above(1.0, np.full(given.width, 37), given.dtype)
    for lower in (0, 1, 2):
        row = above.copy()
        for block in range(given.blocks):
            row[rng.permutation(np.flatnonzero(given.block == block))[:lower]] = 0
        rows[f"all but {lower} of each block are equal, and above the floor"] = row
    return rows


def straddling(given: Deal, rng: np.random.Generator) -> Rows:
    """Ties at the k-th place: as many as a bin may hold, or across blocks and ranges of indices."""
    width, k = given.width, given.k
    low = quantize(rng.standard_normal(width) - 10, given.dtype)
    rows: Rows = {}
    for tied in RESIDUALS:
        for above in sorted({max(0, k - tied), max(0, k - tied + 1), k - tied // 2, k - 1}):
            if not 0 <= above <= width - tied:
                continue
            places = rng.permutation(width)
            row = low.copy()
            row[places[:above]] = quantize(5 + rng.exponential(1, above), given.dtype)
            row[places[above : above + tied]] = quantize(np.array([4.0]), given.dtype)
            rows[f"{above} above {tied} ties"] = row
            row = row.copy()
            row[places[above : above + tied]] = ulps_above(
                4.0, np.arange(tied) % (64 if given.dtype == "bfloat16" else 512), given.dtype
            )
            rows[f"{above} above {tied} neighbours"] = row
    # The ties are counted by ranges of 2^shift indices, and the last winner is the first or last.
    reach = 1 << max(0, int(width - 1).bit_length() - 10)
    for border in (reach, 3 * reach, width // 2 // reach * reach):
        for wanted in (1, 2, min(k, border)):
            for offset in (-1, 0, 1):
                begin = border + offset - wanted + 1
                if begin < 0:
                    continue
                row = np.full(width, -1.0)
                row[begin:] = 0
                row[rng.permutation(np.arange(begin, width))[: k - wanted]] = 1
                rows[f"the {wanted}th tie lies about {border}, {offset:+d}"] = quantize(
                    row, given.dtype
                )
    return rows


def gathered(given: Deal, rng: np.random.Generator) -> Rows:
    """All that is wanted, or twice that, lies in one block, one group or one step."""
    normal = rng.standard_normal(given.width)
    places = {
        "the leader": given.block == 0,
        "the last block": given.block == given.blocks - 1,
        "one group": given.group == 17,
        "what is loaded first": given.first,
        "what is loaded later": ~given.first,
    }
    rows: Rows = {}
    for name, where in places.items():
        rows[f"the best are in {name}"] = quantize(
            np.where(where, normal + 20, normal), given.dtype
        )
        some = rng.permutation(np.flatnonzero(where))[: given.k]
        row = normal.copy()
        row[some] += 20
        rows[f"{len(some)} of the best are in {name}"] = quantize(row, given.dtype)
    return rows


def crowded(given: Deal, rng: np.random.Generator) -> Rows:
    """Some stand out so far that the k-th place is decided inside one bin, or a part of one."""
    normal = rng.standard_normal(given.width)
    leader = given.block == 0
    rows: Rows = {}
    for above, far in ((given.k // 8, 1e6), (given.k // 4, 5.0), (given.k - 1, 5.0)):
        where = rng.permutation(given.width)[:above]
        crowds = {
            "1e-3": 1 + 1e-3 * normal,
            "of ever smaller parts": 1 + np.exp(4 * normal - 20),
            "lower in the leader": 1 + 1e-3 * normal - np.where(leader, 2e-3, 0),
            "of ties": 1 + 1e-3 * normal.round(1),
        }
        for name, row in crowds.items():
            row[where] = far * (1 + rng.exponential(1, above))
            rows[f"{above} by {far:g} above a crowd {name}"] = quantize(row, given.dtype)
    return rows


def edges(given: Deal, rng: np.random.Generator) -> Rows:
    """Both anchors are known, and all else lies on the bins' edges or a few steps aside."""
    rows: Rows = {}
    for high_groups in (4, 16, 32, 48):
        for low, ceiling in ((1.0, 2.0), (-3.0, 5.0), (1.0, 1.25), (-2e-38, 3e-38), (1e37, 3e38)):
            bin_edges = low + (ceiling - low) * np.arange(257) / 255
            near = bits_of(quantize(rng.choice(bin_edges, given.width), "float32"))
            aside = near.astype(np.int64) + rng.integers(-2, 3, given.width)
            row = from_bits(aside.clip(0), "float32").astype(np.float64)
            anchors = np.where(given.group < high_groups, ceiling, low)
            row = np.where(given.sampled, anchors, row)
            name = f"edges between {low} and {ceiling}, {high_groups} groups high"
            rows[name] = quantize(row, given.dtype)
    return rows


MAKERS = (lying, one_a_group, brimming, straddling, gathered, crowded, edges)
