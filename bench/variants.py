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
    """Ours without one part each: builds that lack it, named libtl_topk_without_PART.so, and the
    plain build kept from using clusters."""
    plain = BUILD / "libtl_topk_plain.so"
    kept: list[Contender] = []
    if plain.exists():
        kept.append(Variant("without clusters", load_variant(plain), max_cluster=1))
    for path in sorted(BUILD.glob(f"{_WITHOUT}*.so")):
        part = path.stem.removeprefix(_WITHOUT).replace("_", " ")
        kept.append(Variant(f"without {part}", load_variant(path)))
    return kept


class Variant(Contender):
    """One such library, for plain float32 rows; clusters have at most ``max_cluster`` blocks."""

    def __init__(self, name: str, module: Any, max_cluster: int = 16) -> None:
        self.name = name
        self._module = module
        self._max_cluster = max_cluster

    def _config(self, case: Case) -> tuple[int, int, int]:
        """Blocks, bytes of shared memory each, bytes of workspace."""
        blocks, shared, workspace = self._module.config(
            case.rows, case.width, case.k, self._max_cluster
        )
        return int(blocks), int(shared), int(workspace)

    def refusal(self, case: Case) -> str:
        plain = Case(case.rows, case.width, case.k, "float32", case.distribution, case.entropy)
        return "" if case == plain else "plain float32 rows alone"

    def blocks(self, case: Case) -> int:
        """Of a launch."""
        return self._config(case)[0]

    def shared_bytes(self, case: Case) -> int | None:
        return self._config(case)[1]

    def prepare(self, inputs: Inputs) -> list[Launch]:
        needed = self._config(inputs.case)[2]
        # Every launch leaves it zeroed, and launches follow one another.
        workspace = torch.zeros(needed, dtype=torch.uint8, device="cuda") if needed else None

        def launch(scores: Tensor, answer: Answer) -> Answer:
            self._module.topk(scores, answer.indices, workspace, self._max_cluster)
            return answer

        return [partial(launch, *slot) for slot in with_outputs(inputs)]
