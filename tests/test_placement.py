"""Where the command line puts host arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tl_topk.backends import BACKENDS
from tl_topk.placement import Placement, best_backend, bits_of


def test_on_the_host() -> None:
    assert Placement.of("auto", "float32") == Placement("cpu", with_torch=False)
    assert Placement.of("cpu", "bfloat16") == Placement("cpu", with_torch=True)


def test_bits_survive() -> None:
    bits = np.array([0x3F80, 0xBF80, 0x7FC1], np.uint16)
    placed = Placement("cpu", with_torch=True).put(bits, "bfloat16")
    assert placed.dtype == torch.bfloat16
    assert bits_of(placed).tolist() == bits.tolist()
    assert bits_of(np.float32([1.5])).tolist() == [0x3FC00000]


def test_the_device_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append("cuda"))
    Placement("cpu", with_torch=False).synchronize()
    Placement("cuda", with_torch=True).synchronize()
    assert waited == ["cuda"]


@pytest.mark.parametrize(("found", "best"), [(True, "dsmem"), (False, "cpu")])
def test_the_best_backend_is_one_that_torch_reaches(
    found: bool, best: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("dsmem", "pipelined"):
        monkeypatch.setattr(type(BACKENDS[name]), "unavailable", lambda self: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: found)
    assert best_backend() == best


def test_without_torch_scores_stay_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(BACKENDS["dsmem"]), "unavailable", lambda self: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert best_backend() == "cpu"
