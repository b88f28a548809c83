"""bench/FIGURES.md, made from results: what ``make report`` writes and a test compares."""

from __future__ import annotations

import re
from pathlib import Path

from bench import reliability, scaling
from bench.distributed_tables import distributed_table
from bench.marked import anchor, replaced
from bench.regret_tables import ready_table, scored_table
from bench.results import (
    ENGINES_SUITE,
    FLOORS_SUITE,
    FUSED_SUITE,
    HINT_SUITE,
    HOST_SUITE,
    PHASES_SUITE,
    READY_SUITE,
    RESULTS,
    SCORED_SUITE,
    Document,
    load,
)
from bench.tables import Table, markdown, source, table_of

__all__ = [
    "DOCUMENT", "FIGURES_DIRECTORY", "MANIFEST",
    "document_with", "documents", "records_table", "results_files", "section",
]  # fmt: skip

DOCUMENT = RESULTS.parent / "FIGURES.md"
FIGURES_DIRECTORY = RESULTS.parent / "figures"
#: Which inputs, by hash, the figures were drawn from.
MANIFEST = FIGURES_DIRECTORY / "manifest.json"

#: By suite: what its table shows, and the figures beside it. That beside the short suite shows the
#: grid, where it has been measured.
_SECTIONS = {
    "short": ("One call, microseconds: k = 2048, normal float32", ("latency",)),
    "seed": ("The founding table: one row, k = 2048, microseconds", ()),
    "grid": ("Over rows, lengths and k: two figures, and every cell", ("latency", "speedup")),
    "hostile": ("Distributions that break selections, microseconds", ()),
    "options": ("Options, microseconds", ()),
    ENGINES_SUITE: ("What engines call: mapped indices, and a whole decoding step", ()),
    HINT_SUITE: ("What a hint could gain, microseconds", ()),
    HOST_SUITE: ("What a call costs the CPU", ("host",)),
    PHASES_SUITE: ("Where a launch spends its time", ("phases",)),
    FLOORS_SUITE: ("What stands in the way: the same launch doing less, k = 2048", ()),
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
_IN_README = ("short",)
_FOLDED = ("grid", SCORED_SUITE)  # tables too long to stand open

_TABLES = {
    "distributed": distributed_table,
    "scaling": scaling.table,
    READY_SUITE: ready_table,
    SCORED_SUITE: scored_table,
}

_HELD_AGAINST = "Bold: a target that is missed, or a peer that is faster."
_NOTES = {
    "short": _HELD_AGAINST,
    "grid": _HELD_AGAINST,
    "seed": "Columns named *published* were measured by others, on a GB300.",
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
        " recorded with the data. All else is measured. In a whole row of 64M on one GPU counts of"
        " 16 bits overflow, and exact digits take over."
    ),
    READY_SUITE: (
        "Candidates: the native kernel with one block a row and with clusters of 2, 4, 8 and 16,"
        " and the TileLang kernel. Ratios of the default policy's choice to the best; k = 512, 1024"
        " and 2048. How many blocks share a row is a rule of the native library, which the policy"
        " does not overrule: at 32 x 1M, below, its estimates name the better launch."
    ),
    SCORED_SUITE: (
        "Bold: where the default policy takes what is more than 5 % slower. The run ended before"
        " the last three problems of 16 heads: eight queries of four sequences of 128K keys and"
        " more."
    ),
    HOST_SUITE: (
        "A TileLang JIT kernel's call takes part where TileLang can be imported, as on another host"
        " of the same kind"
        " ([host_overhead_tilelang.json](results/host_overhead_tilelang.json)). That host is"
        " slower, above all at a no-op in Python."
    ),
    PHASES_SUITE: "Of the block that takes longest; the rest is launch and drain.",
    FLOORS_SUITE: (
        "In a process that has used several streams every kernel of a graph begins about a third of"
        " a microsecond later. All other figures here are of that state, as engines have several;"
        " the floors by which the targets were set (an empty kernel: 0.51 us) are of the other."
        " Bold: a target that is missed."
        " *Read and written*: the row once, and k indices. *Blocks met once*: the same, where each"
        " block of the cluster tells the next what it has read before it writes."
    ),
    FUSED_SUITE: (
        "Bold: a target that the way dispatched misses."
        " *Separate* is a kernel that scores and `dsmem`, launched during it; *without overlap* the"
        " same launched after it; *scoring alone* all but the selection. Floor: the keys' bytes at"
        " the speed of a copy, or the products at the tensor cores' nominal one. Of one sequence"
        " scoring alone is that plus some 4 us: a launch, then lengths with the first page numbers"
        " out of memory, then the first keys, the last tile, and the kernel's end; its phases, the"
        " medians of its blocks, are in the JSON file. No selection can end less than its"
        " own latency after the last score: where a target leaves less than that, it is missed."
        " The fused kernel hides the selection's first pass and loses more at the end, where one"
        " block gathers and ranks what all others let through; where no floor can be guessed from"
        " a row's first keys (many sequences, or k a large share of the row) that block reads the"
        " whole row again."
    ),
}


def results_files() -> list[Path]:
    """Those that are shown, in their order; other files may lie beside them."""
    paths = [RESULTS / f"{name}.json" for name in _SECTIONS]
    return [path for path in paths if path.exists()]


def documents() -> dict[str, Document]:
    """The recorded results of the suites shown, by suite."""
    return {path.stem: load(path) for path in results_files()}


def section(name: str, document: Document, *, level: int = 2, folder: str = "") -> str:
    """A suite's heading, figures and table.

    Args:
        name: of the suite.
        document: what was recorded.
        level: of the heading.
        folder: where bench/ lies for who reads it, with a slash.
    """
    title, figures = _SECTIONS[name]
    table = markdown(_TABLES.get(name, table_of)(document))
    if name in _FOLDED:
        table = f"<details><summary>All cells</summary>\n\n{table}\n\n</details>"
    return "\n\n".join(
        [
            f"{'#' * level} {title}",
            *(f"![{title}]({folder}figures/{figure}.svg)" for figure in figures),
            *([_NOTES[name]] if name in _NOTES else []),
            table,
            source(name, document, f"{folder}results/"),
        ]
    )


def records_table(folder: Path) -> Table:
    """Which records of speed are of which commit, the latest commit first."""
    by_commit: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(folder.glob("*.json")):
        if path.stem not in reliability.FILES:
            document = load(path)
            by_commit.setdefault(document.commit, []).append((document.date, path.stem))
    rows = []
    for commit, records in sorted(by_commit.items(), key=lambda item: max(item[1]), reverse=True):
        links = ", ".join(f"[{name}](results/{name}.json)" for _, name in records)
        days = dict.fromkeys(date[:10] for date, _ in (min(records), max(records)))
        rows.append([links, commit, " to ".join(days)])
    return Table(["records", "commit", "date"], rows)


def document_with(text: str) -> str:
    """The document with its parts between markers made anew. Raises ValueError without them."""
    shown = [section(name, each) for name, each in documents().items() if name not in _IN_README]
    records = markdown(records_table(RESULTS), numbers=False)
    for part, made in (("records", records), ("benchmarks", "\n\n".join(shown))):
        text = replaced(text, part, made, DOCUMENT.name)
    headings = re.findall("^## (.+)$", text, re.MULTILINE)
    contents = "\n".join(f"- [{h.partition(':')[0]}](#{anchor(h)})" for h in headings)
    return replaced(text, "contents", contents, DOCUMENT.name)
