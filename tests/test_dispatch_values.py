"""What the dispatcher's numbers and sentences are, exactly: work, facts of GPUs, reasons."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tl_topk.dispatch import costs, fixed, model, rule
from tl_topk.dispatch.candidates import candidates
from tl_topk.dispatch.decision import Candidate, Config
from tl_topk.dispatch.devices import NAMED, device_named, native_facts
from tl_topk.problem import Gpu, Problem, Scoring

H200 = NAMED["h200"]
MB = 1 << 20


def ready(rows: int, width: int = MB, k: int = 2048, **changes: Any) -> Problem:
    given: dict[str, Any] = {"values": False, "device_type": "cuda", "gpu": H200}
    return Problem(rows, width, k, "float32", **given | changes)


@pytest.mark.parametrize(
    ("problem", "config", "work"),
    [
        (  # seven clusters of 16 fit at once: three waves of 15 rows
            ready(15, k=512),
            Config("cluster", 16, 16, 240),
            {
                "launch": 1.0,
                "wave": 2.0,
                "block_mb": 3 * 4 / 16,
                "memory_mb": 60.0,
                "k": 1.5,
                "result_mb": 15 * 512 * 4 / MB,
            },
        ),
        (  # 132 blocks fit at once
            ready(133, MB // 2),
            Config("block", 1, 1, 133),
            {
                "launch": 1.0,
                "wave": 1.0,
                "block_mb": 4.0,
                "memory_mb": 266.0,
                "k": 4.0,
                "result_mb": 133 * 2048 * 4 / MB,
            },
        ),
        (  # 32 blocks a row on 132 multiprocessors: four rows at once
            ready(5),
            Config("grid", 32, 16, 160),
            {
                "launch": 1.0,
                "wave": 1.0,
                "block_mb": 2 * 4 / 32,
                "memory_mb": 20.0,
                "k": 4.0,
                "result_mb": 5 * 2048 * 4 / MB,
            },
        ),
    ],
)
def test_work_of_a_selection(problem: Problem, config: Config, work: dict[str, float]) -> None:
    assert costs.select_work(problem, config, H200) == pytest.approx(work)


def test_halves_are_half_the_work() -> None:
    config = Config("cluster", 8, 8, 8)
    halves = replace(ready(1), dtype="bfloat16")
    assert costs.select_work(halves, config, H200)["memory_mb"] == 2.0
    assert costs.select_work(halves, config, H200)["block_mb"] == 0.25


def test_work_of_scores_and_selection() -> None:
    scoring = Scoring(64, next_n=2)
    work = costs.scored_work(ready(8, 65_536, scoring=scoring), H200)
    assert work == pytest.approx(
        {
            "launch": 1.0,
            "memory_mb": 4 * 65_536 * scoring.key_bytes / MB,
            "gflop": 2 * 8 * 65_536 * 64 * 128 / 1e9,
            "score_mb": 2.0,
            "rows": 8 / 132,
            "k": 8 * 2 / 132,
        }
    )


def test_work_of_the_cpu() -> None:
    problem = Problem(3, MB, 5, "float32")
    assert costs.cpu_work(problem) == {"memory_mb": 12.0}


def test_costs_of_another_gpu_go_by_its_facts() -> None:
    fitted = {"name": "NVIDIA H200", "sms": 132, "memory_tb_per_s": 4.8}
    assert costs._scales(H200, fitted) == {}
    pcie = costs._scales(NAMED["h100-pcie"], fitted)
    assert pcie == pytest.approx({"memory_mb": 2.4, "gflop": 132 / 114, "tiles": 132 / 114})
    unknown = replace(NAMED["h100-pcie"], memory_tb_per_s=None)
    assert costs._scales(unknown, fitted)["memory_mb"] == pytest.approx(132 / 114)
    assert costs._cost({"memory_mb": 2.0, "k": 3.0}, {"memory_mb": 5.0, "k": 1.0}, pcie) == (
        pytest.approx(2.4 * 10 + 3)
    )


def test_names_of_costs() -> None:
    assert costs.select_name("select", Config("grid", 32, 16)) == "select 16"
    assert costs.select_name("large_k", Config("block", 1, 1)) == "select 1"
    assert costs.select_name("pipelined", Config("cluster", 8, 8)) == "pipelined"


def test_facts_of_named_gpus() -> None:
    hopper = (132, 66, 30, 15, 7)
    assert Gpu("NVIDIA H200", 90, 132, 232_448, 60 * MB, hopper, 4.8) == H200
    assert NAMED["h100"] == replace(
        H200, name="NVIDIA H100 80GB HBM3", l2_bytes=50 * MB, memory_tb_per_s=3.35
    )
    share = (114, 57, 25, 12, 6)  # of what fits on 132
    assert NAMED["h100-pcie"] == Gpu("NVIDIA H100 PCIe", 90, 114, 232_448, 50 * MB, share, 2.0)
    assert NAMED["h20"].coresident_clusters == (78, 39, 17, 8, 4)
    assert {name: gpu.compute_capability for name, gpu in NAMED.items()} == {
        **dict.fromkeys(("h200", "h100", "h100-pcie", "h20"), 90),
        "a100": 80,
        "b200": 100,
    }


@pytest.mark.parametrize(("name", "largest"), [("h200", 16), ("a100", 1)])
def test_facts_in_native_form(name: str, largest: int) -> None:
    gpu = NAMED[name]
    native = native_facts(gpu)
    assert (native.name, native.sms, native.max_cluster) == (gpu.name, gpu.sms, largest)
    assert native.compute_capability == gpu.compute_capability
    assert native.shared_memory_per_block == gpu.shared_memory_per_block
    assert native.l2_bytes == gpu.l2_bytes
    assert tuple(native.coresident_clusters) == gpu.coresident_clusters
    assert (native.device_id, list(native.built_architectures)) == (0, [])


@pytest.mark.parametrize(
    ("name", "kind", "number", "gpu"),
    [
        ("cpu", "cpu", 0, None),
        ("cuda", "cuda", 0, None),
        ("CUDA:3", "cuda", 3, None),
        (" H100 ", "cuda", 0, NAMED["h100"]),
    ],
)
def test_devices_by_name(name: str, kind: str, number: int, gpu: Gpu | None) -> None:
    assert device_named(name) == (kind, number, gpu)


@pytest.mark.parametrize("name", ["cuda:", "cuda:x", "gpu:0", "", None, 7, "h300"])
def test_no_such_device(name: object) -> None:
    with pytest.raises(ValueError, match=r"^device: expected 'cpu', 'cuda', 'h200', .* got"):
        device_named(name)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (Config("cluster", 8, 8), "a cluster of 8 blocks a row"),
        (Config("block", 1, 1), "a block a row"),
        (Config("grid", 32, 16), "32 blocks a row"),
        (Config("threads"), "threads of the CPU"),
    ],
)
def test_launches_in_words(config: Config, words: str) -> None:
    assert str(config) == words


def test_names_of_candidates() -> None:
    assert Candidate("dsmem", "select", Config("cluster", 4, 4)).name == "dsmem cluster 4"
    assert Candidate("dsmem", "select", Config("block", 1, 1)).name == "dsmem block"
    assert Candidate("dsmem", "select").name == "select"
    assert Candidate("dsmem", "dsmem after scores", Config("grid", 132)).name == (
        "dsmem after scores"
    )
    assert Candidate("pipelined", "fused", Config("grid", 132)).name == "fused"


def test_kernels() -> None:
    kernels = {c.backend: c.kernel for c in candidates(ready(1, k=4096))}
    assert kernels == {"dsmem": "select", "pipelined": "pipelined", "cpu": "cpu"}
    assert {c.kernel for c in candidates(ready(1, k=4097)) if c.backend == "dsmem"} == {"large_k"}
    scored = {c.backend: c.kernel for c in candidates(ready(1, scoring=Scoring(64)))}
    assert scored == {"dsmem": "dsmem after scores", "pipelined": "fused", "cpu": "cpu"}


def test_blocks_that_stay_share_the_tiles_of_scored_rows() -> None:
    for candidate in candidates(ready(4, scoring=Scoring(64))):
        if not candidate.refusal:
            assert candidate.config == Config("grid", 132, 1, 132)


def test_the_fused_kernel_holds_4096() -> None:
    def why(k: int) -> str:
        some = candidates(ready(1, k=k, scoring=Scoring(64)))
        return next(c.refusal for c in some if c.backend == "pipelined")

    assert why(4096) == ""
    assert why(4097) == "the fused kernel serves k up to 4096, asked for were 4097"


def test_reasons_of_the_rule() -> None:
    cpu = Problem(2, 100, 5, "float32")
    assert rule(cpu).reason == "the scores lie ready on cpu"
    assert rule(replace(cpu, scoring=Scoring(8))).reason == "queries and keys lie on cpu"
    assert rule(ready(1)).reason == "the scores lie ready on cuda:0"
    assert rule(ready(1, scoring=Scoring(64))).reason == (
        "scoring is compute that the selection can hide behind"
    )
    assert rule(ready(1, scoring=Scoring(64), order="value")).reason == (
        "'pipelined' cannot serve this and 'dsmem' can"
    )
    absent = (("dsmem", "no library"),)
    assert rule(ready(1, absent=absent)).reason == "'dsmem' cannot serve this and 'pipelined' can"


def test_reasons_of_the_model() -> None:
    cpu = model(Problem(2, 100, 5, "float32"))
    assert cpu.reason == "'cpu' (cpu) with threads of the CPU alone can serve 'cpu'"
    decision = model(ready(1, 65536))
    first, other = (
        next(c for c in decision.candidates if c.backend == name and c.is_native_choice)
        for name in ("dsmem", "pipelined")
    )
    assert decision.reason == (
        f"'dsmem' (select) with {first.config} has the least estimate of the backends,"
        f" {first.estimate_us:.1f} us, 'pipelined' next with {other.estimate_us:.1f} us"
    )
    scored = model(ready(1, 65536, scoring=Scoring(64)))
    assert scored.reason == (
        f"'scores first, then dsmem' with 132 blocks a row has the least estimate of the backends,"
        f" {scored.candidates[0].estimate_us:.1f} us, 'fused in one kernel (pipelined)' next with"
        f" {scored.candidates[1].estimate_us:.1f} us"
    )
    derived = model(ready(1, 65536, gpu=NAMED["h100"]))
    assert derived.reason.endswith(
        "; derived from another GPU's constants, nothing was measured on NVIDIA H100 80GB HBM3"
    )


def test_chosen_first_then_by_estimate_then_what_cannot() -> None:
    decision = model(ready(4))
    assert decision.candidates[0].config == decision.config
    able = [c.estimate_us or 0 for c in decision.candidates[1:] if not c.refusal]
    assert able == sorted(able)
    refused = [bool(c.refusal) for c in decision.candidates]
    assert refused == sorted(refused)


def test_a_fixed_policy_names_itself() -> None:
    assert fixed("dsmem").__name__ == fixed("dsmem").__qualname__ == "fixed('dsmem')"
