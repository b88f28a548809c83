"""Which thread of the select kernel looks at which element, and rows made to deceive just that.

The kernel (csrc/cuda/row.cuh, anchors.cuh) deals a row out in vectors of 16 bytes, guesses a floor
from a sample that all blocks of a row take alike, or from what a block alone loads first, lists
what lies above, and counts that by bins. Rows here are made for one problem, from its launch
configuration: they say something false in exactly the elements that are sampled, or fill a list, a
table or a bin to the brim. Where the kernel changes they are still right answers to check, only no
longer aimed; that they are aimed is what test_kernel_emulated.py checks.

A row that one block counts whole has neither floor nor list (csrc/cuda/short_row.cuh), and tests of
its own, test_short_rows.py; but where an order is asked for, it is sampled as others are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference import Order, bits_of, from_bits, quantize
from sample_plan import GROUPS, MOST_GROUPS, THREADS, WARP, SamplePlan, plan_sample
from tl_topk._ffi import exports
from zoo import Rows, ulps_above

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

H200 = exports.DeviceInfo(0, "H200", 90, 132, 232_448, 60 << 20, 16, [132, 66, 32, 15, 8], ["90a"])
RESIDUALS = (255, 256, 257)  # elements of one bin that are, and are not, ranked by pairs
BINS = 128
LINE = 8  # vectors of a line of memory
_GOLDEN_RATIO = 0x9E3779B9  # times 2^-32
_FIXED_SHARED_BYTES, _ENTRY_BYTES, _GRID_ENTRIES = 14 * 1024, 8, 63 * 1024
_RESIDENT = 8  # entries a thread, or elements, where a share of one step stays in registers
_SOME = 10  # entries a thread, where few blocks share a row
# Entries a thread, and bytes of loads under way.
_STAGINGS = ((_RESIDENT, 0), (6, 0), (6, 128 << 10), (_SOME, 0), (_SOME, 128 << 10), (24, 0))


@dataclass(frozen=True)
class Deal:
    """Of each element of an aligned row: who reads it, and whether it is sampled.

    Attributes:
        k, dtype: of the problem.
        order: for which the kernel samples the row: any, unless that one is counted whole.
        block: that lists it.
        group: that it belongs to, some lanes of every other warp; -1: it is not loaded.
        loaded: does a thread load it for the sample?
        sampled: is it looked at there as well? Of what is loaded, small samples take a part.
        groups: that the kernel cuts its sample into.
        plan: what is looked at, and which ranks its groups' maxima have that the map begins at.
        per_vector: elements of 16 bytes.
        period: elements from where one stretch of the sample may begin to where the next may.
        blocks: that share the row.
        room: survivors that a block can list; there is a queue of loads beside the list.
        steps: loads that a block makes one after another.
    """

    k: int
    dtype: str
    order: Order
    block: Ints
    group: Ints
    loaded: NDArray[np.bool_]
    sampled: NDArray[np.bool_]
    groups: int
    plan: SamplePlan
    per_vector: int
    period: int
    blocks: int
    room: int
    steps: int

    @property
    def width(self) -> int:
        return len(self.block)

    @property
    def line(self) -> Ints:
        """The line of memory that each element lies in."""
        return np.arange(self.width) // (LINE * self.per_vector)

    @property
    def position(self) -> Ints:
        """Each element's vector, of those of its line."""
        return np.arange(self.width) // self.per_vector % LINE

    @property
    def behind(self) -> NDArray[np.bool_]:
        """Does it lie behind the last line of the sample?"""
        return np.arange(self.width) > np.flatnonzero(self.loaded)[-1]


def deal(rows: int, width: int, k: int, dtype: str) -> Deal:
    """As an H200 launches the problem: unordered, but by index where one block counts it whole."""
    config = exports.launch_config(rows, width, k, dtype, "any", True, True, H200, 0)
    entries, queue = _staging(config)
    order: Order = "any"
    if config.scope == "block" and entries == _RESIDENT:
        order = "index"  # in registers as well, and with the same list
        config = exports.launch_config(rows, width, k, dtype, order, True, True, H200, 0)
    per_vector = 4 if dtype == "float32" else 8
    blocks, loads = config.blocks_per_row, config.vectors_per_thread
    warps = THREADS // WARP
    vectors = -(-width // per_vector)
    steps = max(1, -(-vectors // (loads * THREADS * blocks)))
    alone = config.scope == "block"
    side_by_side = not alone and queue == 0
    # Of chunks of one vector a lane.
    stream = np.arange(width) // per_vector // WARP // (steps * (loads if side_by_side else 1))
    warp, turned = np.divmod(stream % (warps * blocks), blocks)
    block = (turned - warp) % blocks

    sample_loads = loads if alone else 1
    if queue > 0 and not alone:
        sample_loads = 8 // per_vector
    many = entries == _SOME and queue > 0 and config.scope != "grid"
    groups = MOST_GROUPS if many else GROUPS
    plan = plan_sample(width, k, per_vector, sample_loads, steps if alone else 0, groups)
    load, thread = np.divmod(np.arange(sample_loads * THREADS), THREADS)
    if alone:  # the middle step of each stream
        period = steps * WARP * per_vector
        stream = load * warps + thread // WARP
        vector = (stream * steps + steps // 2) * WARP + thread % WARP
    else:
        lines = sample_loads * THREADS // LINE
        stride = max(vectors // LINE // lines, 1)
        period = stride * LINE * per_vector
        line = (load * THREADS + thread) // LINE
        place = (line * _GOLDEN_RATIO % 2**32) * stride >> 32
        begin = line * max(vectors // LINE, lines) // lines
        vector = (begin + place) * LINE + thread % LINE
    index = vector[:, np.newaxis] * per_vector + np.arange(per_vector)
    group = np.full(width, -1)
    sampled = np.zeros(width, bool)
    inside = index < width
    group[index[inside]] = np.broadcast_to(group_of(thread, groups)[:, np.newaxis], index.shape)[
        inside
    ]
    sampled[index[inside]] = plan.takes(load, thread, per_vector, groups)[inside]
    room = config.threads * entries
    if config.scope == "grid":
        room = min(_GRID_ENTRIES // blocks, 1024)
    return Deal(
        k=k,
        dtype=dtype,
        order=order,
        block=block,
        group=group,
        loaded=group >= 0,
        sampled=sampled,
        groups=groups,
        plan=plan,
        per_vector=per_vector,
        period=period,
        blocks=blocks,
        room=room,
        steps=steps,
    )


def group_of(thread: Ints, groups: int) -> Ints:
    return thread % groups


def _staging(config: exports.LaunchConfig) -> tuple[int, int]:
    """Of an unordered launch: entries a thread, and bytes of the queue of loads."""
    if config.large_k:
        return _RESIDENT, 0
    for entries, queue in _STAGINGS:
        listed = entries * config.threads * _ENTRY_BYTES
        if config.shared_bytes == _FIXED_SHARED_BYTES + queue + listed:
            return entries, queue
    raise LookupError(f"no kernel takes {config.shared_bytes} bytes")


class Kernel(NamedTuple):
    """What csrc/cuda/select_launch.cuh tells kernels of one dtype apart by, mapped or not.

    Attributes:
        name: of the template; beside each "short" there is a "select" for what maps or sorts.
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
    name = "short" if config.scope == "block" and entries == _RESIDENT else "select"
    return Kernel(name, config.scope, config.vectors_per_thread, entries, queue > 0)


def anchored(given: Deal, rest: float = -1.0) -> tuple[Floats, float]:
    """A row of which the sample says a floor of 0, and the height of the bins that follow from it.

    What is not sampled is ``rest``.
    """
    ceiling = 16.0
    row = np.where(given.sampled, 0.0, rest)
    for group in range(given.plan.ceiling_rank):
        row[np.flatnonzero(given.sampled & (given.group == group))[0]] = ceiling
    return row, ceiling * (1 + given.plan.reach) / (BINS - 1)


def lying(given: Deal, rng: np.random.Generator) -> Rows:
    """The sample is of another kind than the rest, all of it or some."""
    normal = rng.standard_normal(given.width)
    lines = np.unique(given.line[given.loaded])
    first_half = np.arange(given.width) < given.width // 2
    parts = {
        "in one line": given.line == lines[len(lines) // 2],
        "at one position": given.position == 3,
        "in the first half": first_half,
    }
    rows = {}
    for seen, who in ((given.loaded, "loaded"), (given.sampled, "sampled")):
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
        for where, part in parts.items():
            for name in ("high", "low", "in one bin", "NaN"):
                rows[f"{who} {where}: {name}"] = np.where(seen & part, kinds[name], normal)
        rows[f"{who}: high in the first half, low in the other"] = np.where(
            seen, np.where(first_half, normal + 100, normal - 100), normal
        )
        for count in (1, 8, 33, 63):
            high = seen & (given.group < count)
            rows[f"{who} by {count} groups: high"] = np.where(high, normal + 100, normal)
    return {name: quantize(row, given.dtype) for name, row in rows.items()}


def between(given: Deal, rng: np.random.Generator) -> Rows:
    """What lies between the lines of the sample, or behind the last, is of another kind."""
    index, normal = np.arange(given.width), rng.standard_normal(given.width)
    rows = {"ascending": np.sort(normal), "descending": -np.sort(normal)}
    stretches = {"behind the last line": given.behind}
    lines = np.unique(given.line[given.loaded])
    gaps = np.diff(lines)
    widest = int(np.argmax(gaps))
    if gaps[widest] > 1:
        stretches["between two lines"] = (given.line > lines[widest]) & (
            given.line < lines[widest + 1]
        )
    for where, stretch in stretches.items():
        if not stretch.any():
            continue
        for name, values in (("high", normal + 100), ("low", normal - 100), ("NaN", np.nan)):
            rows[f"{where}: {name}"] = np.where(stretch, values, normal)
        best = normal - 20
        best[np.flatnonzero(stretch)[: given.k]] += 40
        rows[f"the {min(given.k, stretch.sum())} best are {where}"] = best
        rows[f"the rest is -inf, but {where}"] = np.where(stretch, normal, -np.inf)
    in_line = LINE * given.per_vector
    for period in sorted({given.period, given.period + in_line, in_line}):
        phase = index % period
        rows[f"one period of {period}, repeated"] = normal[phase]
        rows[f"ramp of period {period}"] = phase.astype(np.float64)
        rows[f"high where a period of {period} begins"] = normal + 20 * (phase < in_line // 4)
        rows[f"high where a period of {period} ends"] = normal + 20 * (phase >= period - in_line)
    return {name: quantize(row, given.dtype) for name, row in rows.items()}


def enough_groups(given: Deal, rng: np.random.Generator) -> Rows:
    """A floor that too few elements pass, or just not: one high element in each of some groups."""
    rows: Rows = {}
    plan = given.plan
    where = np.flatnonzero(given.sampled)
    _, firsts = np.unique(given.group[where], return_index=True)
    for name, base in (("normal", rng.standard_normal(given.width)), ("equal", 1.0)):
        for height in (100.0, 1.0078125):
            for groups in sorted({plan.low_rank - 1, plan.low_rank, plan.groups}):
                row = np.full(given.width, base)
                row[where[firsts[:groups]]] = height
                rows[f"{height} in {groups} groups, the rest {name}"] = quantize(row, given.dtype)
    return rows


def brimming(given: Deal, rng: np.random.Generator) -> Rows:
    """Exactly so many elements of a block pass the floor: lists and 16-bit counts at their ends."""
    limits = {given.room, 0xFFFF // given.blocks, THREADS}
    counts = sorted({limit + step for limit in limits for step in (-1, 0, 1)})
    of_block = [
        rng.permutation(np.flatnonzero((given.block == block) & ~given.sampled))
        for block in range(given.blocks)
    ]
    rows: Rows = {}
    for turn, count in enumerate(counts):
        places = np.concatenate([places[:count] for places in of_block])
        for kind, heights in (("equal", 50.0), ("distinct", 50 + rng.standard_normal(len(places)))):
            row = np.where(given.loaded, 0.0, -1.0)
            row[places] = heights
            rows[f"{count} of each block stand out, {kind}"] = quantize(row, given.dtype)
        row, of_bin = anchored(given)
        the_bin = (0, 60, BINS)[(turn + turn // 3) % 3]  # the last one has no upper end
        row[places] = of_bin * (the_bin + rng.uniform(0.3, 0.7, len(places)))
        rows[f"{count} of each block in bin {the_bin}"] = quantize(row, given.dtype)
    # Keys are rounded down to groups of 64: all of these pass the floor, though they are equal.
    above = ulps_above(1.0, np.full(given.width, 37), given.dtype)
    for lower in (0, 1, 2):
        row = above.copy()
        for block in range(given.blocks):
            row[rng.permutation(np.flatnonzero(given.block == block))[:lower]] = 0
        rows[f"all but {lower} of each block are equal, and above the floor"] = row
    return rows


def binned(given: Deal, rng: np.random.Generator) -> Rows:
    """The anchors are known: so many survivors in the bin of the cut, and so many above it."""
    base, of_bin = anchored(given)
    everywhere = rng.permutation(np.flatnonzero(~given.sampled))
    in_last = given.block[everywhere] == given.blocks - 1
    last_block_first = np.append(everywhere[in_last], everywhere[~in_last])
    rows: Rows = {}

    def add(name: str, bins: Floats, places: Ints = everywhere) -> None:
        row = base.copy()
        row[places[: len(bins)]] = of_bin * bins[: len(places)]
        rows[name] = quantize(row, given.dtype)

    def inside(bin_: int, count: int) -> Floats:
        return bin_ + rng.uniform(0.3, 0.7, count)

    for cut in (0, 60):
        anchors_above = given.plan.ceiling_rank if np.max(base) >= of_bin * (cut + 1) else 0
        for count in RESIDUALS:
            for wanted in (1, count // 2, count):
                above = given.k - wanted - anchors_above
                if above >= 0:
                    bins = np.append(inside(cut, count), rng.uniform(cut + 1.3, BINS + 9, above))
                    add(f"{wanted} of {count} in bin {cut}", bins)
                    if count == wanted:
                        add(
                            f"{wanted} of {count} in bin {cut} of one block", bins, last_block_first
                        )
    for count in (1, given.k - 1, given.k, given.k + 1, 2 * given.k):
        ends = np.append(inside(BINS, count), inside(0, given.k))
        add(f"{count} in the last bin, the others in the first", ends)
        add(f"{count} in the last bin, and first of one block", ends, last_block_first)
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
    """All that is wanted, or twice that, lies in one block or one group, in the sample or not."""
    normal = rng.standard_normal(given.width)
    places = {
        "the leader": given.block == 0,
        "the last block": given.block == given.blocks - 1,
        "one group": given.group == 17,
        "what is sampled": given.sampled,
        "what is loaded for the sample": given.loaded,
        "what is not": ~given.loaded,
    }
    of_one = given.block == given.blocks // 3
    rows: Rows = {"a block's whole share, all equal": quantize(of_one.astype(float), given.dtype)}
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


MAKERS = (
    *(lying, between, enough_groups, brimming, binned),
    *(straddling, gathered, crowded, edges),
)
