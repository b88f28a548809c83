"""The attention examples are complete programs, run here as their users run them."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

EXAMPLES = Path(__file__).parent / "examples"


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    paths = os.pathsep.join([str(EXAMPLES.parents[1]), *sys.path])
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_decode_step(device: str) -> None:
    output = run("decode_step.py", "--device", device, "--tokens", "3000", "--k", "512")
    assert output.count("from torch.topk's slots nowhere") == 4
    assert "attended to [512, 512, 512]" in output


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_prefill_step(device: str) -> None:
    assert "120 queries of 3 requests" in run("prefill_step.py", "--device", device)


def test_requests_no_longer_than_k() -> None:
    """Everything there is gets attended to, page by page as requests grow."""
    example: dict[str, Any] = runpy.run_path(str(EXAMPLES / "decode_step.py"))
    decoder = example["Decoder"]([63, 1, 130], 3, "cpu", torch.float64)
    for step in range(3):
        output, slots = example["decode_step"](
            decoder.queries, decoder.cache, 256, example["select_ours"]
        )
        assert (slots >= 0).sum(dim=1).tolist() == [63 + step, 1 + step, 130 + step]
        dense = example["dense_step"](decoder.queries, decoder.cache, 256)
        torch.testing.assert_close(output, dense)
        decoder.advance()
