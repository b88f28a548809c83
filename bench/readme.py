"""The part of README that is made from results: what ``make report`` writes and a test compares."""

from __future__ import annotations

from pathlib import Path

from bench import reliability, scaling
from bench.distributed_tables import distributed_table
from bench.regret_tables import ready_table, scored_table
from bench.results import (
    ENGINES_SUITE,
    FUSED_SUITE,
    HOST_SUITE,
    PHASES_SUITE,
    READY_SUITE,
    RESULTS,
    SCORED_SUITE,
    Document,
    load,
)
from bench.tables import markdown, source_line, table_of

__all__ = [
    "BEGIN", "END", "FIGURES_DIRECTORY", "MANIFEST", "README",
    "documents", "readme_with", "results_files", "section",
]  # fmt: skip

BEGIN = "<!-- benchmarks: begin (made by make report from bench/results) -->"
END = "<!-- benchmarks: end -->"

README = RESULTS.parents[1] / "README.md"
FIGURES_DIRECTORY = RESULTS.parent / "figures"
#: Which inputs, by hash, the figures were drawn from.
MANIFEST = FIGURES_DIRECTORY / "manifest.json"

#: By suite: what its table shows, and the figures beside it. Those beside the short suite show the
#: grid as well, where it has been measured.
_SECTIONS = {
    "short": ("One call, microseconds: k = 2048, normal float32", ("latency", "speedup")),
    "seed": ("The founding table: one row, k = 2048, microseconds", ()),
    "grid": ("Over rows, lengths and k: the figures above, and every cell", ()),
    "hostile": ("Distributions that break selections, microseconds", ()),
    "options": ("Options, microseconds", ()),
    ENGINES_SUITE: ("What engines call: mapped indices, and a whole decoding step", ()),
    HOST_SUITE: ("What a call costs the CPU", ("host",)),
    PHASES_SUITE: ("Where a launch spends its time", ("phases",)),
    "ablation": ("What each part of the kernel gains: the same without it", ()),
    FUSED_SUITE: ("Scores and selection in one kernel, or one after the other", ("crossover",)),
    READY_SUITE: ("The dispatcher's choices by the best of all candidates", ("regret",)),
    SCORED_SUITE: (
        "Where fusing pays: scores first, then selection / one kernel, microseconds",
        ("intensity",),
    ),
    "distributed": ("Rows divided over two GPUs, microseconds a call", ("distributed",)),
    "scaling": ("Rows divided over 1 to 64 GPUs, projected", ("scaling",)),
    "cpu": ("The CPU backend: k = 2048 of 1M float32, two threads, microseconds", ()),
}
_FOLDED = ("grid", SCORED_SUITE)  # tables too long to stand open

_TABLES = {
    "distributed": distributed_table,
    "scaling": scaling.table,
    READY_SUITE: ready_table,
    SCORED_SUITE: scored_table,
}

_NOTES = {
    "seed": "Columns named *published* were measured by others, on a GB300 or B300.",
    "hostile": "Ours alone. Bold: above what is allowed.",
    "ablation": (
        "Clusters: one block a row instead. Floor: all elements are counted, or go by exact digits."
        " Linear map: bins by a float's leading bits. Push: blocks load one another's counts"
        " between barriers. Atomics: lanes vote for their places. Pair ranking: the cut's bin goes"
        " by exact digits."
    ),
    "distributed": (
        "k as given, float32, NCCL over NVLink. Ours on one GPU alone has the whole rows already."
    ),
    "scaling": (
        "In brackets the collectives' share: measured on two GPUs, beyond them by the assumptions"
        " recorded with the data. All else is measured. A whole row of 64M on one GPU took far"
        " longer than its bytes explain."
    ),
    READY_SUITE: (
        "Candidates: the native kernel with one block a row and with clusters of 2, 4, 8 and 16,"
        " and the TileLang kernel. Ratios of the default policy's choice to the best; k = 512, 1024"
        " and 2048."
    ),
    SCORED_SUITE: (
        "Bold: where the default policy takes what is more than 5 % slower. The run ended before"
        " the last three problems of 16 heads: eight queries of four sequences of 128K keys and"
        " more."
    ),
    HOST_SUITE: (
        "A TileLang JIT kernel's call takes part where TileLang can be imported, as on another host"
        " of the same kind"
        " ([host_overhead_tilelang.json](bench/results/host_overhead_tilelang.json)). That host is"
        " slower, above all at a no-op in Python, and missed five of the nine limits."
    ),
    PHASES_SUITE: "Of the block that takes longest; the rest is launch and drain.",
    FUSED_SUITE: (
        "*Separate* is a kernel that scores and `dsmem`, launched during it; *without overlap* the"
        " same launched after it; *scoring alone* all but the selection. Floor: the keys' bytes at"
        " the speed of a copy, or the products at the tensor cores' nominal one. Scoring alone is"
        " that plus some 4 us: a launch, then lengths, page numbers and keys out of memory, each"
        " after the other, and the last tile. No selection can end less than its own latency after"
        " the last score: where a target leaves less than that, it is missed. The fused kernel"
        " hides the selection's first pass and loses more at the end, where one block gathers and"
        " ranks what all others let through; where no floor can be guessed from a row's first keys"
        " (many sequences, or k a large share of the row) that block reads the whole row again."
    ),
}


def results_files() -> list[Path]:
    """Those that README shows, in its order; other files may lie beside them."""
    paths = [RESULTS / f"{name}.json" for name in _SECTIONS]
    return [path for path in paths if path.exists()]


def documents() -> dict[str, Document]:
    """The recorded results of the suites shown, by suite."""
    return {path.stem: load(path) for path in results_files()}


def section() -> str:
    """Everything between the markers."""
    parts = []
    for name, document in documents().items():
        title, figures = _SECTIONS[name]
        parts.append(f"### {title}")
        parts += [f"![{title}](bench/figures/{figure}.svg)" for figure in figures]
        table = markdown(_TABLES.get(name, table_of)(document))
        if name in _FOLDED:
            table = f"<details><summary>All cells</summary>\n\n{table}\n\n</details>"
        parts += [_NOTES[name]] if name in _NOTES else []
        parts.append(table)
        parts.append(
            f"[bench/results/{name}.json](bench/results/{name}.json): `{document.command}`,"
            f" {source_line(document)}."
        )
    return "\n\n".join(parts)


def readme_with(text: str) -> str:
    """README's text with the parts between markers made anew. Raises ValueError without them."""
    text = _replaced(text, BEGIN, END, section())
    return _replaced(text, reliability.BEGIN, reliability.END, reliability.reliability_section())


def _replaced(text: str, begin: str, end: str, made: str) -> str:
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"README.md lacks the markers {begin} and {end}")
    return f"{before}{begin}\n{made}{chr(10) if made else ''}{end}{after}"
