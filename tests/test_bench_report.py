"""What is made of results: tables, figures, README, bench/FIGURES.md."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path

import pytest
import torch

# Where pytest was not started as a module, or there is no checkout, bench is not importable.
pytest.importorskip("bench", reason="run as python -m pytest in a checkout")

from bench import marked, readme, recorded, suites, tile_report, variants
from bench.cases import Case
from bench.contenders import TorchTopK
from bench.phases import phases_of
from bench.published import PUBLISHED, best_peer, founding, read_floor
from bench.results import (
    EXACT,
    FUSED_SUITE,
    HOST_SUITE,
    PHASES_SUITE,
    READY_SUITE,
    SCORED_SUITE,
    Document,
    Measurement,
    Phases,
    Scoring,
    load,
    sha256,
)
from bench.tables import console_table, table_of
from bench_contests import ready_document, scored_document
from bench_documents import distributed_documents
from bench_kit import SMALL, Careless, document, ours, run_small

# Published figures, tables, figures


def test_published_figures_stay_in_columns_of_their_own() -> None:
    assert best_peer(1, 65536, 2048) == ("SGLang 0.5.23 topk_v2", 8.2)
    assert best_peer(1, 262144, 2048) == ("SGLang 0.5.23 topk_v2", 11.0)
    assert best_peer(1, 65536, 64) is None
    assert read_floor()[1 << 20] == 2.7
    case = Case(1, 65536)
    seed = document("seed", run_small(case, contenders=[ours(), TorchTopK()]).results)
    table = table_of(seed)
    assert table.header[1:4] == ["tl_topk cpu, us", "torch.topk, us", "torch.topk / ours"]
    assert all(name.startswith("published (GB300): ") for name in table.header[4:])
    assert table.rows == [["1 x 64K", "10.00", "10.00", "1.0", "18.2", "37.4", "87.9"]]
    assert set(founding()["SGLang fast_topk_v2"]) < set(suites.SEED_LENGTHS)


def test_target_cells_show_targets_and_best_peers() -> None:
    cells = [Case(1, 65536), Case(64, 16384)]
    results = run_small(*cells, contenders=[ours(), TorchTopK()]).results
    table = table_of(document("short", results))
    assert table.header[-3:] == ["target, us", "best peer, measured earlier, us", "which"]
    assert table.rows[0][-3:] == ["**4.5**", "**8.2**", "SGLang 0.5.23 topk_v2"]  # 10 us take more
    assert table.rows[1][-3:-1] == ["**6**", "11"]
    results[0]["us"] = 4.5
    assert table_of(document("short", results)).rows[0][-3:-1] == ["4.5", "8.2"]
    console_table(document("short", []))


def test_hostile_table_has_shapes_across_and_limits_below() -> None:
    cases = [Case(1, 16384), Case(1, 16384, entropy=9), Case(1, 65536)]
    results = run_small(*cases, contenders=[ours()]).results
    results[1]["us"] = 11.0
    table = table_of(document("hostile", results))
    assert table.header == ["distribution", "1 x 16K", "1 x 64K"]
    assert table.rows == [
        ["normal", "10.00", "10.00"],
        ["normal, leading 9 bits", "**11.00**", "-"],
        ["*target, normal*", "*3.6*", "*4.5*"],
        ["*at most*", "*10.8*", "*13.5*"],
    ]


def test_options_are_compared_with_the_plain_call() -> None:
    cases = [Case(1, 4096), Case(1, 4096, values=True)]
    table = table_of(document("options", run_small(*cases, contenders=[ours()]).results))
    assert table.header[-1] == "ours / plain ours"
    assert [row[-1] for row in table.rows] == ["1.00", "1.00"]


def ablation_document() -> Document:
    def measured(case: Case, contender: str, us: float, shared: int) -> dict[str, object]:
        return Measurement(case, contender, us, 0.1, 1, 1, EXACT, "", shared).as_dict()

    return document(
        "ablation",
        [
            measured(Case(1, 4096), "tl_topk dsmem", 4, 60 << 10),
            measured(Case(1, 4096), "torch.topk", 40, 0),
            measured(Case(1, 4096), "without votes", 5, 60 << 10),
            measured(Case(1, 65536), "tl_topk dsmem", 6, 90 << 10),
            measured(Case(1, 65536), "without votes", 6.5, 90 << 10),
        ],
    )


def test_ablations_stand_below_the_whole_kernel_with_their_shared_memory() -> None:
    table = table_of(ablation_document())
    assert table.header == ["", "1 x 4K, us", "1 x 64K, us", "shared memory a block, KB"]
    assert table.rows == [
        ["tl_topk dsmem", "4.00", "6.00", "60 to 90"],
        ["without votes", "5.00", "6.50", "60 to 90"],
    ]


class FakeVariant:
    """A build of the kernels, as FFI functions."""

    def config(self, rows: int, width: int, k: int, max_cluster: int) -> list[int]:
        return [rows * max_cluster, width * 4, 0]

    def topk(
        self,
        scores: torch.Tensor,
        indices: torch.Tensor,
        workspace: torch.Tensor | None,
        max_cluster: int,
    ) -> None:
        assert workspace is None
        assert max_cluster in (1, 16)
        indices.copy_(scores.topk(indices.shape[1]).indices)


def test_a_build_without_a_part_is_checked_like_every_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("plain", "bench", "phases", "without_warp_votes"):
        (tmp_path / f"libtl_topk_{name}.so").touch()
    monkeypatch.setattr(variants, "BUILD", tmp_path)
    monkeypatch.setattr(variants, "load_variant", lambda path: FakeVariant())
    found = variants.ablations()
    results = run_small(SMALL, replace(SMALL, values=True), contenders=found).measurements()
    assert [(m.contender, m.answer, m.shared_bytes) for m in results] == [
        ("without clusters", EXACT, 12000),
        ("without warp votes", EXACT, 12000),
        ("without clusters", "refused: plain float32 rows alone", None),
        ("without warp votes", "refused: plain float32 rows alone", None),
    ]
    assert variants.Variant("x", FakeVariant()).blocks(SMALL) == 48


def test_a_variant_that_is_not_built_says_how(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="configure with -DTL_TOPK_BENCH=ON"):
        variants.load_variant(tmp_path / "libtl_topk_phases.so")


def test_phases_are_those_of_the_block_that_takes_longest() -> None:
    names = ["start", "read", "select"]
    quick, slow = [0, 1000, 2000], [0, 2000, 5000]
    clocks = torch.tensor([[quick, slow], [slow, quick], [quick, slow]])
    assert phases_of(names, clocks, 1000.0) == {"read": 2.0, "select": 3.0}
    clocks[1, 0, 1] = 6000  # what another block left there
    with pytest.raises(ValueError, match="only the usual path"):
        phases_of(names, clocks, 1000.0)
    with pytest.raises(ValueError, match="only the usual path"):
        phases_of(names, torch.zeros_like(clocks), 1000.0)


def scoring(way: str, keys: int, us: float, answer: str = EXACT) -> dict[str, object]:
    known = (2.012, 8.0) if keys == 65536 else (None, None)
    return asdict(Scoring(way, 1, keys, 64, 2048, us, 0.1, answer, 1, *known))


def fused_document() -> Document:
    return document(
        FUSED_SUITE,
        [
            scoring("separate", 16384, 8),
            scoring("fused", 16384, 10),
            scoring("separate", 65536, 15),
            scoring("fused", 65536, 12),
            scoring("as dispatched", 65536, 13),
            scoring("without overlap", 65536, 16),
            scoring("scoring alone", 65536, 7),
            scoring("separate", 131072, 20, "wrong: not the best k in 1 of 1 rows"),
            scoring("fused", 131072, 14),
        ],
    )


def test_ways_to_a_selection_stand_side_by_side() -> None:
    table = table_of(fused_document())
    assert table.header == [
        "problem",
        "separate, us",
        "fused, us",
        "as dispatched, us",
        "without overlap, us",
        "scoring alone, us",
        "separate / fused",
        "selection hidden",
        "floor, us",
        "target, us",
    ]
    assert [[cell.replace(" wrong", "_wrong") for cell in row] for row in table.rows] == [
        [f"1 x {keys} keys, 64 heads, k=2048", *cells.split()]
        for keys, cells in {
            "16K": "8.00 10.00 - - - 0.80 - - -",
            "64K": "15.00 12.00 **13.00** 16.00 7.00 1.25 33% 2.0 8.0",
            "128K": "20.00_wrong 14.00 - - - - - - -",
        }.items()
    ]


def test_where_gains_cross_one() -> None:
    figures = pytest.importorskip("bench.figures_inside", reason="matplotlib is not installed")
    assert figures.crossings({16384: 0.5, 65536: 1.5}) == [32768]
    assert figures.crossings({65536: 0.5, 16384: 1.5, 262144: 2.5}) == [32768, 2**16.5]
    assert figures.crossings({16384: 1.5}) == []


def all_documents() -> dict[str, Document]:
    cells = [Case(rows, width) for rows in (1, 4) for width in (16384, 65536)]
    grid = run_small(*cells, contenders=[ours(), TorchTopK(), Careless()])
    calls = [
        {"call": name, "median_ns": 900, "p99_ns": 2000, "calls": 100}
        for name in ("plan.run(scores, indices)", "torch.Tensor.add_")
    ]
    calls += [
        {"promise": f"plan.run over {name}", "over_ns": ns, "noise_ns": 2, "allowed_ns": 300}
        for name, ns in (("less", 221), ("more", 301))
    ]
    launch = Phases(Case(1, 65536), {"read": 1.2, "filter": 0.8, "select": 1.5}, 5.0)
    return {
        "grid": document("grid", grid.results),
        FUSED_SUITE: fused_document(),
        HOST_SUITE: document(HOST_SUITE, calls),
        PHASES_SUITE: document(PHASES_SUITE, [launch.as_dict()]),
        **distributed_documents(),
        READY_SUITE: ready_document(),
        SCORED_SUITE: scored_document(),
    }


def test_host_overheads_and_promises_as_a_table() -> None:
    table = table_of(all_documents()[HOST_SUITE])
    assert table.rows == [
        ["`plan.run(scores, indices)`", "900", "2000"],
        ["`torch.Tensor.add_`", "900", "2000"],
        ["plan.run over less, at most +300", "+221 ± 2", ""],
        ["plan.run over more, at most +300", "**+301 ± 2**", ""],
    ]


def test_phases_as_a_table() -> None:
    table = table_of(all_documents()[PHASES_SUITE])
    assert table.header == ["case", "read, us", "filter, us", "select, us", "whole launch, us"]
    assert table.rows == [["1 x 64K, k=2048", "1.20", "0.80", "1.50", "5.00"]]


def test_figures_are_drawn_without_a_display(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    figures = pytest.importorskip("bench.figures", reason="matplotlib is not installed")
    documents = all_documents()
    written = figures.draw(documents, tmp_path)
    assert {path.stem for path in written} == set(figures.FIGURES)
    assert {path.suffix for path in written} == {".png", ".svg"}
    assert all(path.stat().st_size > 1000 for path in written)
    again = tmp_path / "again"
    for path in figures.draw(documents, again):
        if path.suffix == ".svg":  # the same from the same results
            assert path.read_bytes() == (tmp_path / path.name).read_bytes()
    assert figures.draw({}, tmp_path / "none") == []
    empty = {name: document(name, []) for name in documents}
    assert figures.draw(empty, tmp_path / "none") == []


def test_wrong_answers_are_in_no_figure(tmp_path: Path) -> None:
    figures = pytest.importorskip("bench.figures", reason="matplotlib is not installed")
    wrong = run_small(Case(1, 16384), contenders=[Careless()])
    assert figures.speedup({"grid": wrong}) is None
    (fused,) = [r for r in fused_document().results if r["keys"] == 131072 and r["way"] == "fused"]
    fused["answer"] = "wrong: not the best k in 1 of 1 rows"
    assert figures.FIGURES["crossover"]({FUSED_SUITE: document(FUSED_SUITE, [fused])}) is None


def between(part: str, old: str = "") -> str:
    begin, end = marked.marks(part)
    return f"{begin}\n{old}{end}\n"


def test_readme_sections_are_replaced_and_only_they() -> None:
    text = f"{between('reliability')}before\n{between('speed', 'what was there')}after\n"
    made = readme.readme_with(text)
    (begin, _), (_, end) = marked.marks("speed"), marked.marks("reliability")
    assert made.startswith(f"{marked.marks('reliability')[0]}\n")
    assert f"{end}\nbefore\n{begin}\n" in made
    assert made.endswith(f"{marked.marks('speed')[1]}\nafter\n")
    assert "what was there" not in made
    assert readme.readme_with(made) == made
    with pytest.raises(ValueError, match=r"^README.md lacks the markers"):
        readme.readme_with("nothing")


def keep(folder: Path, name: str, suite: str, commit: str, date: str) -> None:
    results = run_small(Case(1, 16384), contenders=[ours(), TorchTopK()]).results
    made = replace(document(suite, results), commit=commit, date=date)
    made.save(folder / f"{name}.json")


def test_sections_of_the_figures_document_are_replaced_and_only_they(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "RESULTS", tmp_path)
    for suite in ("short", "grid", "seed"):
        keep(tmp_path, suite, suite, "abc", "2026-11-30T01:00:00+00:00")
    text = f"{between('contents')}\n## First: one\n{between('records')}{between('benchmarks')}end\n"
    made = recorded.document_with(text)
    assert recorded.document_with(made) == made
    assert made.endswith(f"{marked.marks('benchmarks')[1]}\nend\n")
    assert made.startswith(
        f"{marked.marks('contents')[0]}\n"
        "- [First](#first-one)\n"
        "- [The founding table](#the-founding-table-one-row-k--2048-microseconds)\n"
    )
    assert "One call" not in made  # README has it
    seed, grid = made.split("## Over rows, lengths")
    assert "*published* were measured by others" in seed
    assert "<details>" not in seed
    assert "<details><summary>All cells</summary>\n\n| case |" in grid
    assert "](figures/latency.svg)" in grid
    assert "[results/grid.json](results/grid.json): `" in grid
    with pytest.raises(ValueError, match=r"^FIGURES.md lacks the markers .*contents"):
        recorded.document_with(text.replace("contents", "else"))


def test_readme_shows_one_call_and_of_which_commit_its_figure_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "RESULTS", tmp_path)
    assert readme.speed_section() == ""
    keep(tmp_path, "short", "short", "abc", "2026-11-30T01:00:00+00:00")
    alone = readme.speed_section()
    assert alone.startswith("### One call, microseconds")
    assert "](bench/figures/latency.svg)" in alone
    assert "[bench/results/short.json](bench/results/short.json): `" in alone
    keep(tmp_path, "grid", "grid", "abc", "2026-11-30T01:00:00+00:00")
    assert readme.speed_section() == alone
    keep(tmp_path, "grid", "grid", "def", "2026-11-30T01:00:00+00:00")
    of_grid = " The figure is drawn from the grid, of commit def, with its times."
    assert readme.speed_section() == alone + of_grid


def test_records_by_commit(tmp_path: Path) -> None:
    keep(tmp_path, "short", "short", "new", "2026-12-01T02:00:00+00:00")
    keep(tmp_path, "grid", "grid", "new", "2026-11-30T01:00:00+00:00")
    keep(tmp_path, "short_old", "short", "old", "2026-11-30T02:00:00+00:00")
    keep(tmp_path, "check_cpu", "check", "new", "2026-12-02T01:00:00+00:00")  # README has it
    table = recorded.records_table(tmp_path)
    assert table.header == ["records", "commit", "date"]
    assert table.rows == [
        [
            "[grid](results/grid.json), [short](results/short.json)",
            "new",
            "2026-11-30 to 2026-12-01",
        ],
        ["[short_old](results/short_old.json)", "old", "2026-11-30"],
    ]


def test_documents_are_up_to_date_with_the_recorded_results() -> None:
    text = readme.README.read_text()
    assert readme.readme_with(text) == text, "run make report"
    text = recorded.DOCUMENT.read_text()
    assert recorded.document_with(text) == text, "run make report"
    for path in recorded.results_files():
        assert f"[{path.stem}](results/{path.name})" in text


def test_figures_are_up_to_date_with_the_recorded_results() -> None:
    drawn_from = json.loads(recorded.MANIFEST.read_text()) if recorded.MANIFEST.exists() else {}
    inputs = [*recorded.results_files(), PUBLISHED] if recorded.results_files() else []
    assert drawn_from == {path.name: sha256(path) for path in inputs}, "run make report"
    for path in (readme.README, recorded.DOCUMENT):
        for shown in re.findall(r"\(([^)]*figures/[^)]*\.svg)\)", path.read_text()):
            assert (path.parent / shown).exists(), "run make report"
            assert (path.parent / shown).with_suffix(".png").exists(), "run make report"


def test_every_figure_is_shown() -> None:
    figures = pytest.importorskip("bench.figures", reason="matplotlib is not installed")
    text = readme.README.read_text() + recorded.DOCUMENT.read_text()
    assert set(re.findall(r"figures/(\w+)\.svg\)", text)) == set(figures.FIGURES)


@pytest.mark.parametrize(
    "path", [readme.README, recorded.DOCUMENT, tile_report.DOCUMENT], ids=lambda path: path.name
)
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text()
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    for label, link in re.findall(r"^\[(.+)\]: (\S+)$", text, re.MULTILINE):
        assert text.count(f"[{label}]") > 1, label
        links.append(link)
    assert links
    for link in links:
        name, _, place = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), link
        if place:
            headings = re.findall("^#+ (.+)$", target.read_text(), re.MULTILINE)
            assert place in map(marked.anchor, headings), link


def test_results_are_traceable() -> None:
    for path in recorded.results_files():
        result = load(path)
        assert result.command.startswith("python -m bench"), path
        assert re.fullmatch(r"[0-9a-f]{7,40}", result.commit), path
        named = {"cpu", "cores", "python", "torch", "tl_topk"}
        if "gpu" in result.machine:
            named |= {"driver", "cuda", "copy_tb_per_s"}
        assert named <= {name for name, fact in result.machine.items() if fact}, path
        datetime.fromisoformat(result.date)
