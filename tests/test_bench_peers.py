"""Other people's kernels: found by exact names, left out with a reason, checked like ours."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

# Where pytest was not started as a module, or there is no checkout, bench is not importable.
pytest.importorskip("bench", reason="run as python -m pytest in a checkout")

from bench.__main__ import main
from bench.cases import Case
from bench.contenders import Contender
from bench.peers import find_peers
from bench.results import EXACT
from bench.tables import markdown, table_of
from bench_kit import SMALL, run_small

WIDE = Case(2, 6000, 2048)  # what every peer serves

# Modules as their authors would write them, in Python. FlashInfer returns int64 indices, the
# engines' kernels int32; one of each kind is wrong.
FAKES = {
    "flashinfer": """
import os
algorithms = []
def top_k(input, k, sorted=False):
    algorithms.append(os.environ.get("FLASHINFER_TOPK_ALGO"))
    return input.topk(k)
""",
    "sgl_kernel": """
def fast_topk_v2(score, lengths, topk, row_starts=None):
    assert topk == 2048
    return score.topk(topk).indices.int()
""",
    "sglang/__init__": "",
    "sglang/jit_kernel/__init__": "",
    "sglang/jit_kernel/dsv4": """
def plan_topk_v2(seq_lens, static_threshold=0):
    return seq_lens
def topk_transform_512_v2(scores, seq_lens, page_tables, out_page_indices, page_size, metadata,
                          out_raw_indices=None):
    assert metadata is seq_lens and page_tables.shape[1] * page_size >= scores.shape[1]
    out_raw_indices.copy_(scores.topk(out_raw_indices.shape[1]).indices)
    out_page_indices.fill_(-5)
""",
    "vllm_topk": """
def cooperative_topk(logits, lens, k):
    return logits.topk(k).indices.int()
def persistent_topk(logits, lens, k):
    return logits.topk(k + 1).indices[:, 1:].int()  # wrong
""",
    "air_topk": """
def topk(x, k):
    return x.topk(k)
""",
    "sgl_peers": """
import math
helper = math.sqrt
def peer_sorting(scores, lengths, k):
    return scores.sort(descending=True).indices[:, :k].int()
def peer_deaf(scores, lengths, k):
    raise RuntimeError("cannot hear")
""",
    "tilelang": "",
    "topk_selector": """
def tl_topk(input, starts, ends, topk):
    assert int(starts.max()) == 0
    return input.topk(topk).indices.int()
""",
}


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of such modules, importable; forgotten afterwards."""
    for name, text in FAKES.items():
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    names = {name.split("/")[0] for name in FAKES}
    hidden = {m: sys.modules.pop(m) for m in list(sys.modules) if m.split(".")[0] in names}
    yield tmp_path
    for module in [m for m in sys.modules if m.split(".")[0] in names]:
        del sys.modules[module]
    sys.modules.update(hidden)


def available() -> dict[str, Contender]:
    return {peer.name: peer for peer in find_peers() if not peer.unavailable()}


def verdicts(case: Case) -> dict[str, str]:
    results = run_small(case, contenders=list(available().values())).measurements()
    return {m.contender: m.answer for m in results}


def test_every_absent_peer_has_a_name_and_a_reason() -> None:
    found = find_peers()
    assert len({peer.name for peer in found}) == len(found)
    for peer in found:
        reason = peer.unavailable()
        assert not reason or "\n" not in reason
    absent = {peer.name: peer.unavailable() for peer in found}
    assert absent["RAFT AIR"] == "ModuleNotFoundError: No module named 'air_topk'"
    assert absent["sgl_peers"] == "ModuleNotFoundError: No module named 'sgl_peers'"


@pytest.mark.usefixtures("fakes")
def test_each_is_called_by_its_names_and_its_answer_checked() -> None:
    wrong = "wrong: not the best k in 4 of 4 rows"
    assert verdicts(WIDE) == {
        "FlashInfer auto": EXACT,
        "FlashInfer cub": EXACT,
        "FlashInfer filtered": EXACT,
        "FlashInfer multi_cta": EXACT,
        "SGLang fast_topk_v2": EXACT,
        "SGLang topk_v2": EXACT,
        "vLLM cooperative": EXACT,
        "vLLM persistent": wrong,
        "RAFT AIR": EXACT,
        "deaf": "failed: cannot hear",
        "sorting": EXACT,
        "TileLang example": EXACT,
    }


@pytest.mark.usefixtures("fakes")
def test_the_command_line_names_them() -> None:
    lines = CliRunner().invoke(main, ["peers"]).output.splitlines()
    said = {line[:26].rstrip(): line[26:] for line in lines}
    assert said["torch.topk"] == said["RAFT AIR"] == said["sorting"] == "available"
    assert said["vLLM top_k_per_row_decode"].startswith("ModuleNotFoundError: ")


@pytest.mark.usefixtures("fakes")
def test_a_wrong_one_is_marked_in_tables() -> None:
    persistent = available()["vLLM persistent"]
    document = run_small(WIDE, contenders=[persistent])
    assert "10.00 wrong" in markdown(table_of(document))


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize("users", [None, "filtered"])
def test_flashinfer_is_told_its_algorithm_and_the_users_choice_comes_back(
    monkeypatch: pytest.MonkeyPatch, users: str | None
) -> None:
    import flashinfer

    variable = "FLASHINFER_TOPK_ALGO"
    monkeypatch.delenv(variable, raising=False)
    if users is not None:
        monkeypatch.setenv(variable, users)
    names = ("auto", "cub", "filtered", "multi_cta")
    run_small(SMALL, contenders=[available()[f"FlashInfer {name}"] for name in names])
    assert list(dict.fromkeys(flashinfer.algorithms)) == [None, "cub", "filtered", "multi_cta"]
    assert os.environ.get(variable) == users


@pytest.mark.usefixtures("fakes")
def test_flashinfers_clusters_need_the_gpu_they_are_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    assert "FlashInfer clusters" not in available()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (10, 0))
    assert "FlashInfer clusters" in available()


@pytest.mark.parametrize(
    ("case", "served"),
    [
        (replace(WIDE, k=100), {"FlashInfer auto", "RAFT AIR", "sorting", "TileLang example"}),
        (replace(WIDE, dtype="float16", k=512), {"FlashInfer auto", "RAFT AIR"}),
        (replace(WIDE, values=True), {"FlashInfer auto", "RAFT AIR"}),
        (replace(WIDE, order="value"), set()),
        (replace(WIDE, row_starts=True), set()),
        (replace(WIDE, distribution="all equal"), {"FlashInfer auto", "RAFT AIR", "sorting"}),
    ],
    ids=lambda each: str(sorted(each) if isinstance(each, set) else each),
)
@pytest.mark.usefixtures("fakes")
def test_what_a_peer_does_not_serve_is_refused_not_tried(case: Case, served: set[str]) -> None:
    asked = ("FlashInfer auto", "RAFT AIR", "sorting", "TileLang example")
    given = verdicts(case)
    assert {name for name in asked if not given[name].startswith("refused")} == served


def test_a_module_without_the_function_says_so(fakes: Path) -> None:
    (fakes / "air_topk.py").write_text("def top_k(x, k): ...\n")
    (fakes / "sgl_peers.py").write_text("def sorting(scores, lengths, k): ...\n")
    (fakes / "vllm_topk.py").write_text("raise OSError('libcudart.so.13: not found\\nat all')\n")
    absent = {peer.name: peer.unavailable() for peer in find_peers()}
    assert absent["RAFT AIR"] == "air_topk has no function topk"
    assert absent["sgl_peers"] == "sgl_peers has no function peer_*"
    assert absent["vLLM cooperative"].startswith("ModuleNotFoundError: No module named 'vllm")


def test_sglang_without_raw_indices_beside_slots(fakes: Path) -> None:
    (fakes / "sglang" / "jit_kernel" / "dsv4.py").write_text(
        "def plan_topk_v2(seq_lens): return None\n"
        "def topk_transform_512_v2(scores, seq_lens, page_tables, out_page_indices, page_size,\n"
        "                          metadata):\n"
        "    assert page_tables is None\n"
        "    out_page_indices.copy_(scores.topk(out_page_indices.shape[1]).indices)\n"
    )
    assert verdicts(WIDE)["SGLang topk_v2"] == EXACT


class FakeOps:
    """vLLM's operators, as torch.ops._C has them once they are registered."""

    @staticmethod
    def top_k_per_row_decode(
        logits: torch.Tensor, next_n: int, seq_lens: torch.Tensor, indices: torch.Tensor,
        num_rows: int, stride0: int, stride1: int, top_k: int,
    ) -> None:  # fmt: skip
        assert (next_n, num_rows, stride0, stride1) == (1, len(logits), logits.shape[1], 1)
        indices.copy_(logits.topk(top_k).indices)

    @staticmethod
    def cooperative_topk(
        logits: torch.Tensor, lengths: torch.Tensor, output: torch.Tensor,
        workspace: torch.Tensor, k: int, max_seq_len: int,
    ) -> None:  # fmt: skip
        assert workspace.dtype == torch.uint8
        assert max_seq_len == logits.shape[1]
        output.copy_(logits.topk(k).indices)

    persistent_topk = cooperative_topk


def test_vllm_itself_serves_where_there_is_no_wrapper(
    fakes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (fakes / "vllm_topk.py").unlink()
    (fakes / "vllm").mkdir()
    (fakes / "vllm" / "__init__.py").touch()
    (fakes / "vllm" / "_custom_ops.py").touch()
    monkeypatch.setattr(torch.ops, "_C", FakeOps, raising=False)
    found = {peer.name: peer for peer in find_peers() if peer.name.startswith("vLLM")}
    try:
        assert all(not peer.unavailable() for peer in found.values())
        results = run_small(WIDE, contenders=list(found.values())).measurements()
        monkeypatch.delattr(FakeOps, "persistent_topk")
        assert found["vLLM persistent"].unavailable() == "vLLM has no operator persistent_topk"
    finally:
        sys.modules.pop("vllm._custom_ops", None)
        sys.modules.pop("vllm", None)
    assert {m.contender: m.answer for m in results} == dict.fromkeys(found, EXACT)
    assert set(found) == {"vLLM top_k_per_row_decode", "vLLM cooperative", "vLLM persistent"}
