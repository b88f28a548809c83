"""The suites: which cases, on which device, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.cases import Case
from bench.distributions import DISTRIBUTIONS, real_width
from bench.targets import TARGETS, K, M

__all__ = ["SUITES", "Suite"]


@dataclass(frozen=True)
class Suite:
    """Cases that run together and end in one file.

    Attributes:
        name: of the suite and its file.
        about: one line for people.
        device: "cuda" or "cpu".
        cases: those of one input follow one another, so that it is drawn once.
        peers: names that take part besides ours and torch.topk; None means all that can be found.
        backends: of ours, that take part besides the one for scores that lie ready.
        ablations: whether builds of ours take part that lack one part each.
        tile: whether the TileLang kernels take part, each by itself.
    """

    name: str
    about: str
    device: str
    cases: tuple[Case, ...]
    peers: Sequence[str] | None = None
    backends: Sequence[str] = ()
    ablations: bool = False
    tile: bool = False


SEED_LENGTHS = (16_384, 65_536, 98_304, 120_000, 262_144, 524_288, 1_048_576)


def _short() -> tuple[Case, ...]:
    return tuple(Case(rows, width) for rows, widths in TARGETS.items() for width in widths)


def _grid() -> tuple[Case, ...]:
    """By k, so that a run that ends early has covered all shapes with the commonest one."""
    return tuple(
        Case(2**i, 2**j * K, k) for k in (2048, 512, 1024) for i in range(9) for j in range(2, 11)
    )


def _hostile() -> tuple[Case, ...]:
    shapes = ((1, 16 * K), (1, 64 * K), (1, 256 * K), (64, 64 * K))
    cases = [
        Case(rows, width, distribution=name)
        for rows, width in shapes
        for name in DISTRIBUTIONS
        if name != "real" or width <= real_width()
    ]
    cases += [Case(1, 64 * K, entropy=bits) for bits in (20, 16, 12, 10, 9)]
    return tuple(cases)


def _options() -> tuple[Case, ...]:
    cases: list[Case] = []
    for plain in (Case(1, 64 * K), Case(64, 64 * K)):
        cases += [
            plain,
            replace(plain, values=True),
            replace(plain, order="index"),
            replace(plain, order="value"),
            replace(plain, order="value", k=512),
            replace(plain, row_starts=True),
            replace(plain, lengths=plain.width),
            replace(plain, lengths=plain.width - 5),  # as engines' rows end: anywhere
        ]
        cases += [replace(plain, k=k) for k in (1, 8, 64, 256, 512, 1024, 3072, 4096)]
        cases += [replace(plain, dtype=dtype) for dtype in ("float16", "bfloat16")]
    wide = Case(64, 256 * K)  # where bytes dominate
    cases += [replace(wide, dtype=dtype) for dtype in ("float32", "float16", "bfloat16")]
    for length in (4 * K, 16 * K, 64 * K, 256 * K):  # a short row in a wide one, and alone
        cases += [Case(1, M, lengths=length), Case(1, length, lengths=length)]
    cases += [Case(1, width, lengths=width - 5) for width in (256 * K, M)]
    cases += [Case(rows, 256 * K, lengths="mixed") for rows in (16, 64)]
    cases += [Case(4096, width * K, lengths="causal") for width in (8, 32, 128)]
    return tuple(dict.fromkeys(cases))


def _ablation() -> tuple[Case, ...]:
    shapes = ((1, 16 * K), (1, 64 * K), (1, 256 * K), (16, 64 * K), (64, 64 * K))
    return (
        *(Case(rows, width) for rows, width in shapes),
        Case(1, 64 * K, distribution="relu sum"),
        Case(1, 64 * K, distribution="outlier"),
    )


def _cpu() -> tuple[Case, ...]:
    names = ("normal", "relu sum", "offset", "two values", "all equal", "sorted up")
    return tuple(Case(1, M, distribution=name) for name in names)


SUITES = {
    suite.name: suite
    for suite in (
        Suite("short", "the cells of the table of targets", "cuda", _short()),
        Suite("grid", "1 to 256 rows of 4K to 1M, k = 512, 1024, 2048", "cuda", _grid()),
        Suite("hostile", "every distribution, and ever fewer distinct values", "cuda", _hostile()),
        Suite("options", "orders, values, k, dtypes, lengths, row starts", "cuda", _options(), ()),
        Suite(
            "seed",
            "the founding table: one row, k = 2048",
            "cuda",
            tuple(Case(1, width) for width in SEED_LENGTHS),
            ("SGLang fast_topk_v2", "TileLang example"),
            ("pipelined",),
        ),
        Suite(
            "ablation",
            "what each part of the kernel gains: the same without it",
            "cuda",
            _ablation(),
            (),
            ablations=True,
        ),
        Suite(
            "tilelang",
            "the TileLang kernels, dsmem, and how TileLang's users select today",
            "cuda",
            (*(Case(1, 2**i * K) for i in range(2, 11)), *(Case(64, w * K) for w in (16, 64, 128))),
            (),
            tile=True,
        ),
        Suite("cpu", "the CPU backend on one row of 1M, two threads", "cpu", _cpu(), ()),
    )
}
