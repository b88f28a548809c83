"""The part of README that is made from results: what ``make report`` writes and a test compares."""

from __future__ import annotations

from pathlib import Path

from bench import scaling
from bench.distributed_tables import distributed_table
from bench.results import HOST_SUITE, RESULTS, Document, load
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
    "grid": ("Over rows and lengths: in the figures above", ()),
    "hostile": ("Distributions that break selections, microseconds", ()),
    "options": ("Options, microseconds", ()),
    HOST_SUITE: ("What a call costs the CPU", ("host",)),
    "phases": ("Where a launch spends its time", ("phases",)),
    "distributed": ("Rows divided over two GPUs, microseconds a call", ("distributed",)),
    "scaling": (
        "Rows divided over 1 to 64 GPUs, projected (in brackets the collectives' share)",
        ("scaling",),
    ),
    "cpu": ("The CPU backend: k = 2048 of 1M float32, two threads, microseconds", ()),
}
_WITHOUT_TABLE = ("grid", "phases")
_TABLES = {"distributed": distributed_table, "scaling": scaling.table}


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
        if name not in _WITHOUT_TABLE:
            parts.append(markdown(_TABLES.get(name, table_of)(document)))
        parts.append(
            f"[bench/results/{name}.json](bench/results/{name}.json): `{document.command}`,"
            f" {source_line(document)}."
        )
    return "\n\n".join(parts)


def readme_with(text: str) -> str:
    """README's text with the part between the markers made anew. Raises ValueError without them."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md lacks the markers {BEGIN} and {END}")
    made = section()
    return f"{before}{BEGIN}\n{made}{chr(10) if made else ''}{END}{after}"
