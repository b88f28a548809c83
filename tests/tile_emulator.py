"""Runs the generated source of a TileLang selector on the CPU, thread by thread.

So its answers are tested where there is no GPU, for all that a single block does between barriers.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tl_topk.tile.compiler import Kernel, lower
from tl_topk.tile.pipelined import ARGUMENTS, CAPACITIES, Specialisation, program
from tl_topk.tile.toolchain import header_folder

FOLDER = Path(__file__).parent / "emulated"
_COMPILE = (
    # Hidden: see kernel_emulator.FLAGS.
    *("c++", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden"),
    *(f"-I{path}" for path in (FOLDER / "shim", FOLDER, header_folder())),
)
_KINDS = {"int": ctypes.c_int, "int64_t": ctypes.c_int64, "float": ctypes.c_float}


@dataclass
class EmulatedSelector:
    """One specialisation, compiled by the host compiler."""

    which: Specialisation
    launch: Any
    kernel: Kernel

    @staticmethod
    def build(which: Specialisation, folder: Path) -> EmulatedSelector:
        kernel = lower(program(which), "sm_90a")
        source = folder / f"{which.name}.cc"
        source.write_text(_host_source(kernel))
        library = source.with_suffix(".so")
        subprocess.run([*_COMPILE, "-O1", str(source), "-o", str(library)], check=True)
        return EmulatedSelector(which, ctypes.CDLL(str(library)).launch, kernel)

    def __call__(
        self,
        scores: NDArray[Any],
        k: int,
        blocks: int,
        *,
        skew: int = 0,
        lengths: NDArray[Any] | None = None,
        starts: NDArray[Any] | None = None,
        order: int = 0,
        largest: bool = True,
        room: int | None = None,
        turns: int = 0,
    ) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """Values (as bits) and indices (rows, k); the scores begin ``skew`` after a boundary.
        Threads take ``turns``: 0 upwards, 1 downwards, 2 and more at random, by that seed."""
        rows, width = scores.shape
        room = CAPACITIES[self.which.capacity] if room is None else room
        per_vector = 16 // scores.itemsize
        vectors = -(-(skew + scores.size) // per_vector)
        # NaN all around: what is outside must not matter.
        memory = np.full((vectors + 2) * per_vector, -1, dtype=f"i{scores.itemsize}")
        boundary = -memory.ctypes.data % 16 // scores.itemsize
        memory = memory[boundary:]
        memory[skew : skew + scores.size] = scores.view(memory.dtype).ravel()
        values = np.full((rows, k), 77, dtype=memory.dtype)
        indices = np.full((rows, k), -7, dtype=np.int32)
        counters = np.zeros(2 * rows, dtype=np.int32)
        lists = np.zeros(rows * room, dtype=np.int64)
        given: dict[str, Any] = {
            "scores": memory if scores.size else None, "vectors": vectors, "skew": skew,
            "stride": max(width, 3), "width": width,  # apart from one another even if empty
            "lengths": lengths, "lengths_kind": _kind(lengths),
            "starts": starts, "starts_kind": _kind(starts),
            "indices": indices, "indices_stride": k, "values": values, "values_stride": k,
            "with_values": 1, "counters": counters, "lists": lists, "room": room, "k": k,
            "blocks": blocks, "order": order, "largest": int(largest), "grid": rows * blocks,
        }  # fmt: skip
        assert set(given) == {*ARGUMENTS, "grid"}
        arguments = [
            ctypes.c_void_p(None if given[name] is None else given[name].ctypes.data)
            if "*" in kind
            else _KINDS[kind](given[name])
            for kind, name in self.kernel.parameters
        ]
        self.launch(*arguments, ctypes.c_int(rows * blocks), ctypes.c_int(turns))
        assert not counters.any(), "counters are left behind"
        assert not lists.any(), "entries are left behind"
        return values, indices


def overrun_arrays(which: Specialisation, folder: Path) -> str:
    """What the host compiler says about accesses past the end of a thread's own arrays, which a GPU
    may keep in registers: there they are lost, and here they often hit nothing."""
    source = folder / f"{which.name}.cc"
    source.write_text(_host_source(lower(program(which), "sm_90a")))
    command = [*_COMPILE, "-O2", "-Warray-bounds", str(source), "-o", str(folder / "checked.so")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def _kind(vector: NDArray[Any] | None) -> int:
    return 0 if vector is None else {4: 1, 8: 2}[vector.itemsize]


def _host_source(kernel: Kernel) -> str:
    device = re.sub(r"#include <(tl_templates|cuda|math_constants).*", "", kernel.source)
    device = re.sub(
        r"extern __shared__ __align__\(1024\) uchar (\w+)\[\];",
        r"uchar* \1 = emulated::shared_memory();",
        device,
    )
    parameters = ", ".join(f"{kind} {name}" for kind, name in kernel.parameters)
    names = ", ".join(name for _, name in kernel.parameters)
    return f"""#include "device.h"
{device}
extern "C" __attribute__((visibility("default")))
void launch({parameters}, int blocks_in_all, int turns) {{
  for (int block = 0; block < blocks_in_all; ++block) {{
    emulated::run_block(block, {kernel.threads}, {kernel.shared_bytes}, turns,
                        [&] {{ {kernel.symbol}({names}); }});
  }}
}}
"""
