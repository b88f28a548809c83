"""Our float32 kernels compiled in other ways: with a clock inside, or with one part switched off.

Each is a library of its own beside ours, built with -DTL_TOPK_BENCH=ON (bench/native).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
import tvm_ffi
from torch import Tensor

from bench.cases import Case
from bench.contenders import Contender, with_outputs
from bench.exact import Answer
from bench.inputs import Inputs
from bench.timing import Launch

__all__ = ["BUILD", "Variant", "ablations", "load_variant"]

BUILD = Path(__file__).parents[1] / "build"

_WITHOUT = "libtl_topk_without_"


def load_variant(path: Path) -> Any:
    """The library's module. Raises FileNotFoundError, saying how to build it."""
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: configure with -DTL_TOPK_BENCH=ON and build")
    return tvm_ffi.load_module(str(path))


def ablations() -> list[Contender]:
    """Every build that lacks a part, named after it: libtl_topk_without_PART.so."""
    found = sorted(BUILD.glob(f"{_WITHOUT}*.so"))
    names = {path: path.stem.removeprefix(_WITHOUT).replace("_", " ") for path in found}
    return [Variant(f"without {name}", load_variant(path)) for path, name in names.items()]


class Variant(Contender):
    """One such library, for plain float32 rows."""

    def __init__(self, name: str, module: Any) -> None:
        self.name = name
        self._module = module

    def refusal(self, case: Case) -> str:
        plain = Case(case.rows, case.width, case.k, "float32", case.distribution, case.entropy)
        return "" if case == plain else "plain float32 rows alone"

    def shared_bytes(self, case: Case) -> int | None:
        return int(self._module.shared_bytes(case.rows, case.width, case.k))

    def prepare(self, inputs: Inputs) -> list[Launch]:
        case = inputs.case
        needed = self._module.workspace_bytes(case.rows, case.width, case.k)
        # Every launch leaves it zeroed, and launches follow one another.
        workspace = torch.zeros(needed, dtype=torch.uint8, device="cuda") if needed else None

        def launch(scores: Tensor, answer: Answer) -> Answer:
            self._module.topk(scores, answer.indices, workspace)
            return answer

        return [partial(launch, *slot) for slot in with_outputs(inputs)]
