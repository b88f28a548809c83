"""TileLang programs on a machine without a GPU: lowered, compiled, cached, refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import tvm_ffi
from click.testing import CliRunner

from tl_topk.cli import cli
from tl_topk.problem import Problem
from tl_topk.tile import library, toolchain
from tl_topk.tile.choice import all_kernels, choose
from tl_topk.tile.compiler import Kernel, Program, host_source, lower
from tl_topk.tile.pipelined import (
    ARGUMENTS,
    CAPACITIES,
    HELD,
    Specialisation,
    program,
    specialise,
)

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ("tilelang_host_chain", "tilelang_router", "tilelang_score_and_select")
needs_tilelang = pytest.mark.skipif(
    toolchain.missing_language() is not None, reason=str(toolchain.missing_language())
)
needs_tools = pytest.mark.skipif(
    toolchain.missing_tool() is not None, reason=str(toolchain.missing_tool())
)
H200_SMS = 132
H200_CLUSTERS = [132, 66, 32, 15, 7]

TINY = """
import sys
from pathlib import Path
from tl_topk.tile.compiler import Program
from tl_topk.tile.library import load

def trace():
    import tilelang.language as T
    n = T.dynamic("n", "int64")

    @T.prim_func
    def double(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32"), grid: T.int32):
        with T.Kernel(grid, threads=128) as block:
            i = block * 128 + T.get_thread_binding()
            if i < n:
                y[i] = 2 * x[i]

    return double

print(load(Program("double", trace, ("x", "y", "n")), "sm_90a")["launch"])
"""


def run(script: Path, **environment: str) -> subprocess.Popen[str]:
    paths = os.pathsep.join([str(ROOT), *sys.path])
    return subprocess.Popen(
        [sys.executable, script],
        env=os.environ | {"PYTHONPATH": paths} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@needs_tilelang
@pytest.mark.parametrize("cluster", [1, 16])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_selector_lowers(dtype: str, cluster: int) -> None:
    kernel = lower(program(Specialisation(dtype, 2048, cluster)), "sm_90a")
    assert kernel.threads == 512
    assert kernel.shared_bytes <= 227 << 10
    names = {name for _, name in kernel.parameters}
    assert names <= {*ARGUMENTS, "grid"}
    assert "cp_async_gs" in kernel.source, "the loads are not asynchronous"
    assert "CUtensorMap" not in kernel.source


@needs_tools
def test_the_largest_capacity_compiles(tmp_path: Path) -> None:
    (path,) = library.export([program(Specialisation("bfloat16", 4096))], "sm_90a", tmp_path)
    module = tvm_ffi.load_module(str(path))
    with pytest.raises(TypeError, match="expected 23 arguments"):
        module["launch"]()


@needs_tools
def test_processes_at_once(tmp_path: Path) -> None:
    """One compiles, the others wait for it; a later one neither compiles nor needs TileLang."""
    script = tmp_path / "tiny.py"
    script.write_text(TINY)
    cache = {"TL_TOPK_CACHE": str(tmp_path / "cache")}
    several = [run(script, **cache) for _ in range(3)]
    outputs = [process.communicate() for process in several]
    assert [process.returncode for process in several] == [0, 0, 0], outputs
    assert sum("compiling double for sm_90a (1 of 1)" in error for _, error in outputs) == 1
    (found,) = (tmp_path / "cache").glob("*/*.so")
    # As if TileLang were not installed: the folder is named as one made ahead of time.
    script.write_text(
        "import sys; sys.modules['tilelang'] = None\n"
        "from tl_topk.tile import toolchain; toolchain.tilelang_version = lambda: None\n" + TINY
    )
    later = run(script, TL_TOPK_KERNELS=str(found.parent), TL_TOPK_CACHE=str(tmp_path / "none"))
    _, error = later.communicate()
    assert later.returncode == 0, error
    assert "compiling" not in error


def test_the_host_function_knows_its_arguments() -> None:
    kernel = Kernel("f", (("float* ", "x"), ("int64_t", "n"), ("float", "s")), 64, 100, "")
    text = host_source(kernel, ("n", "unused", "x", "s"), 1)
    assert "int64_t n = (int64_t)arguments[0].v_int64;" in text
    assert "x = (float* )arguments[2].v_ptr;" in text
    assert "arguments[3].v_float64" in text
    assert "count != 6" in text
    with pytest.raises(RuntimeError, match=r"without \['s'\]"):
        host_source(kernel, ("n", "x"), 1)


def test_a_library_is_known_by_all_that_matters(tmp_path: Path) -> None:
    mine = tmp_path / "mine.cuh"
    mine.write_text("one")
    names = {library.file_name(p, arch) for arch in ("sm_90a", "sm_100a") for p in variants(mine)}
    assert len(names) == 8
    library._digest_of.cache_clear()
    mine.write_text("two")
    assert not names & {library.file_name(p, "sm_90a") for p in variants(mine)[:1]}


def variants(source: Path) -> list[Program]:
    def trace() -> object:
        raise AssertionError("not lowered here")

    plain = Program("p", trace, ("x",), sources=(source,))
    return [
        plain,
        Program("q", trace, ("x",), sources=(source,)),
        Program("p", trace, ("x", "y"), sources=(source,)),
        Program("p", trace, ("x",), sources=(source,), cluster=2),
    ]


class TestRefusals:
    """One sentence that says what to install or to choose."""

    @pytest.fixture(autouse=True)
    def no_kernels(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("TL_TOPK_CACHE", str(tmp_path))
        monkeypatch.delenv("TL_TOPK_KERNELS", raising=False)

    def refusal(self) -> str:
        with pytest.raises(RuntimeError) as caught:
            library.load(program(Specialisation("float32", 512)), "sm_90a")
        return str(caught.value)

    def version(self, monkeypatch: pytest.MonkeyPatch, found: str | None) -> None:
        for module in (toolchain, library):
            monkeypatch.setattr(module, "tilelang_version", lambda: found)

    def test_no_tilelang(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.version(monkeypatch, None)
        text = self.refusal()
        assert "pipelined-float32-k512 for sm_90a has not been compiled" in text
        assert "tl-topk compile" in text
        assert "TileLang is not installed: pip install 'tl-topk[tilelang]'" in text

    def test_another_tilelang(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.version(monkeypatch, "0.1.11")
        assert "TileLang 0.1.11 is installed, 0.1.15 is needed" in self.refusal()

    @needs_tilelang
    def test_no_nvcc(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(toolchain, "nvcc", lambda: None)
        assert "no nvcc was found" in self.refusal()

    @needs_tools
    def test_a_capture(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import torch

        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        assert "call once before the capture" in self.refusal()

    def test_an_old_architecture(self) -> None:
        assert toolchain.architecture(90) == "sm_90a"
        assert toolchain.architecture(89) == "sm_89"
        with pytest.raises(ValueError, match=r"^architecture: expected .* 8\.0 .* got 7\.5$"):
            toolchain.architecture(75)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--k", "9999"], "k: expected 0 to 4096"),
            (["--k", "many"], "expected integers"),
            (["--dtype", "int8"], "expected some of float32"),
            (["--arch", "hopper"], "expected a name such as sm_90a"),
            (["--arch", "sm_70"], "8.0 or newer"),
        ],
    )
    def test_the_command(self, arguments: list[str], words: str, tmp_path: Path) -> None:
        with pytest.raises(Exception, match=words):
            cli.main(["compile", *arguments, "-o", str(tmp_path)], standalone_mode=False)

    def test_the_command_names_what_it_made(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With an export that compiles nothing: what is asked for, and what is said of it."""

        def export(programs: Iterable[Program], arch: str, folder: Path) -> Iterator[Path]:
            assert arch == "sm_90a"
            for each in programs:
                yield folder / f"{each.name}.so"

        monkeypatch.setattr("tl_topk.tile.library.export", export)
        asked = ["compile", "--arch", "sm_90a", "--k", "300,512", "--dtype", "float16"]
        result = CliRunner().invoke(cli, [*asked, "-o", str(tmp_path), "--json"])
        answer = json.loads(result.stdout)
        assert answer["arch"] == "sm_90a"
        # Both k have the same kernels: one that meets in clusters, one that does not.
        assert len(answer["libraries"]) == len(set(answer["libraries"])) == 2
        result = CliRunner().invoke(cli, [*asked, "-o", str(tmp_path)])
        assert result.stdout.split() == answer["libraries"]


class TestChoices:
    def test_the_smallest_kernel_that_serves(self) -> None:
        assert [specialise("float32", k).capacity for k in (0, 1, 512, 513, 2048, 4096)] == [
            512, 512, 512, 1024, 2048, 4096,
        ]  # fmt: skip

    def test_reasons(self) -> None:
        def reason(rows: int, width: int) -> str:
            problem = Problem(rows, width, 2048, "float32", device_type="cuda")
            return choose(problem, H200_SMS, H200_CLUSTERS).reason

        assert reason(1, 65_536) == "a cluster of 16 blocks a row"
        assert reason(1, 1 << 20) == "132 blocks a row, which meet in global memory"
        assert reason(1, 100) == "a block a row"

    def test_blocks(self) -> None:
        for rows in (0, 1, 3, 7, 8, 64, 66, 67, 132, 133, 5000):
            for width in (0, 100, 4096, 4097, 65_536, 65_537, 131_072, 1 << 20, 2**31 - 1):
                problem = Problem(rows, width, 2048, "float32", device_type="cuda")
                choice = choose(problem, H200_SMS, H200_CLUSTERS)
                blocks, cluster = choice.blocks_per_row, choice.which.cluster
                assert blocks == 1 or rows * blocks <= H200_SMS
                assert blocks == 1 or width > HELD[2048]
                assert (cluster == 16) == (0 < rows <= 7 and 4096 < width <= 65_536)
                assert cluster in (1, blocks)
                assert (choice.room > 0) == (blocks > 1 and cluster == 1)
                assert choice.room == 0 or CAPACITIES[2048] <= choice.room <= 4 * CAPACITIES[2048]
                assert choice.which in all_kernels("float32", 2048, 90)

    def test_clusters_if_told(self) -> None:
        problem = Problem(64, 1 << 20, 2048, "float32", device_type="cuda")
        choice = choose(problem, H200_SMS, H200_CLUSTERS, cluster=8)
        assert (choice.which.cluster, choice.blocks_per_row, choice.room) == (8, 8, 0)

    def test_no_clusters(self) -> None:
        """Before compute capability 9.0."""
        problem = Problem(1, 65_536, 2048, "float32", device_type="cuda")
        assert choose(problem, H200_SMS, [H200_SMS, 0, 0, 0, 0]).which.cluster == 1
        assert [which.cluster for which in all_kernels("float32", 1, 89)] == [1]


@needs_tools
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_compile(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tilelang

    monkeypatch.syspath_prepend(str(ROOT / "tests"))
    example = __import__(f"examples.{name}", fromlist=["program"])
    kernel = tilelang.compile(example.program(), target={"kind": "cuda", "arch": "sm_90a"})
    source = kernel.get_kernel_source()
    expected = kernel.get_host_source() if "chain" in name else source
    assert "tl_topk" in expected


@pytest.mark.gpu
@needs_tools
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / f"tests/examples/{name}.py")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@needs_tilelang
class TestLanguage:
    """What is wrong is said while the program is traced."""

    def trace(self, threads: int, dtype: str = "float32", k: object = 8, order: str = "any") -> str:
        import tilelang.language as T  # noqa: N812

        from tl_topk import lang as tk

        @T.prim_func
        def select(
            x: T.Tensor((256,), dtype),  # type: ignore[valid-type]
            y: T.Tensor((8,), "int32"),  # type: ignore[valid-type]
            n: T.int32,
        ):
            with T.Kernel(1, threads=threads):
                scores = T.alloc_shared((256,), dtype)
                best = T.alloc_shared((8,), "int32")
                T.copy(x, scores)
                tk.block_topk(scores, 256, n if k is None else k, best, order=order)
                T.copy(best, y)

        return lower(Program("p", lambda: select, ("x", "y", "n")), "sm_90a").source

    def test_right(self) -> None:
        assert "tl_topk::lang::topk<0, 96>" in self.trace(96)
        assert "tl_topk::lang::topk<2, 128>" in self.trace(128, "bfloat16", None)

    def test_wrong(self) -> None:
        with pytest.raises(Exception, match="threads: expected a multiple of 32 up to 1024, got 8"):
            self.trace(80)
        with pytest.raises(Exception, match=r"scores: expected .* got 'int32'"):
            self.trace(128, "int32")
        with pytest.raises(Exception, match="k: expected a Python integer"):
            self.trace(128, k=None, order="value")
        with pytest.raises(Exception, match="order: expected"):
            self.trace(128, order="best")
