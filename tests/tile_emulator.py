"""Runs the generated source of TileLang programs on the CPU, thread by thread.

So their answers are tested where there is no GPU, for all that a single block does between its
barriers, and races are found: the sanitizer for threads knows of these threads and their barriers.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tl_topk.tile.compiler import Kernel, Program, lower
from tl_topk.tile.pipelined import ARGUMENTS, CAPACITIES, Specialisation, program
from tl_topk.tile.toolchain import header_folder

FOLDER = Path(__file__).parent / "emulated"
_COMPILE = (
    *("c++", "-std=c++17"),
    *(f"-I{path}" for path in (FOLDER / "shim", FOLDER, header_folder())),
)
_KINDS = {"int": ctypes.c_int, "int64_t": ctypes.c_int64, "float": ctypes.c_float}
WATCH = ("-fsanitize=thread",)
WATCHING = os.environ | {"TSAN_OPTIONS": "halt_on_error=1"}

#: A parameter's C type, and a number or an array or None.
Argument = tuple[str, Any]
Launcher = Callable[[Sequence[Argument]], object]


class RaceError(Exception):
    """What the sanitizer says about two threads."""


def missing_sanitizer(folder: Path) -> str:
    """Why races cannot be watched for here; empty where they can."""
    source = folder / "empty.cc"
    source.write_text("#include <sanitizer/tsan_interface.h>\nint main() {}\n")
    for command in (["c++", *WATCH, str(source), "-o", str(folder / "empty")], [folder / "empty"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return done.stderr
    return ""


@dataclass(frozen=True)
class EmulatedKernel:
    """A TileLang program, compiled by the host compiler."""

    kernel: Kernel
    launch: Launcher

    @staticmethod
    def build(program: Program, folder: Path) -> EmulatedKernel:
        kernel = lower(program, "sm_90a")
        source = folder / f"{program.name}.cc"
        source.write_text(_host_source(kernel))
        library = source.with_suffix(".so")
        # Hidden: see kernel_emulator.FLAGS.
        flags = ("-shared", "-fPIC", "-fvisibility=hidden", "-O1")
        subprocess.run([*_COMPILE, *flags, str(source), "-o", str(library)], check=True)
        native = ctypes.CDLL(str(library)).launch
        return EmulatedKernel(kernel, lambda arguments: native(*map(_as_c, arguments)))

    @staticmethod
    def build_watched(program: Program, folder: Path) -> EmulatedKernel:
        """One that raises :class:`RaceError`, and leaves its results in another process."""
        kernel = lower(program, "sm_90a")
        source, call = folder / f"watched_{program.name}.cc", folder / "call.bin"
        source.write_text(_host_source(kernel) + _watched_main(kernel))
        watched = source.with_suffix("")
        flags = (*WATCH, "-O1", "-g")
        subprocess.run([*_COMPILE, *flags, str(source), "-o", str(watched)], check=True)

        def launch(arguments: Sequence[Argument]) -> None:
            call.write_bytes(b"".join(map(_as_bytes, arguments)))
            done = subprocess.run([watched, call], env=WATCHING, capture_output=True, text=True)
            if done.returncode != 0:
                raise RaceError(done.stderr)

        return EmulatedKernel(kernel, launch)

    def __call__(self, given: Mapping[str, Any], blocks: int, turns: int = 0) -> None:
        """Runs so many blocks with arrays and numbers by the names of the kernel's parameters.
        Threads take ``turns``: 0 upwards, 1 downwards, 2 and more at random, by that seed."""
        arguments = [(kind, given[name]) for kind, name in self.kernel.parameters]
        self.launch([*arguments, ("int", blocks), ("int", turns)])


@dataclass(frozen=True)
class EmulatedSelector:
    """One specialisation of the selector."""

    which: Specialisation
    emulated: EmulatedKernel

    @staticmethod
    def build(which: Specialisation, folder: Path) -> EmulatedSelector:
        return EmulatedSelector(which, EmulatedKernel.build(program(which), folder))

    @staticmethod
    def build_watched(which: Specialisation, folder: Path) -> EmulatedSelector:
        return EmulatedSelector(which, EmulatedKernel.build_watched(program(which), folder))

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
        with_values: bool = True,
    ) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """Values (as bits) and indices (rows, k); the scores begin ``skew`` after a boundary."""
        rows, width = scores.shape
        room = CAPACITIES[self.which.capacity] if room is None else room
        per_vector = 16 // scores.itemsize
        vectors = (skew + scores.size) // per_vector  # whole ones
        # NaN all around: what is outside must not matter.
        memory = np.full((vectors + 3) * per_vector, -1, dtype=f"i{scores.itemsize}")
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
            "with_values": int(with_values), "counters": counters, "lists": lists, "room": room,
            "k": k, "blocks": blocks, "order": order, "largest": int(largest),
            "grid": rows * blocks,
        }  # fmt: skip
        assert set(given) == {*ARGUMENTS, "grid"}
        self.emulated(given, rows * blocks, turns)
        assert with_values or (values == 77).all()
        assert not counters.any(), "counters are left behind"
        assert not lists.any(), "entries are left behind"
        return values, indices


def overrun_arrays(which: Specialisation, folder: Path) -> str:
    """What the host compiler says about accesses past the end of a thread's own arrays, which a GPU
    may keep in registers: there they are lost, and here they often hit nothing."""
    source = folder / f"{which.name}.cc"
    source.write_text(_host_source(lower(program(which), "sm_90a")))
    command = [*_COMPILE, "-c", "-O2", "-Warray-bounds", str(source), "-o", str(folder / "checked")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr


def _as_c(argument: Argument) -> Any:
    kind, value = argument
    if "*" in kind:
        return ctypes.c_void_p(None if value is None else value.ctypes.data)
    return _KINDS[kind](value)


def _as_bytes(argument: Argument) -> bytes:
    """Of a number its own, of an array first how many they are."""
    kind, value = argument
    if "*" in kind:
        content = b"" if value is None else value.tobytes()
        return bytes(ctypes.c_int64(len(content))) + content
    return bytes(_KINDS[kind](value))


def _watched_main(kernel: Kernel) -> str:
    """A program that reads one call from a file and makes it."""
    kinds = [*(kind for kind, _ in kernel.parameters), "int", "int"]
    taken = ", ".join(f"take<{kind}>()" for kind in kinds)
    return f"""
#include <fstream>
#include <tuple>
std::ifstream call;
template <typename T>
T take() {{
  if constexpr (std::is_pointer_v<T>) {{
    const auto bytes = take<int64_t>();
    auto* const array = std::aligned_alloc(16, (bytes + 31) / 16 * 16);
    call.read(static_cast<char*>(array), bytes);
    return bytes == 0 ? nullptr : static_cast<T>(array);
  }} else {{
    T number;
    call.read(reinterpret_cast<char*>(&number), sizeof number);
    return number;
  }}
}}
int main(int, char** arguments) {{
  call.open(arguments[1], std::ios::binary);
  std::apply(launch, std::tuple<{", ".join(kinds)}>{{{taken}}});
  return call ? 0 : 1;
}}
"""


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
