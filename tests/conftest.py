"""Fixtures: the backends, and a watchdog that turns a hang into a report."""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import settings

import tl_topk
from harness import GPU, NUMPY_CPU, PIPELINED, TORCH_CPU, Target
from ranks import Ranks

MARKERS = (
    "gpu: needs a CUDA device and a library built with CUDA",
    "sanitizer: few and small launches that cover every path, for compute-sanitizer",
    "racecheck: those of them that launch every kernel, for the slowest of its tools as well",
    "slow: takes more than ten seconds on two cores",
    "exhaustive: takes a minute or more; runs only where -m names it",
    "patience(seconds): how long the watchdog waits for a test instead of its usual time",
)
PATIENCE_S = 300
GPU_TESTS = Path(__file__).parent / "gpu"
GLOO_SIZES = (1, 2, 3, 8)
REPORT_FD = pytest.StashKey[int]()


@cache
def why_no_gpu() -> str:
    """Empty where the GPU tests can run."""
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    return why_not(GPU)


@cache
def why_not(target: Target) -> str:
    """Empty where the backend can run."""
    reason = tl_topk.info()["backends"][target.backend]
    return "" if reason == "available" else reason


def parameters(*targets: Target) -> list[object]:
    """The targets as parameters, those on the GPU marked."""
    marks = {"cpu": (), "cuda": pytest.mark.gpu}
    return [pytest.param(each, marks=marks[each.device], id=str(each)) for each in targets]


def runnable(request: pytest.FixtureRequest) -> Target:
    """The parameter of a fixture; skips where its backend cannot run."""
    target: Target = request.param
    if why_not(target):
        pytest.skip(f"{target.backend}: {why_not(target)}")
    return target


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    config.stash[REPORT_FD] = os.dup(sys.__stderr__.fileno())  # pytest captures the usual one
    settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
    if not config.getoption("--hypothesis-profile"):  # "default" explores anew at each run
        settings.load_profile("repeatable")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Everything under tests/gpu needs the device, and what needs it says why it did not run."""
    wanted = "exhaustive" in config.getoption("markexpr")
    for item in items:
        if item.path.parent == GPU_TESTS:
            item.add_marker(pytest.mark.gpu)
        if why_no_gpu() and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=why_no_gpu()))
        elif item.get_closest_marker("exhaustive") and not wanted:
            item.add_marker(pytest.mark.skip(reason="exhaustive: run with -m exhaustive"))


@pytest.fixture(autouse=True)
def watchdog(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ends the run with every thread's stack where a test hangs, in native code as well."""
    marker = request.node.get_closest_marker("patience")
    seconds = marker.args[0] if marker else PATIENCE_S
    faulthandler.dump_traceback_later(seconds, exit=True, file=request.config.stash[REPORT_FD])
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session", params=parameters(TORCH_CPU, NUMPY_CPU, GPU, PIPELINED))
def target(request: pytest.FixtureRequest) -> Target:
    """Each backend with each kind of array."""
    return runnable(request)


@pytest.fixture(scope="session", params=parameters(TORCH_CPU, GPU, PIPELINED))
def engine(request: pytest.FixtureRequest) -> Target:
    """Each backend once, with torch tensors, for tests of what is computed."""
    return runnable(request)


@pytest.fixture(scope="session", params=parameters(GPU, PIPELINED))
def gpu(request: pytest.FixtureRequest) -> Target:
    """Each backend of the GPU, for tests of what only a GPU has."""
    return runnable(request)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260)


@pytest.fixture
def skip_uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips a test that would need a TileLang kernel which is not there and cannot be compiled."""
    call = tl_topk.indexer_topk

    def indexer_topk(*args: object, **options: object) -> object:
        try:
            return call(*args, **options)
        except RuntimeError as error:
            if "has not been compiled" in str(error):
                pytest.skip(str(error))
            raise

    monkeypatch.setattr(tl_topk, "indexer_topk", indexer_topk)


@pytest.fixture(scope="module")
def gloo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    ranks = Ranks(GLOO_SIZES, "gloo", tmp_path_factory.mktemp("gloo") / "store")
    yield ranks
    ranks.close()


@pytest.fixture(scope="module")
def nccl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    sizes = (1, 2) if torch.cuda.device_count() > 1 else (1,)
    ranks = Ranks(sizes, "nccl", tmp_path_factory.mktemp("nccl") / "store")
    yield ranks
    ranks.close()


@pytest.fixture(
    params=[
        *(pytest.param(("gloo", size), id=f"gloo-{size}") for size in GLOO_SIZES),
        *(
            pytest.param(("nccl", size), id=f"nccl-{size}", marks=pytest.mark.gpu)
            for size in (1, 2)
        ),
    ]
)
def world(request: pytest.FixtureRequest) -> tuple[Ranks, int]:
    """Processes, and the size of one of their groups."""
    backend, size = request.param
    ranks: Ranks = request.getfixturevalue(backend)
    if size not in ranks.sizes:
        pytest.skip(f"needs {size} GPUs")
    return ranks, size


@pytest.fixture
def alone() -> Iterator[None]:
    """This process as the only rank of the default group."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    yield
    dist.destroy_process_group()
