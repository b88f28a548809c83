"""Where and with what a benchmark ran: what makes its figures traceable."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

import tl_topk
from bench.results import Document
from bench.timing import timing_event

__all__ = ["commit", "machine", "new_document"]

_ROOT = Path(__file__).parents[1]


def new_document(suite: str, command: str, device: str) -> Document:
    """Of a run that begins now, here."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Document(suite, command, commit(), now, machine(device))


def machine(device: str) -> dict[str, Any]:
    """Plain data for JSON."""
    build = tl_topk.info()["build"]
    facts: dict[str, Any] = {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "tl_topk": tl_topk.__version__,
        "tl_topk_compiler": build["compiler"],
        "tl_topk_simd": build["simd"],
    }
    if device == "cuda":
        facts |= {
            "gpu": torch.cuda.get_device_name(),
            "driver": _driver(),
            "cuda": torch.version.cuda,
            "tl_topk_architectures": build["architectures"],
            "copy_tb_per_s": round(_copy_speed(), 2),
        }
    return facts


def commit() -> str:
    """Of the checkout, with "+" where it has changes; of a copy without git, $BENCH_COMMIT."""
    if given := os.environ.get("BENCH_COMMIT"):
        return given
    revision = _output("git", "-C", str(_ROOT), "rev-parse", "--short=12", "HEAD")
    changed = _output("git", "-C", str(_ROOT), "status", "--porcelain", "--untracked-files=no")
    return f"{revision}{'+' if changed else ''}" if revision else "unknown"


def _output(*command: str) -> str:
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return ""
    return run.stdout.strip()


def _driver() -> str:
    """nvidia-smi names it once for each GPU."""
    versions = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return versions.partition("\n")[0]


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _copy_speed() -> float:
    """TB/s of a device copy, bytes read plus bytes written: the ceiling of this very machine."""
    source = torch.zeros(1 << 28, device="cuda")
    target = torch.empty_like(source)
    begin, end = timing_event(), timing_event()
    best = float("inf")
    for _ in range(10):
        begin.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end))
    return 2 * source.nbytes / (best * 1e-3) / 1e12
