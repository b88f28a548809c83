"""The benchmarks themselves, without a GPU: inputs, verdicts, runs, comparison, report."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

# Where pytest was not started as a module, or there is no checkout, bench is not importable.
pytest.importorskip("bench", reason="run as python -m pytest in a checkout")

from bench import readme, runner, suites, timing
from bench.__main__ import main
from bench.cases import Case, as_dict, from_dict
from bench.compare import compare
from bench.contenders import Contender, Ours, TorchTopK
from bench.distributions import DISTRIBUTIONS
from bench.exact import Answer, judge
from bench.inputs import Inputs, make_inputs
from bench.peers import find_peers
from bench.published import PUBLISHED, best_peer, founding, read_floor
from bench.results import EXACT, HOST_SUITE, TIES, Document, Measurement, is_right, load, sha256
from bench.tables import console_table, markdown, table_of
from bench.timing import Launch, Timing, WallTimer
from bench_documents import distributed_documents

SMALL = Case(3, 3000, 100)


class FakeTimer:
    """Calls everything once and claims what it was told."""

    def __init__(self, us: float = 10.0) -> None:
        self.us = us

    def time(self, launches: Sequence[Launch]) -> tuple[Timing, list[Answer]]:
        return Timing(self.us, 0.1, len(launches), 1), [launch() for launch in launches]


class Careless(Contender):
    """Forgets the best element, as some kernels do."""

    name = "careless"

    def prepare(self, inputs: Inputs) -> list[Launch]:
        k = inputs.case.k
        return [lambda s=s: Answer(s.topk(k + 1).indices[:, 1:]) for s in inputs.scores]


class Broken(Contender):
    name = "broken"

    def prepare(self, inputs: Inputs) -> list[Launch]:
        raise RuntimeError("no kernel image\nfor this device")


def small_suite(*cases: Case) -> suites.Suite:
    return suites.Suite("small", "for tests", "cpu", cases, ())


def run_small(*cases: Case, contenders: Sequence[Contender], us: float = 10.0) -> Document:
    results = runner.measure(small_suite(*cases), contenders, FakeTimer(us), lambda text: None)
    return document("short", [measurement.as_dict() for measurement in results])


def document(suite: str, results: list[dict[str, object]]) -> Document:
    machine = {"cpu": "a CPU", "cores": 2, "torch": "2"}
    return Document(suite, "python -m bench", "abc", "2026-01-01", machine, {}, True, results)


def ours() -> Ours:
    return Ours("cpu", "cpu", 1)


# Cases and inputs


def test_case_names_what_is_not_plain() -> None:
    assert str(Case(1, 65536)) == "1 x 64K, k=2048"
    case = Case(4, 120000, 512, "bfloat16", "offset", 16, "mixed", True, "value", True)
    words = "offset, entropy=16, lengths=mixed, row_starts, order=value, values"
    assert str(case) == f"4 x 120000, k=512, bfloat16, {words}"


@pytest.mark.parametrize("suite", suites.SUITES.values(), ids=lambda suite: suite.name)
def test_cases_of_a_suite_are_distinct_and_survive_json(suite: suites.Suite) -> None:
    assert len(set(suite.cases)) == len(suite.cases)
    assert len(set(map(str, suite.cases))) == len(suite.cases)
    for case in suite.cases:
        assert from_dict(json.loads(json.dumps(as_dict(case)))) == case
        assert case.distribution in DISTRIBUTIONS


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions_are_finite_repeatable_and_selected_from_exactly(name: str) -> None:
    case = replace(SMALL, distribution=name)
    inputs = make_inputs(case, "cpu")
    assert inputs.scores.shape == (inputs.slots, case.rows, case.width)
    assert inputs.scores.dtype == torch.float32
    assert inputs.scores.isfinite().all()
    assert torch.equal(inputs.scores, make_inputs(case, "cpu").scores)
    (measured,) = run_small(case, contenders=[ours()]).measurements()
    assert measured.answer == EXACT


def test_consecutive_steps_overlap_as_asked() -> None:
    scores = make_inputs(Case(1, 65536, distribution="steps 44 %"), "cpu").scores[:, 0]
    before, after = (set(step.topk(2048).indices.tolist()) for step in scores)
    assert len(before & after) / 2048 == pytest.approx(0.44, abs=0.03)


def test_entropy_leaves_fewer_values() -> None:
    values = make_inputs(replace(SMALL, entropy=10), "cpu").scores.unique()
    assert len(values) < 100


def test_inputs_are_shared_between_ks_but_not_between_shapes() -> None:
    scores = make_inputs(SMALL, "cpu").scores
    assert torch.equal(scores, make_inputs(replace(SMALL, k=7, order="index"), "cpu").scores)
    assert not torch.equal(scores, make_inputs(replace(SMALL, width=3001), "cpu").scores[..., :-1])


@pytest.mark.parametrize("rows", [1, 2, 7, 16])
def test_mixed_lengths_are_spread_over_the_width(rows: int) -> None:
    lengths = make_inputs(Case(rows, 1000, 10, lengths="mixed"), "cpu").row_lengths()
    assert sorted(lengths.tolist()) == [i * 1000 // max(rows - 1, 1) for i in range(rows)]


# Verdicts


@pytest.mark.parametrize(
    "case",
    [
        SMALL,
        replace(SMALL, dtype="float16", values=True),
        replace(SMALL, dtype="bfloat16", order="value", values=True),
        replace(SMALL, order="index", lengths="mixed", values=True),
        replace(SMALL, lengths=50),
        replace(SMALL, row_starts=True, lengths=2990, order="value"),
        replace(SMALL, row_starts=True),
        replace(SMALL, lengths="causal", k=1),
        replace(SMALL, k=5000),
        Case(1, 40, 40, distribution="two values", order="value"),
    ],
    ids=str,
)
def test_our_answers_are_exact(case: Case) -> None:
    (measured,) = run_small(case, contenders=[ours()]).measurements()
    assert (measured.answer, measured.us) == (EXACT, 10.0)
    assert "native code" in measured.detail


def right_answers(case: Case) -> tuple[Inputs, list[Answer]]:
    inputs = make_inputs(case, "cpu")
    return inputs, [launch() for launch in ours().prepare(inputs)]


def test_another_choice_among_ties_is_right_and_said() -> None:
    inputs = make_inputs(replace(SMALL, distribution="all equal"), "cpu")
    last = torch.arange(SMALL.width - SMALL.k, SMALL.width).repeat(SMALL.rows, 1)
    verdict = judge(inputs, [Answer(last)] * inputs.slots)
    assert verdict == TIES
    assert is_right(verdict)


@pytest.mark.parametrize("slot", [0, 1])
def test_wrong_answers_are_found_in_every_slot(slot: int) -> None:
    case = replace(SMALL, order="index", values=True, lengths=2000)
    inputs, answers = right_answers(case)
    assert judge(inputs, answers) == EXACT
    worst = int(inputs.scores[slot, 1, :2000].argmin())

    def verdict(**changes: object) -> str:
        changed = [Answer(a.indices.clone(), a.values) for a in answers]
        row = changed[slot].indices[1]
        for name, value in changes.items():
            row[int(name.removeprefix("at"))] = value
        return judge(inputs, changed)

    assert verdict(at0=-1) == "wrong: an index out of range or bad padding in 1 of 6 rows"
    assert verdict(at0=2000).startswith("wrong: an index out of range")
    assert verdict(at5=int(answers[slot].indices[1, 6])).startswith("wrong: an index twice")
    assert verdict(at0=worst).startswith("wrong: not the best k")
    first, second = answers[slot].indices[1, :2].tolist()
    assert verdict(at0=second, at1=first).startswith("wrong: slots not in order")
    answers[slot].values[2, 3] += 1
    assert judge(inputs, answers) == "wrong: a value that is not the score in 1 of 6 rows"


def test_an_answer_in_the_wrong_order_of_values() -> None:
    inputs, answers = right_answers(replace(SMALL, order="value"))
    flipped = [Answer(answer.indices.flip(1)) for answer in answers]
    assert judge(inputs, flipped) == "wrong: slots not in order in 6 of 6 rows"


# Runs


def test_wrong_broken_and_refusing_contenders_are_marked() -> None:
    case = replace(SMALL, lengths=500)
    results = run_small(SMALL, case, contenders=[Careless(), Broken(), TorchTopK()])
    answers = [(m.contender, m.us, m.answer) for m in results.measurements()]
    assert answers[:3] == [
        ("careless", 10.0, "wrong: not the best k in 6 of 6 rows"),
        ("broken", None, "failed: no kernel image"),
        ("torch.topk", 10.0, EXACT),
    ]
    assert answers[5] == ("torch.topk", None, "refused: no lengths or row starts")
    assert "10.00 wrong" in markdown(table_of(results))


def test_our_own_failure_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ours, "prepare", Broken.prepare)
    with pytest.raises(RuntimeError, match="no kernel image"):
        run_small(SMALL, contenders=[ours()])


def test_every_absent_peer_has_a_name_and_a_reason() -> None:
    peers = find_peers()
    assert len({peer.name for peer in peers}) == len(peers)
    for peer in peers:
        reason = peer.unavailable()
        assert not reason or "\n" not in reason


def test_a_peer_module_takes_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sgl_peers.py").write_text(
        "def peer_sorting(scores, lengths, k):\n"
        "    return scores.sort(descending=True).indices[:, :k].int()\n"
    )
    (tmp_path / "air_topk.py").write_text("def topk(x, k):\n    return x.topk(k)\n")
    monkeypatch.syspath_prepend(tmp_path)
    peers = [peer for peer in find_peers() if peer.name in ("sorting", "RAFT AIR")]
    results = run_small(SMALL, contenders=peers).measurements()
    assert {m.contender: m.answer for m in results} == {"sorting": EXACT, "RAFT AIR": EXACT}


def test_wall_timer_measures_something() -> None:
    measured, answers = WallTimer(0.01).time(ours().prepare(make_inputs(SMALL, "cpu")))
    assert measured.us > 0
    assert len(answers) == measured.launches == 2


def interrupted(*_: object) -> Iterator[Measurement]:
    yield Measurement(SMALL, "tl_topk cpu", 1.0, 0.1, 2, 3, EXACT)
    raise KeyboardInterrupt


def test_an_interrupted_run_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.__main__.measure", interrupted)
    path = tmp_path / "new" / "cpu.json"
    monkeypatch.setenv("BENCH_COMMIT", "abc")
    run = CliRunner().invoke(main, ["run", "cpu", "--output", str(path)])
    assert run.exit_code == 1
    kept = load(path)
    assert not kept.complete
    assert kept.commit == "abc"
    assert [m.us for m in kept.measurements()] == [1.0]
    assert "interrupted" in run.output
    assert [file.name for file in path.parent.iterdir()] == ["cpu.json"]


def test_a_gpu_suite_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    run = CliRunner().invoke(main, ["run", "short"])
    assert run.exit_code == 1
    assert run.output == "Error: suite short needs a GPU, and torch sees none\n"


# Comparison


def compared(tmp_path: Path, old: Document, new: Document) -> tuple[int, str]:
    paths = [tmp_path / "old.json", tmp_path / "new.json"]
    old.save(paths[0])
    new.save(paths[1])
    run = CliRunner().invoke(main, ["compare", *map(str, paths)])
    return run.exit_code, run.output


@pytest.mark.parametrize(
    ("us", "status", "said"),
    [
        (10.0, 0, "0 regressed, 0 improved"),
        (10.45, 0, "0 regressed, 0 improved"),  # 3 % of 10 and twice 0.1
        (10.55, 1, "REGRESSED tl_topk cpu: 3 x 3000, k=100: 10.00 -> 10.55 us"),
        (9.0, 0, "0 regressed, 1 improved"),
    ],
)
def test_compare_takes_noise_into_account(
    tmp_path: Path, us: float, status: int, said: str
) -> None:
    old, new = (run_small(SMALL, contenders=[ours()], us=time) for time in (10.0, us))
    exit_code, output = compared(tmp_path, old, new)
    assert exit_code == status
    assert said in output


def test_a_peer_that_slows_down_is_no_regression_of_ours(tmp_path: Path) -> None:
    old, new = (run_small(SMALL, contenders=[TorchTopK()], us=time) for time in (10.0, 20.0))
    assert compared(tmp_path, old, new)[0] == 0


def test_an_answer_no_longer_right_is_a_regression() -> None:
    old = run_small(SMALL, contenders=[ours()])
    wrong = [result | {"answer": "wrong: not the best k"} for result in old.results]
    (change,) = compare(old, document("short", wrong))
    assert change.regressed


def test_host_overheads_are_compared(tmp_path: Path) -> None:
    def at(ns: float) -> Document:
        result = {"call": "plan.run(x)", "median_ns": ns, "p99_ns": ns, "calls": 9}
        return document(HOST_SUITE, [result])

    assert compared(tmp_path, at(1000), at(1020))[0] == 0
    assert compared(tmp_path, at(1000), at(1100))[0] == 1


def test_compare_refuses_what_it_cannot_compare(tmp_path: Path) -> None:
    old = run_small(SMALL, contenders=[ours()])
    new = run_small(replace(SMALL, k=5), contenders=[ours()])
    status, output = compared(tmp_path, old, new)
    assert status == 2
    assert "no measurement in common" in output
    (tmp_path / "new.json").write_text("{}")
    run = CliRunner().invoke(main, ["compare", *[str(tmp_path / "new.json")] * 2])
    assert run.exit_code == 2
    assert "is no benchmark result" in run.output


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
    table = table_of(run_small(*cells, contenders=[ours(), TorchTopK()]))
    assert table.header[-3:] == ["target, us", "best peer, measured earlier, us", "which"]
    assert table.rows[0][-3:] == ["4.5", "8.2", "SGLang 0.5.23 topk_v2"]
    console_table(document("short", []))


def test_hostile_table_has_shapes_across_and_limits_below() -> None:
    cases = [Case(1, 16384), Case(1, 16384, entropy=9), Case(1, 65536)]
    table = table_of(document("hostile", run_small(*cases, contenders=[ours()]).results))
    assert table.header == ["distribution", "1 x 16K", "1 x 64K"]
    assert table.rows == [
        ["normal", "10.00", "10.00"],
        ["normal, leading 9 bits", "10.00", "-"],
        ["*target, normal*", "*3.6*", "*4.5*"],
        ["*at most*", "*10.8*", "*13.5*"],
    ]


def test_options_are_compared_with_the_plain_call() -> None:
    cases = [Case(1, 4096), Case(1, 4096, values=True)]
    table = table_of(document("options", run_small(*cases, contenders=[ours()]).results))
    assert table.header[-1] == "ours / plain ours"
    assert [row[-1] for row in table.rows] == ["1.00", "1.00"]


def all_documents() -> dict[str, Document]:
    cells = [Case(rows, width) for rows in (1, 4) for width in (16384, 65536)]
    grid = run_small(*cells, contenders=[ours(), TorchTopK(), Careless()])
    calls = [
        {"call": name, "median_ns": 900, "p99_ns": 2000, "calls": 100}
        for name in ("plan.run(scores, indices)", "torch.Tensor.add_")
    ]
    launch = {"case": "1 x 64K", "us": {"read": 1.2, "filter": 0.8, "select": 1.5}}
    return {
        "grid": document("grid", grid.results),
        HOST_SUITE: document(HOST_SUITE, calls),
        "phases": document("phases", [launch]),
        **distributed_documents(),
    }


def test_figures_are_drawn_without_a_display(tmp_path: Path) -> None:
    figures = pytest.importorskip("bench.figures", reason="matplotlib is not installed")
    written = figures.draw(all_documents(), tmp_path)
    assert {path.stem for path in written} == set(figures.FIGURES)
    assert all(path.stat().st_size > 1000 for path in written)
    again = tmp_path / "again"
    for path in figures.draw(all_documents(), again):
        if path.suffix == ".svg":  # the same from the same results
            assert path.read_bytes() == (tmp_path / path.name).read_bytes()
    assert figures.draw({}, tmp_path / "none") == []


def test_readme_section_is_replaced_and_only_that() -> None:
    text = f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter\n"
    made = readme.readme_with(text)
    assert made.startswith(f"before\n{readme.BEGIN}\n")
    assert made.endswith(f"{readme.END}\nafter\n")
    assert "old" not in made
    assert readme.readme_with(made) == made
    with pytest.raises(ValueError, match="lacks the markers"):
        readme.readme_with("nothing")


def test_readme_is_up_to_date_with_the_recorded_results() -> None:
    text = readme.README.read_text()
    assert readme.readme_with(text) == text, "run make report"


def test_figures_are_up_to_date_with_the_recorded_results() -> None:
    drawn_from = json.loads(readme.MANIFEST.read_text()) if readme.MANIFEST.exists() else {}
    recorded = [*readme.results_files(), PUBLISHED] if readme.results_files() else []
    assert drawn_from == {path.name: sha256(path) for path in recorded}, "run make report"


# The GPU's clock, on a pretended GPU whose every call takes 5 us


class PretendedGpu:
    """As much of torch.cuda as GraphTimer uses; time passes only in work()."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 0.0
        self.captured: list[Callable[[], None]] | None = None
        gpu = self

        class Event:
            def record(self) -> None:
                self.at = gpu.now_ms

            def synchronize(self) -> None:
                pass

            def elapsed_time(self, end: Event) -> float:
                return end.at - self.at

        class CUDAGraph:
            calls: list[Callable[[], None]]

            def replay(self) -> None:
                for call in self.calls:
                    call()

        @contextmanager
        def graph(captured: CUDAGraph) -> Iterator[None]:
            captured.calls = gpu.captured = []
            yield
            gpu.captured = None

        monkeypatch.setattr(torch.cuda, "CUDAGraph", CUDAGraph)
        monkeypatch.setattr(torch.cuda, "graph", graph)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        monkeypatch.setattr(timing, "timing_event", Event)
        monkeypatch.setattr(timing.GraphTimer, "_SWEEP_BYTES", 16)
        monkeypatch.setattr(torch, "zeros", lambda *shape, device: torch.ones(*shape))

    def launch(self, slot: int, output: torch.Tensor, us: float) -> Answer:
        def work() -> None:
            self.now_ms += us / 1e3
            output.fill_(slot)

        work() if self.captured is None else self.captured.append(work)
        return Answer(output)


@pytest.mark.parametrize(
    ("slots", "us", "launches"), [(3, 5.0, 9), (64, 5.0, 64), (64, 1000.0, 20), (5, 9000.0, 8)]
)
def test_graphs_are_timed_per_launch_and_their_answers_kept(
    monkeypatch: pytest.MonkeyPatch, slots: int, us: float, launches: int
) -> None:
    gpu = PretendedGpu(monkeypatch)
    outputs = [torch.empty(1, 2, dtype=torch.int32) for _ in range(slots)]
    calls = [partial(gpu.launch, slot, output, us) for slot, output in enumerate(outputs)]
    measured, answers = timing.GraphTimer().time(calls)
    assert measured.us == pytest.approx(us)
    assert measured.noise_us == pytest.approx(0, abs=1e-6)
    assert measured.launches == launches
    assert 5 <= measured.repeats <= 25
    selected = [answer.indices.tolist() for answer in answers]
    assert selected == [[[slot, slot]] for slot in range(min(slots, launches))]
