"""The command line: what it prints, what it writes, and how it says no."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import tl_topk
from spoilt import spoil_calls
from tl_topk import check
from tl_topk.cli import demo as demo_module
from tl_topk.cli import main
from tl_topk.cli import select as select_module
from tl_topk.placement import best_backend

SCORES = np.random.default_rng(0).standard_normal((12, 300)).astype(np.float32)


class Outcome:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def data(self) -> Any:
        assert self.code in (0, 1), self.err
        assert self.out.count("\n") == 1
        return json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def call(*arguments: object) -> Outcome:
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Outcome(int(caught.value.code or 0), out, err)

    return call


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.save(tmp_path / "scores.npy", SCORES)
    return tmp_path / "scores.npy"


def refused(outcome: Outcome, *words: str) -> None:
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("tl-topk: ")
    assert outcome.err.count("\n") == 1
    for word in words:
        assert word in outcome.err


class TestDemo:
    def test_json(self, run: Any) -> None:
        data = run("demo", "--json", "-k", 100).data
        assert data["correct"] is True
        assert data["backend"] == best_backend()
        assert data["reason"]
        assert data["microseconds"]["tl_topk"] > 0
        assert data["microseconds"]["torch.topk"] > 0
        assert len(data["selected"]) == data["rows"]
        for row in data["selected"]:
            assert row["distinct"] == 100
            assert row["best"] >= row["kth"]

    def test_for_people(self, run: Any) -> None:
        outcome = run("demo", "--backend", "cpu", "--scores", "tests/data/scores_64k.npy")
        assert outcome.code == 0
        assert "top 2048 of 2 rows x 65536 float32" in outcome.out
        assert "backend cpu" in outcome.out
        assert "torch.topk" in outcome.out
        assert "Every answer is NumPy's." in outcome.out

    def test_finds_its_scores_anywhere(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The full data beside a checkout, else the checkout's cut, else the package's sample."""
        package = tmp_path / "site-packages" / "tl_topk"
        package.mkdir(parents=True)
        checkout = tmp_path / "checkout"
        (checkout / "tests/data").mkdir(parents=True)
        monkeypatch.setattr(tl_topk, "__file__", str(package / "__init__.py"))
        monkeypatch.chdir(checkout)
        assert demo_module._find_scores() == package / "data/scores_64k.npy"
        cut = checkout / "tests/data/scores_64k.npy"
        cut.touch()
        assert demo_module._find_scores() == cut
        full = tmp_path / "shared/data/scores_128k.npy"
        full.parent.mkdir(parents=True)
        full.touch()
        assert demo_module._find_scores() == full

    def test_the_package_carries_a_sample(self) -> None:
        sample = Path(tl_topk.__file__).parent / "data/scores_64k.npy"
        assert sample.stat().st_size < 1e6
        assert (np.load(sample) == np.load(Path(__file__).parent / "data/scores_64k.npy")).all()

    def test_a_wrong_answer_is_told(self, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        def wrong(*arguments: Any, **options: Any) -> tl_topk.TopK:
            result = tl_topk.topk(*arguments, **options)
            result.indices[0, 3] += 1
            return result

        monkeypatch.setattr(demo_module, "topk", wrong)
        outcome = run("demo", "--scores", "tests/data/scores_64k.npy", "-k", 50)
        assert outcome.code == 1
        assert "NO" in outcome.out
        assert "differs from NumPy's" in outcome.out

    def test_k_beyond_the_width(self, run: Any, file: Path) -> None:
        data = run("demo", "--scores", file, "-k", 1000, "--json").data
        assert data["correct"] is True


def test_info(run: Any) -> None:
    assert run("info", "--json").data == json.loads(json.dumps(tl_topk.info()))
    outcome = run("info")
    assert outcome.code == 0
    for word in (tl_topk.__version__, "dsmem", "available", "compiler"):
        assert word in outcome.out


def test_version_and_help(run: Any) -> None:
    assert tl_topk.__version__ in run("--version").out
    for command in ("demo", "info", "select", "check"):
        assert "--json" in run(command, "--help").out
    outcome = run()
    assert outcome.code == 2
    assert "Commands:" in outcome.err


class TestSelect:
    def expected(self, k: int, **options: Any) -> tl_topk.TopK:
        return tl_topk.topk(SCORES, k, **options)

    def test_writes_what_topk_returns(self, run: Any, file: Path, tmp_path: Path) -> None:
        np.save(tmp_path / "lengths.npy", np.arange(12, dtype=np.int32) * 30)
        np.save(tmp_path / "starts.npy", np.arange(12) - 3)
        out = tmp_path / "out.npz"
        outcome = run(
            *("select", file, "-k", 9, "--order", "index", "--smallest", "-o", out),
            *("--lengths", tmp_path / "lengths.npy", "--row-starts", tmp_path / "starts.npy"),
        )
        assert outcome.code == 0
        assert str(out) in outcome.out
        expected = self.expected(
            9,
            order="index",
            largest=False,
            lengths=np.arange(12, dtype=np.int32) * 30,
            row_starts=np.arange(12) - 3,
        )
        with np.load(out, allow_pickle=False) as found:
            assert sorted(found) == ["indices", "values"]
            assert found["indices"].dtype == np.int32
            assert (found["indices"] == expected.indices).all()
            assert (found["values"] == expected.values).all()

    def test_in_blocks_of_rows(self, run: Any, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(select_module, "_BLOCK_BYTES", 5 * 300 * 4)
        data = run("select", file, "-k", 7, "--order", "value", "--json").data
        expected = self.expected(7, order="value")
        assert data["indices"] == expected.indices.tolist()
        assert data["values"] == expected.values.tolist()

    def test_json(self, run: Any, file: Path, tmp_path: Path) -> None:
        data = run("select", file, "-k", 2, "--json", "-o", tmp_path / "out.npz").data
        assert data["output"] == str(tmp_path / "out.npz")
        assert (data["rows"], data["width"], data["dtype"], data["k"]) == (12, 300, "float32", 2)
        assert data["backend"] == "cpu"
        assert "indices" not in data

    def test_json_holds_no_bare_infinity(self, run: Any, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.array([np.inf, np.nan, 1], np.float32))
        data = run("select", tmp_path / "a.npy", "-k", 4, "--order", "value", "--json").data
        assert data["indices"] == [0, 2, 1, -1]
        assert data["values"] == ["inf", 1.0, "nan", "-inf"]

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision(self, dtype: torch.dtype, run: Any, tmp_path: Path) -> None:
        scores = torch.from_numpy(SCORES).to(dtype)
        save_file({"scores": scores}, tmp_path / "a.safetensors")
        out = tmp_path / "out.npz"
        assert run("select", tmp_path / "a.safetensors", "-k", 5, "-o", out).code == 0
        expected = tl_topk.topk(scores, 5)
        with np.load(out) as found:
            assert (found["indices"] == expected.indices.numpy()).all()
            assert (found["values"] == expected.values.float().numpy()).all()

    @pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0,)])
    def test_nothing_to_select_from(self, shape: tuple[int, ...], run: Any, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", np.zeros(shape, np.float32))
        data = run("select", tmp_path / "a.npy", "-k", 2, "--json").data
        assert data["indices"] == np.full((*shape[:-1], 2), -1).tolist()
        assert run("select", tmp_path / "a.npy", "-k", 2).code == 0

    def test_refusals(self, run: Any, file: Path, tmp_path: Path) -> None:
        for name, array in (
            ("short", np.arange(11)),
            ("floats", np.arange(12.0)),
            ("objects", np.array([None] * 12)),
            ("double", SCORES.astype(float)),
        ):
            np.save(tmp_path / f"{name}.npy", array, allow_pickle=True)
        lengths = {name: tmp_path / f"{name}.npy" for name in ("short", "floats", "objects")}
        refused(run("select", file, "-k", 1, "--lengths", lengths["short"]), "lengths", "(11,)")
        refused(run("select", file, "-k", 1, "--row-starts", lengths["floats"]), "row_starts")
        refused(run("select", file, "-k", 1, "--lengths", lengths["objects"]), "never unpickled")
        refused(run("select", tmp_path / "double.npy", "-k", 1), "double.npy", "float64")
        refused(run("select", tmp_path / "absent.npy", "-k", 1), "No such file")
        refused(run("select", file, "-k", -1), "k: expected", "-1")
        refused(run("select", file, "-k", "many"), "-k", "many")
        refused(run("select", file), "-k")
        refused(run("select", file, "-k", 1, "--order", "best"), "--order", "best")
        refused(run("select", file, "-k", 1, "--backend", "tpu"), "--backend", "tpu")
        refused(run("select", file, "-k", 1, "--bogus"), "--bogus")
        refused(run("select", file, "-k", 1, "-o", tmp_path / "out.txt"), "--output", ".npz")
        refused(run("select", file, "-k", 1, "-o", tmp_path / "absent/out.npz"), "No such file")
        refused(run("bogus"), "bogus")

    @pytest.mark.gpu
    @pytest.mark.skipif(best_backend() != "dsmem", reason="this machine has no GPU")
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
    def test_on_the_gpu(self, dtype: torch.dtype, run: Any, tmp_path: Path) -> None:
        save_file({"scores": torch.from_numpy(SCORES).to(dtype)}, tmp_path / "a.safetensors")
        np.save(tmp_path / "lengths.npy", np.arange(12) * 30)
        arguments = ("select", tmp_path / "a.safetensors", "-k", 9, "--order", "value", "--json")
        arguments = (*arguments, "--lengths", tmp_path / "lengths.npy", "--backend")
        here, there = run(*arguments, "cpu").data, run(*arguments, "dsmem").data
        assert there["backend"] == "dsmem"
        assert (there["indices"], there["values"]) == (here["indices"], here["values"])

    @pytest.mark.skipif(best_backend() == "dsmem", reason="this machine has a GPU")
    def test_no_gpu(self, run: Any, file: Path) -> None:
        refused(run("select", file, "-k", 1, "--backend", "dsmem"), "'dsmem' cannot run here")
        refused(run("check", "--backend", "dsmem"), "'dsmem' cannot run here")
        refused(run("demo", "--backend", "dsmem"), "'dsmem' cannot run here")


class TestCheck:
    def test_no_difference(self, run: Any, tmp_path: Path) -> None:
        outcome = run("check", "--seconds", 0.5, "--seed", 8, "--directory", tmp_path)
        assert outcome.code == 0, outcome.out
        assert "seed 8" in outcome.err
        assert "no difference" in outcome.out
        data = run("check", "--seconds", 0, "--seed", 8, "--json").data
        assert (data["seed"], data["cases"], data["difference"]) == (8, 1, None)
        data = run("check", "--rows", 2000, "--seed", 8, "--json").data
        assert data["batches"] > 0
        assert data["rows"] >= 2000
        assert list(tmp_path.iterdir()) == []

    def test_a_seed_is_drawn_and_printed(self, run: Any) -> None:
        outcome = run("check", "--seconds", 0, "--json")
        assert f"seed {outcome.data['seed']}" in outcome.err

    def test_a_difference(self, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A planted fault is found, made small, written down and found again from the file."""
        spoil_calls(monkeypatch, "tl_topk.check.trial", forget_one_when_k_is_big)
        outcome = run("check", "--seconds", 60, "--seed", 1, "--directory", tmp_path, "--json")
        assert outcome.code == 1
        data = outcome.data
        reproducer = Path(data["reproducer"])
        assert [reproducer] == list(tmp_path.iterdir())
        assert "is missing" in data["difference"]["problem"]
        case = check.load_case(reproducer)
        assert (case.rows, case.k) == (1, 5)
        assert case.width <= 6
        assert (case.lengths, case.row_starts, case.skew, case.gap) == (None, None, 0, 0)

        outcome = run("check", "--replay", reproducer)
        assert outcome.code == 1
        assert "is missing" in outcome.out
        monkeypatch.undo()
        assert run("check", "--replay", reproducer, "--json").data["difference"] is None

    def test_a_difference_that_cannot_be_written_is_told(
        self, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The seed is enough to find it again."""
        spoil_calls(monkeypatch, "tl_topk.check.trial", forget_one_when_k_is_big)
        monkeypatch.setattr(np, "savez", lambda *_, **__: os.write(1 << 20, b""))  # EBADF
        outcome = run("check", "--seconds", 60, "--seed", 1, "--directory", tmp_path)
        assert outcome.code == 1
        assert "is missing" in outcome.out
        assert "seed" in outcome.out
        assert "Bad file descriptor" in outcome.err
        assert list(tmp_path.iterdir()) == []

    def test_a_crash_is_a_difference(
        self, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def crash(*_: Any, **__: Any) -> None:
            raise RuntimeError("out of luck")

        monkeypatch.setattr("tl_topk.check.trial.topk", crash)
        monkeypatch.setattr("tl_topk.check.trial.topk_indices", crash)
        outcome = run("check", "--seconds", 60, "--seed", 1, "--directory", tmp_path)
        assert outcome.code == 1
        assert "raised RuntimeError: out of luck" in outcome.out

    def test_refusals(self, run: Any, file: Path, tmp_path: Path) -> None:
        np.savez(tmp_path / "other.npz", scores=SCORES)
        np.savez(tmp_path / "damaged.npz", format=np.asarray(1), scores=SCORES)
        refused(run("check", "--replay", file), "must be an .npz")
        refused(run("check", "--replay", tmp_path / "absent.npz"), "No such file")
        refused(run("check", "--replay", tmp_path / "other.npz"), "no reproducer")
        refused(run("check", "--replay", tmp_path / "damaged.npz"), "damaged reproducer")
        refused(run("check", "--seconds", -1), "--seconds")
        refused(run("check", "--seed", -1), "--seed")
        refused(run("check", "--directory", tmp_path / "absent"), "--directory")

    @pytest.mark.parametrize(
        "field",
        [
            {"k": 3.5},
            {"k": True},
            {"k": [3]},
            {"k": 2**40},
            {"gap": 10**15},
            {"largest": "abc"},
            {"order": ["any"]},
            {"format": "x"},
            {"lengths": np.array([5], ">i8")},
            {"lengths": np.array([5], np.int16)},
        ],
        ids=str,
    )
    def test_damaged_field(self, run: Any, field: dict[str, Any], tmp_path: Path) -> None:
        sound = {"format": 1, "seed": 0, "family": "normal", "dtype": "float32", "k": 2}
        scores = np.zeros((1, 9), np.uint32)
        np.savez(tmp_path / "case.npz", scores=scores, **{**sound, **field})
        refused(run("check", "--replay", tmp_path / "case.npz"), "damaged reproducer")


def forget_one_when_k_is_big(scores: Any, k: int, indices: Any) -> None:
    """The last winner of a row is replaced by another element, from k = 5 on."""
    if k >= 5 and len(indices) and scores.shape[1] > k:
        chosen = set(indices[0].tolist())
        others = [each for each in range(scores.shape[1]) if each not in chosen]
        if -1 not in chosen:
            indices[0, 0] = others[0]


class TestCases:
    """The fuzzer's own parts."""

    def test_a_seed_means_one_case(self) -> None:
        for seed in range(20):
            first, again = (check.make_case(seed, ("float32", "float16")) for _ in range(2))
            assert str(first) == str(again)
            assert (first.scores == again.scores).all()

    def test_every_family_and_kind_occurs(self) -> None:
        cases = [check.make_case(seed, ("float32", "float16", "bfloat16")) for seed in range(400)]
        assert {case.family for case in cases} == set(check.FAMILIES)
        for kind in ("dtype", "order"):
            assert len({getattr(case, kind) for case in cases}) == 3
        for kind in ("largest", "with_values"):
            assert len({getattr(case, kind) for case in cases}) == 2
        assert {case.lengths is None for case in cases} == {True, False}
        assert {case.row_starts is None for case in cases} == {True, False}
        assert any(case.k > case.width for case in cases)
        assert any(case.k > 4096 for case in cases)
        assert any(case.rows == 0 for case in cases)
        assert any(case.width == 0 for case in cases)
        assert any(case.width > 65536 for case in cases)

    def test_a_case_survives_its_file(self, tmp_path: Path) -> None:
        for seed in range(20):
            case = check.make_case(seed, ("float32", "float16", "bfloat16"))
            check.save_case(case, tmp_path / "case.npz")
            found = check.load_case(tmp_path / "case.npz")
            assert str(found) == str(case)
            assert found.scores.dtype == case.scores.dtype
            assert (found.scores == case.scores).all()

    @pytest.mark.parametrize(
        ("spoil", "words"),
        [
            (lambda i, v: i.__setitem__((0, 0), 99), "index 99 in slot 0 is outside the row"),
            (lambda i, v: i.__setitem__((0, 0), -1), "index -1 in slot 0 is outside the row"),
            (lambda i, v: i.__setitem__((0, 0), i[0, 1]), "is missing"),
            (lambda i, v: i.__setitem__((0, slice(2)), i[0, 1::-1].copy()), "not in order='value'"),
            (lambda i, v: i.__setitem__((1, 3), 0), "past the 2 elements does not hold -1"),
            (lambda i, v: v.__setitem__((0, 2), 1), "value in slot 2 has bits 0x1"),
            (lambda i, v: v.__setitem__((1, 3), 0), "value in slot 3 has bits 0x0, not 0xff800000"),
        ],
    )
    def test_every_kind_of_difference_is_seen(self, spoil: Any, words: str) -> None:
        case = check.Case(
            seed=0,
            family="by hand",
            dtype="float32",
            scores=SCORES[:2, :20].view(np.uint32),
            k=4,
            order="value",
            lengths=np.array([20, 2]),
        )
        answer = check.run(case, "cpu")
        assert check.difference(case, answer) is None
        indices, values = answer.indices.copy(), answer.values.copy()
        spoil(indices, values)
        problem = check.difference(case, check.Answer(indices, values, spilled=False))
        assert problem is not None
        assert words in problem
        spilled = check.Answer(answer.indices, answer.values, spilled=True)
        assert "outside the outputs" in str(check.difference(case, spilled))


def start(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tl_topk", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted(sent: signal.Signals, code: int, tmp_path: Path) -> None:
    # A job in a shell's background is born deaf to SIGINT, and its children are.
    hears = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = start("check", "--seconds", 60, "--directory", tmp_path, preexec_fn=hears)
    assert process.stderr is not None
    assert "seed" in process.stderr.readline()
    time.sleep(0.3)
    process.send_signal(sent)
    out, err = process.communicate(timeout=40)
    assert process.returncode == code
    assert "Traceback" not in out + err
    assert list(tmp_path.iterdir()) == []


def test_reader_gone(file: Path) -> None:
    """`tl-topk ... | head -0`: no traceback, no complaint."""
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run(
        [sys.executable, "-m", "tl_topk", "select", str(file), "-k", "300", "--json"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert result.returncode == -signal.SIGPIPE
    assert result.stderr == ""


def test_the_disk_of_stdout_is_full(file: Path) -> None:
    """One line on stderr and a status that says so, in place of half a result."""
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "tl_topk", "select", str(file), "-k", "300", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode != 0
    assert "No space left on device" in result.stderr
    assert "Traceback" not in result.stderr


def test_as_a_module(file: Path) -> None:
    process = start("select", file, "-k", 1, "--json")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads(out)["rows"] == 12
