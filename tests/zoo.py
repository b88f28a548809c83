"""Rows that have broken, or were made to break, top-k kernels; each with a name for messages.

Every maker returns a dictionary from name to raw row of one width, so that one launch covers
all of them. `k` is the k to be asked for, where a row is built around its k-th element.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reference import PATTERN, Raw, bits_of, from_bits, quantize

Rows = dict[str, Raw]
Floats = NDArray[np.float64]

STRIDES = (2, 3, 4, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


def matrix(rows: Rows) -> tuple[Raw, list[str]]:
    """The rows as one array, and their names."""
    return np.stack(list(rows.values())), list(rows)


def _quantized(rows: dict[str, Floats], dtype: str) -> Rows:
    return {name: quantize(row, dtype) for name, row in rows.items()}


def ulps_above(number: float, steps: NDArray[np.integer], dtype: str) -> Raw:
    """The scores that many representable steps above a positive number."""
    base = bits_of(quantize(np.array([number]), dtype)).astype(np.int64)
    return from_bits(base + steps, dtype)


def ordinary(width: int, dtype: str, rng: np.random.Generator) -> Rows:
    """The distributions that benchmarks use and the simplest ones that break them."""
    normal = rng.standard_normal(width)
    spiked = normal.copy()
    spiked[rng.integers(0, width, max(1, width // 97))] += 1e4
    signs = rng.choice([-0.0, 0.0], width)
    return _quantized(
        {
            "normal": normal,
            "uniform": rng.random(width),
            "one binade": 1 + rng.random(width),
            "[1, 1.245)": 1 + 0.245 * rng.random(width),
            "all equal": np.full(width, -2.5),
            "two values": rng.choice([0.25, 0.5], width),
            "64 levels": (np.arange(width) % 64) / 64,
            "ascending": np.linspace(-3, 3, width),
            "descending": np.linspace(3, -3, width),
            "zeros of both signs": signs,
            "normal and spikes": spiked,
            "exponential": rng.exponential(1.0, width),
            "all magnitudes": np.exp2(rng.uniform(-140, 120, width)) * rng.choice([-1, 1], width),
        },
        dtype,
    )


def special(width: int, dtype: str, rng: np.random.Generator) -> Rows:
    """NaN, infinities, denormals, huge numbers, and any bits at all."""
    normal = rng.standard_normal(width)
    tiny = {"float32": 1e-42, "float16": 5e-7, "bfloat16": 2e-39}[dtype]
    patterns = PATTERN[dtype]
    nan_bits = {"float32": 0x7F800001, "float16": 0x7C01, "bfloat16": 0x7F81}[dtype]
    sign = {"float32": 31, "float16": 15, "bfloat16": 15}[dtype]
    any_bits = rng.integers(0, np.iinfo(patterns).max, width, dtype=patterns, endpoint=True)
    nans = nan_bits + rng.integers(0, 64, width) + (rng.integers(0, 2, width) << sign)
    rows = _quantized(
        {
            "some NaN": np.where(rng.random(width) < 0.1, np.nan, normal),
            "most NaN": np.where(rng.random(width) < 0.995, np.nan, normal),
            "only infinities": rng.choice([-np.inf, np.inf], width),
            "only -inf": np.full(width, -np.inf),
            "some infinities": rng.choice([-np.inf, np.inf, 1.0, -1.0, 0.0], width),
            "one +inf": np.where(np.arange(width) == width // 3, np.inf, normal),
            "denormals": tiny * rng.standard_normal(width),
            "-1e5 to -1e30": -np.power(10.0, rng.uniform(5, 30, width)),
            "beyond 65504": rng.uniform(6e4, 7e4, width) * rng.choice([-1, 1], width),
        },
        dtype,
    )
    rows["all NaN, any payload"] = from_bits(nans, dtype)
    rows["any bits"] = from_bits(any_bits, dtype)
    return rows


def outliers(width: int, dtype: str, rng: np.random.Generator) -> Rows:
    """A few elements that stretch a linear map until all the others share a bin."""
    narrow = 1 + 1e-3 * rng.random(width)
    rows: dict[str, Floats] = {}
    for name, ends in (("high", (3e4,)), ("low", (-3e4,)), ("both", (-6e4, 6e4))):
        for count in (1, 40):
            row = narrow.copy()
            for end in ends:
                row[rng.integers(0, width, count)] = end
            rows[f"{count} outliers, {name}"] = row
    rows["halving"] = np.exp2(-(rng.permutation(width) % 120).astype(np.float64))
    rows["infinite outliers"] = np.where(rng.random(width) < 0.01, np.inf, narrow)
    return _quantized(rows, dtype)


def plateaus(width: int, k: int, dtype: str, rng: np.random.Generator) -> Rows:
    """Many exact zeros, as a ReLU leaves, with the k-th element in, above and below them."""
    rows: dict[str, Floats] = {}
    for name, positive, negative in (
        ("no positives", 0, 0),
        ("half of k positive", k // 2, 0),
        ("k - 1 positive", k - 1, 0),
        ("k positive", k, 0),
        ("k + 1 positive", k + 1, 0),
        ("2 k positive", 2 * k, 0),
        ("half of k positive, half of the rest negative", k // 2, (width - k // 2) // 2),
        ("the k-th below the plateau", k // 4, width - k // 2),
        ("the plateau ends at the k-th", k // 4, width - k),
    ):
        row = np.zeros(width)
        up = min(max(positive, 0), width)
        down = min(max(negative, 0), width - up)
        row[:up] = rng.exponential(1.0, up) + 1e-3
        row[up : up + down] = -rng.exponential(1.0, down) - 1e-3
        rows[f"plateau: {name}"] = rng.permutation(row)
    return _quantized(rows, dtype)


def ties(width: int, k: int, dtype: str, rng: np.random.Generator) -> Rows:
    """Equal elements across the k-th place, beside neighbours one representable step away."""
    rows: Rows = {}
    for above in sorted({0, 1, k // 2, max(k - 1, 0), k}):
        for tied in (2, k, width):
            up = min(above, width)
            same = min(tied, width - up)
            steps = np.concatenate(
                [np.full(up, 1), np.zeros(same, np.int64), np.full(width - up - same, -1)]
            )
            name = f"{up} one step above {same} ties"
            rows[name] = ulps_above(1.5, rng.permutation(steps), dtype)
            rows[name + ", ties first"] = ulps_above(1.5, steps[::-1], dtype)
            rows[name + ", ties last"] = ulps_above(1.5, np.roll(steps, width - up - same), dtype)
    return rows


def crowds(width: int, dtype: str, rng: np.random.Generator) -> Rows:
    """Distinct scores in consecutive representable steps: one bin of any coarse map."""
    steps = np.arange(width) % (2000 if dtype == "float16" else 30000)
    if dtype == "bfloat16":
        steps = np.arange(width) % 120
    if dtype == "float32":
        steps = np.arange(width)
    low = ulps_above(1.0, rng.permutation(steps), dtype)
    top = low.copy()
    top[rng.integers(0, width, max(1, width // 50))] = quantize(np.array([-1e4]), dtype)[0]
    bottom = low.copy()
    bottom[rng.integers(0, width, max(1, width // 50))] = quantize(np.array([1e4]), dtype)[0]
    return {"consecutive": low, "consecutive, and low ones": top, "and high ones": bottom}


def lying_samples(width: int, dtype: str, rng: np.random.Generator) -> Rows:
    """Every s-th element, what a strided sample sees, says something false about the rest."""
    rows: dict[str, Floats] = {}
    normal = rng.standard_normal(width)
    for stride in sorted({*STRIDES, max(1, width // 4096), max(1, width // 1024)}):
        for phase in sorted({0, stride // 2, stride - 1}):
            seen = np.arange(width) % stride == phase
            where = f"every {stride}th from {phase}"
            rows[f"{where} is high"] = np.where(seen, normal + 100, normal)
            rows[f"{where} is low"] = np.where(seen, normal - 100, normal)
        seen = np.arange(width) % stride == 0
        where = f"every {stride}th"
        rows[f"{where} is the same"] = np.where(seen, 0.5, normal)
        rows[f"{where} is in one bin"] = np.where(seen, 0.5 + 1e-3 * normal, 50 * normal)
        rows[f"{where} is NaN"] = np.where(seen, np.nan, normal)
        rows[f"{where} is all there is"] = np.where(seen, normal, np.nan)
        rows[f"{where} is +inf"] = np.where(seen, np.inf, normal)
    return _quantized(rows, dtype)


def periodic(width: int, dtype: str, rng: np.random.Generator) -> Rows:
    """Rows in step with vector widths, warps, blocks and sample strides."""
    index = np.arange(width)
    rows: dict[str, Floats] = {}
    for period in (1, *STRIDES):
        rows[f"ramp of period {period}"] = (index % period).astype(np.float64)
        rows[f"stairs of {period}"] = (index // period).astype(np.float64)
        rows[f"one period of {period}, repeated"] = rng.standard_normal(period)[index % period]
    return _quantized(rows, dtype)


def clusters(width: int, k: int, dtype: str, rng: np.random.Generator) -> Rows:
    """The k best (or twice as many) in one contiguous chunk or in one residue class."""
    normal = rng.standard_normal(width)
    rows: dict[str, Floats] = {}
    for size in sorted({min(k, width), min(2 * k, width)}):
        for name, begin in (
            ("first", 0),
            ("last", width - size),
            ("middle", (width - size) // 2),
            ("odd", min(width - size, 4097)),
        ):
            row = normal.copy()
            row[begin : begin + size] += 20
            rows[f"the {size} best are the {name} ones"] = row
    for modulus in (4, 32, 128, 512, 1024, 2048):
        row = normal.copy()
        row[modulus // 2 :: modulus][: 2 * k] += 20
        rows[f"the best are {modulus // 2} modulo {modulus}"] = row
    return _quantized(rows, dtype)
