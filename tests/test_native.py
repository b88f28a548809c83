"""The C++ tests of csrc's host code, compiled by the system's compiler and run, also sanitized."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

from tl_topk.tile.toolchain import nvcc

ROOT = Path(__file__).parents[1]
NATIVE = ROOT / "tests" / "native"
SOURCES = sorted([*(ROOT / "csrc").glob("*.cc"), *(ROOT / "csrc" / "cpu").glob("*.cc")])
PROGRAMS = sorted(path.stem for path in NATIVE.glob("*_test.cc"))

SANITIZE = ("-O2", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")
MODES = {
    "plain": ("-O2",),
    "address": (*SANITIZE, "-fsanitize=address,undefined"),
    "thread": (*SANITIZE, "-fsanitize=thread"),
}
# What shares no data between threads gains nothing from the thread sanitizer, and that one refuses
# to start threads in a child of fork().
IN_THREADS = ("thread_pool_test", "topk_cpu_test")
CASES = [
    (program, mode)
    for program in PROGRAMS
    for mode in MODES
    if mode != "thread" or program in IN_THREADS
]

COMPILE_S = 120
RUN_S = 120

pytestmark = pytest.mark.skipif(not SOURCES, reason="not a checkout: the C++ sources are not here")


def compiler() -> list[str]:
    """$CXX, which may carry options, or g++ or clang++; another one for these tests alone."""
    chosen = os.environ.get("TL_TOPK_NATIVE_CXX") or os.environ.get("CXX", "")
    command = shlex.split(chosen) or ["g++"]
    for candidate in (command, ["g++"], ["clang++"]):
        if shutil.which(candidate[0]):
            return candidate
    pytest.skip("no C++ compiler: neither $CXX nor g++ nor clang++")


def compile_with(mode: str, *arguments: str | Path) -> None:
    command = [*compiler(), "-std=c++17", "-pthread", *MODES[mode]]
    command += [f"-I{ROOT / 'csrc'}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stderr}"


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Path]]:
    """The objects of csrc's host code for a mode, compiled once; skips a mode that cannot run."""
    folder = tmp_path_factory.mktemp("native")

    @cache
    def refusal(mode: str) -> str:
        """Why a program of this mode cannot run: its run-time library is missing, or the kernel's
        address layout does not suit it. Empty if it can."""
        source = folder / f"{mode}.cc"
        source.write_text("int main() { return 0; }\n")
        program = source.with_suffix("")
        command = [*compiler(), *MODES[mode], str(source), "-o", str(program)]
        for step in (command, [str(program)]):
            done = subprocess.run(step, capture_output=True, text=True, timeout=COMPILE_S)
            if done.returncode != 0:
                return f"{shlex.join(step)}: {done.stderr.strip() or done.returncode}"
        return ""

    @cache
    def compiled(mode: str) -> list[Path]:
        objects = [folder / f"{source.stem}.{mode}.o" for source in SOURCES]
        with ThreadPoolExecutor(max_workers=2) as pool:
            list(
                pool.map(
                    lambda pair: compile_with(mode, "-c", pair[0], "-o", pair[1]),
                    zip(SOURCES, objects, strict=True),
                )
            )
        return objects

    def objects(mode: str) -> list[Path]:
        if why := refusal(mode):
            pytest.skip(why)
        return compiled(mode)

    return objects


@pytest.mark.parametrize(("program", "mode"), CASES)
def test_program(
    program: str, mode: str, backend: Callable[[str], list[Path]], tmp_path: Path
) -> None:
    binary = tmp_path / program
    compile_with(mode, NATIVE / f"{program}.cc", *backend(mode), "-o", binary)
    done = subprocess.run([str(binary)], capture_output=True, text=True, timeout=RUN_S)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.exhaustive
def test_every_float(tmp_path: Path) -> None:
    """All 2^32 of them: the order of keys, and the bin map's monotony."""
    binary = tmp_path / "every_float"
    # With the processor's fused multiply-add: the library's one is ten times slower.
    compile_with("plain", "-march=native", NATIVE / "every_float.cc", "-o", binary)
    done = subprocess.run([str(binary)], capture_output=True, text=True, timeout=10 * RUN_S)
    assert done.returncode == 0, done.stdout + done.stderr


def test_programs_found() -> None:
    assert set(IN_THREADS) < set(PROGRAMS)


@pytest.mark.skipif(nvcc() is None, reason="there is no nvcc")
@pytest.mark.parametrize("architecture", ["80", "120f"])
def test_kernels_compile_for_other_architectures(architecture: str, tmp_path: Path) -> None:
    """`make` builds for the GPU that is there alone, and for 90a where there is none."""
    command = [str(nvcc()), "-std=c++17", "-O1", "-Xptxas", "-O0", f"-I{ROOT / 'csrc'}", "-c"]
    command += ["-gencode", f"arch=compute_{architecture},code=sm_{architecture}"]
    command += [str(NATIVE / "other_architectures.cu"), "-o", str(tmp_path / "kernels.o")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S)
    if "Unsupported gpu architecture" in done.stderr:
        pytest.skip(f"this nvcc does not know {architecture}")
    assert done.returncode == 0, done.stderr
