"""The native library's objects and functions as TVM FFI exports them."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm_ffi

from tl_topk import _ffi
from tl_topk._ffi import DeviceInfo, LaunchConfig, PlanSet, TopKPlan, exports

ROOT = Path(__file__).resolve().parents[1]
FIELDS = tuple(inspect.signature(TopKPlan).parameters)
ROWS, WIDTH, K = 3, 40, 5
COUNTER_BYTES = 4096  # that a workspace begins with, zeroed by every launch


def h200(**changes: Any) -> DeviceInfo:
    facts: dict[str, Any] = {
        "device_id": 0,
        "name": "NVIDIA H200",
        "compute_capability": 90,
        "sms": 132,
        "shared_memory_per_block": 232448,
        "l2_bytes": 60 << 20,
        "max_cluster": 16,
        "coresident_clusters": [132, 66, 32, 15, 7],
        "built_architectures": ["90a"],
    }
    return DeviceInfo(**{**facts, **changes})


def distinct(rows: int, width: int, device: str = "cpu") -> torch.Tensor:
    """Scores without ties, so that torch.topk's answer is the only one."""
    return torch.rand(rows, width, device=device).argsort(dim=1).float()


def loaded_library() -> Path:
    """The file behind ``LIB``, as the operating system sees it."""
    paths = {
        line.split()[-1]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if line.endswith("libtl_topk.so")
    }
    (path,) = paths
    return Path(path)


def run_python(code: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    ).stdout.strip()


class TestPlan:
    def plan(self, **changes: Any) -> TopKPlan:
        return TopKPlan(**{"rows": ROWS, "width": WIDTH, "k": K, **changes})

    def test_fields_are_what_was_asked(self) -> None:
        asked = (2, 9, 4, "bfloat16", "value", False, False, "cpu", 0, 1, 0)
        plan = TopKPlan(*asked)
        assert tuple(getattr(plan, name) for name in FIELDS) == asked
        assert (plan.backend, plan.config, plan.workspace_bytes) == ("cpu", None, 0)
        with pytest.raises(AttributeError):
            plan.rows = 3

    def test_copies(self) -> None:
        plan = self.plan(order="index", threads=2)
        rebuilt = TopKPlan(**{name: getattr(plan, name) for name in FIELDS})
        for other in (
            rebuilt,
            copy.copy(plan),
            copy.deepcopy(plan),
            pickle.loads(pickle.dumps(plan)),
        ):
            assert not other.same_as(plan)
            assert repr(other) == repr(plan)

    def test_repr_explains(self) -> None:
        text = repr(self.plan(largest=False, order="index", values=False, threads=1))
        for part in (
            "5 smallest",
            "3 rows",
            "40 float32",
            "index order",
            "only",
            "cpu",
            "1 thread",
        ):
            assert part in text
        assert self.plan().explain() == repr(self.plan())

    @pytest.mark.parametrize(
        ("name", "bad"),
        [
            *(("rows", -1), ("width", -1), ("width", 2**31), ("k", -1), ("k", 2**31)),
            *(("dtype", "float64"), ("dtype", ""), ("order", "best"), ("device_type", "rocm")),
            *(("device_id", 1), ("device_id", -1), ("threads", -1), ("threads", 1 << 20)),
            *(("blocks_per_row", 1), ("blocks_per_row", -1)),
        ],
    )
    def test_bad_problem(self, name: str, bad: Any) -> None:
        with pytest.raises(ValueError, match=rf"^{name}: expected .* got"):
            self.plan(**{name: bad})

    @pytest.mark.parametrize("name", FIELDS)
    def test_bad_type(self, name: str) -> None:
        with pytest.raises(TypeError):
            self.plan(**{name: object()})
        with pytest.raises(TypeError):
            self.plan(unheard_of=1)

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
    def test_cuda_without_a_gpu(self) -> None:
        reason = "CUDA device" if _ffi.build_info()["cuda"] else "without CUDA"
        for make in (lambda: self.plan(device_type="cuda"), _ffi.device_info):
            with pytest.raises(RuntimeError, match=reason):
                make()

    def test_many_threads_at_once_are_safe_without_a_workspace(self) -> None:
        scores = distinct(4, 50_000)
        expected = scores.topk(500).indices.sort().values.int()
        plan = TopKPlan(4, 50_000, 500, order="index", values=False)

        def select(_: int) -> bool:
            indices = torch.empty(4, 500, dtype=torch.int32)
            plan.run(scores, indices)
            return torch.equal(indices, expected)

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(select, range(40)))


class TestRun:
    """Every argument is checked before anything is written."""

    @pytest.fixture
    def plan(self) -> TopKPlan:
        return TopKPlan(ROWS, WIDTH, K)

    @pytest.fixture
    def good(self) -> dict[str, Any]:
        return {
            "scores": distinct(ROWS, WIDTH),
            "indices": torch.full((ROWS, K), 77, dtype=torch.int32),
            "values": torch.full((ROWS, K), 77.0),
            "lengths": torch.full((ROWS,), WIDTH, dtype=torch.int32),
            "row_starts": torch.zeros(ROWS, dtype=torch.int64),
            "workspace": torch.zeros(64, dtype=torch.uint8),
        }

    BAD: tuple[tuple[str, Callable[[], Any], str], ...] = (
        ("scores", lambda: torch.randn(ROWS, WIDTH + 1), r"\(3, 40\), got \(3, 41\)"),
        ("scores", lambda: torch.randn(ROWS * WIDTH), r"\(3, 40\), got \(120,\)"),
        ("scores", lambda: torch.randn(ROWS, WIDTH).half(), "float32, got float16"),
        ("scores", lambda: torch.randn(WIDTH, ROWS).T, "unit stride"),
        ("indices", lambda: torch.zeros(ROWS, K), "int32, got float32"),
        ("indices", lambda: torch.zeros(ROWS, K + 1, dtype=torch.int32), r"\(3, 5\), got \(3, 6\)"),
        ("indices", lambda: torch.zeros(K, dtype=torch.int32).expand(ROWS, K), "share no memory"),
        ("values", lambda: torch.zeros(ROWS, K).double(), "float32, got float64"),
        ("values", lambda: None, "got None"),
        ("lengths", lambda: torch.zeros(ROWS), "int32 or int64, got float32"),
        ("lengths", lambda: torch.zeros(ROWS + 1, dtype=torch.int32), r"\(3,\), got \(4,\)"),
        ("row_starts", lambda: torch.zeros(ROWS, 1, dtype=torch.int32), r"\(3,\), got \(3, 1\)"),
        ("row_starts", lambda: torch.zeros(2 * ROWS, dtype=torch.int32)[::2], "unit stride"),
        ("workspace", lambda: torch.zeros(64), "uint8, got float32"),
        ("workspace", lambda: torch.zeros(8, 8, dtype=torch.uint8), r"\(n,\)"),
        ("workspace", lambda: torch.zeros(64, dtype=torch.uint8)[1:], "aligned"),
    )

    @pytest.mark.parametrize(("name", "bad", "why"), BAD)
    def test_refused(
        self, plan: TopKPlan, good: dict[str, Any], name: str, bad: Callable[[], Any], why: str
    ) -> None:
        with pytest.raises((TypeError, ValueError), match=rf"\b{name}: expected .*{why}"):
            plan.run(**{**good, name: bad()})
        for output in ("indices", "values"):
            assert (good[output] == 77).all()
        plan.run(**good)
        assert (good["values"] == good["scores"].gather(1, good["indices"].long())).all()

    @pytest.mark.parametrize("name", ["scores", "indices", "values", "lengths"])
    def test_storage_resized_to_nothing(
        self, plan: TopKPlan, good: dict[str, Any], name: str
    ) -> None:
        good[name].untyped_storage().resize_(0)
        with pytest.raises(ValueError, match=rf"\b{name}: expected memory .* got none"):
            plan.run(**good)

    def test_values_of_a_plan_without(self, good: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="values: expected None"):
            TopKPlan(ROWS, WIDTH, K, values=False).run(**good)

    def test_overlap(self, plan: TopKPlan, good: dict[str, Any]) -> None:
        flat = good["scores"].view(-1)
        inside = flat[7 : 7 + ROWS * K].view(ROWS, K)
        with pytest.raises(ValueError, match=r"values: .* scores uses too"):
            plan.run(**{**good, "values": inside})
        with pytest.raises(ValueError, match=r"indices: .* scores uses too"):
            plan.run(**{**good, "indices": inside.view(torch.int32)})
        with pytest.raises(ValueError, match=r"values: .* out indices uses too"):
            plan.run(**{**good, "values": good["indices"].view(torch.float32)})
        with pytest.raises(ValueError, match=r"indices: .* lengths uses too"):
            plan.run(**{**good, "lengths": good["indices"].view(-1)[:ROWS]})
        with pytest.raises(ValueError, match=r"workspace: .* scores uses too"):
            plan.run(**{**good, "workspace": good["scores"].view(torch.uint8).view(-1)})

    def test_rows_may_lie_between_rows(self, plan: TopKPlan) -> None:
        """Scores, values and indices as columns of one matrix share no element."""
        whole = distinct(ROWS, WIDTH + 2 * K)
        scores, values, indices = whole.split([WIDTH, K, K], dim=1)
        plan.run(scores, indices.view(torch.int32), values)
        assert torch.equal(values.sort(descending=True).values, scores.topk(K).values)
        with pytest.raises(ValueError, match="uses too"):
            plan.run(scores, indices.view(torch.int32), whole[:, WIDTH - 1 : WIDTH - 1 + K])

    def test_one_row_may_be_a_vector(self) -> None:
        plan = TopKPlan(1, WIDTH, K, values=False)
        scores = np.random.default_rng(0).standard_normal(WIDTH).astype(np.float32)
        vector, matrix = np.empty(K, np.int32), np.empty((1, K), np.int32)
        plan.run(scores, vector)
        plan.run(scores[None], matrix)
        assert sorted(vector) == sorted(matrix[0]) == sorted(np.argsort(-scores)[:K])
        with pytest.raises(ValueError, match=r"indices: expected shape \(5,\), got \(1, 5\)"):
            plan.run(scores, matrix)

    @pytest.mark.parametrize(("rows", "k"), [(0, K), (ROWS, 0), (0, 0)])
    def test_nothing_to_do(self, rows: int, k: int) -> None:
        indices = torch.empty(rows, k, dtype=torch.int32)
        TopKPlan(rows, WIDTH, k, values=False).run(torch.randn(rows, WIDTH), indices)


class TestDirectCalls:
    """The functions that the Python methods call read their arguments without the FFI's help."""

    BAD: tuple[tuple[int, Callable[[Any, Any, Any], tuple[Any, ...]], str], ...] = (
        (2, lambda plan, scores, indices: (), "got `None`"),
        (0, lambda plan, scores, indices: (scores, scores, indices), "got `ffi.Tensor"),
        (1, lambda plan, scores, indices: (plan, None, indices), "got `None`"),
        (1, lambda plan, scores, indices: (plan, plan, indices), "got `tl_topk"),
        (2, lambda plan, scores, indices: (plan, scores), "got `None`"),
        (2, lambda plan, scores, indices: (plan, scores, 5), "got `int`"),
        (3, lambda plan, scores, indices: (plan, scores, indices, "x"), "got `ffi.SmallStr`"),
    )

    @pytest.mark.parametrize(("argument", "given", "why"), BAD)
    @pytest.mark.parametrize("several", [False, True])
    def test_refused_in_the_words_of_the_typed_methods(
        self, argument: int, given: Callable[..., tuple[Any, ...]], why: str, several: bool
    ) -> None:
        plan = TopKPlan(ROWS, WIDTH, K, values=False)
        called, name = (PlanSet([plan]), "PlanSet") if several else (plan, "TopKPlan")
        run = _ffi.LIB.get_function("run_plan_set" if several else "run_plan")
        indices = torch.full((ROWS, K), 77, dtype=torch.int32)
        message = rf"argument #{argument} when calling: `tl_topk\.{name}\.run\(.*{why}"
        with pytest.raises(TypeError, match=message):
            run(*given(called, distinct(ROWS, WIDTH), indices))
        assert (indices == 77).all()

    @pytest.mark.parametrize(("several", "most"), [(False, 7), (True, 6)])
    def test_too_many(self, several: bool, most: int) -> None:
        plan = TopKPlan(ROWS, WIDTH, K, values=False)
        run = _ffi.LIB.get_function("run_plan_set" if several else "run_plan")
        given = PlanSet([plan]) if several else plan, distinct(ROWS, WIDTH)
        for count in (most + 1, most + 2):
            with pytest.raises(TypeError, match=f"Expected {most} but got {count} arguments"):
                run(*given, *[None] * (count - 2))

    def test_trailing_nones_may_be_left_out(self) -> None:
        plan = TopKPlan(ROWS, WIDTH, K, "float32", "index", values=False)
        scores = distinct(ROWS, WIDTH)
        expected = scores.topk(K).indices.sort().values.int()
        for several in (False, True):
            run = _ffi.LIB.get_function("run_plan_set" if several else "run_plan")
            for nones in range(4):
                indices = torch.empty(ROWS, K, dtype=torch.int32)
                run(PlanSet([plan]) if several else plan, scores, indices, *[None] * nones)
                assert torch.equal(indices, expected)


@pytest.mark.gpu
class TestWorkspace:
    """Plans that need device memory besides their arguments."""

    @pytest.fixture
    def plan(self) -> TopKPlan:
        for rows, width in ((1, 1 << 20), (1, 1 << 17), (64, 1 << 17)):
            plan = TopKPlan(rows, width, 2048, order="index", device_type="cuda", values=False)
            if plan.workspace_bytes:
                return plan
        pytest.skip("no problem of these needs a workspace on this GPU")

    def run(self, plan: TopKPlan, workspace: torch.Tensor | None = None) -> bool:
        scores = distinct(plan.rows, plan.width, "cuda")
        indices = torch.empty(plan.rows, plan.k, dtype=torch.int32, device="cuda")
        plan.run(scores, indices, workspace=workspace)
        return torch.equal(indices, scores.topk(plan.k).indices.sort().values.int())

    def test_given_or_owned(self, plan: TopKPlan) -> None:
        given = torch.zeros(plan.workspace_bytes, dtype=torch.uint8, device="cuda")
        assert all(self.run(plan, workspace) for workspace in (given, None, given, None))
        assert not given[:COUNTER_BYTES].any()  # what is behind them may be anything
        with pytest.raises(ValueError, match=r"workspace: expected shape \(n,\) with n at least"):
            self.run(plan, given[:-1])

    def test_owned_by_one_thread_at_a_time(self, plan: TopKPlan) -> None:
        def outcome(_: int) -> str:
            try:
                return "right" if self.run(plan) else "wrong"
            except RuntimeError as error:
                return "refused" if "another thread" in str(error) else str(error)

        with ThreadPoolExecutor(4) as pool:
            assert {"right"} <= set(pool.map(outcome, range(400))) <= {"right", "refused"}


class TestPlainObjects:
    @pytest.mark.parametrize(
        "make", [h200, lambda: _ffi.launch_config(1, 65536, 2048, device=h200())]
    )
    def test_values(self, make: Callable[[], Any]) -> None:
        one, other = make(), make()
        assert not one.same_as(other)
        assert one == other == copy.deepcopy(one) == pickle.loads(pickle.dumps(one))
        assert hash(one) == hash(other)
        assert repr(one) == repr(other)
        with pytest.raises(AttributeError):
            one.threads = one.sms = 1

    def test_launch_config_needs_no_gpu(self) -> None:
        config = _ffi.launch_config(1, 65536, 2048, "bfloat16", "index", device=h200())
        assert isinstance(config, LaunchConfig)
        assert config.scope in ("block", "cluster", "grid")
        assert config.grid_blocks >= 1
        assert config.reason

    def test_launch_config_refuses(self) -> None:
        with pytest.raises(ValueError, match="order: expected"):
            _ffi.launch_config(1, 10, 1, order="best", device=h200())
        with pytest.raises(ValueError, match="device: expected coresident_clusters"):
            _ffi.launch_config(1, 10, 1, device=h200(coresident_clusters=[132]))
        with pytest.raises(ValueError, match="device"):
            _ffi.launch_config(1, 10, 1, device=h200(sms=0))

    def test_build_info(self) -> None:
        info = _ffi.build_info()
        assert info["cuda"] == bool(info["architectures"])
        assert set(info) == {"version", "cuda", "architectures", "simd", "compiler"}


class TestNativeTopK:
    """``tl_topk.topk``, for callers with no Python."""

    def test_cache(self) -> None:
        """More problems than the cache holds, from several threads, each met again."""
        problems = [distinct(2, 300 + width) for width in range(90)]

        def select(scores: torch.Tensor) -> bool:
            indices = torch.empty(2, 20, dtype=torch.int32)
            values = torch.empty(2, 20)
            exports.topk(scores, 20, indices, values, None, None, True, "value")
            expected = scores.topk(20)
            return torch.equal(values, expected.values) and torch.equal(
                indices, expected.indices.int()
            )

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(select, 5 * problems))

    def test_refuses(self) -> None:
        scores, indices = torch.randn(2, 9), torch.zeros(2, 3, dtype=torch.int32)
        call = exports.topk
        with pytest.raises(ValueError, match="scores: expected shape"):
            call(scores.view(1, 2, 9), 3, indices, None, None, None, True, "any")
        with pytest.raises(TypeError, match="scores: expected float32"):
            call(scores.double(), 3, indices, None, None, None, True, "any")
        with pytest.raises(ValueError, match="order: expected"):
            call(scores, 3, indices, None, None, None, True, "best")
        with pytest.raises(ValueError, match="k: expected"):
            call(scores, -3, indices, None, None, None, True, "any")
        assert (indices == 0).all()


class TestLibrary:
    def test_same_functions_by_symbol_and_by_name(self) -> None:
        for name in ("build_info", "device_count", "device_info", "launch_config", "plan", "topk"):
            assert _ffi.LIB.implements_function(name)
            assert tvm_ffi.get_global_func(f"tl_topk.{name}") is not None

    def test_import_touches_no_gpu(self) -> None:
        """Nothing starts the driver, so the process may still fork."""
        code = """
import os, tl_topk
print("libcuda.so" in open("/proc/self/maps").read(), *(k for k in os.environ if "NVML" in k))
"""
        assert run_python(code) == "False"

    def test_loading_again_is_harmless(self) -> None:
        code = """
import importlib, tl_topk, tl_topk._ffi.library as library
importlib.reload(library)
print(tl_topk.TopKPlan(1, 4, 2).backend)
"""
        assert run_python(code) == "cpu"

    def test_missing_library_says_how_to_build(self, tmp_path: Path) -> None:
        shutil.copytree(ROOT / "tl_topk", tmp_path / "tl_topk")
        code = f"""
import sys; sys.path[:0] = [{str(tmp_path)!r}]
import importlib.metadata
def none(name): raise importlib.metadata.PackageNotFoundError(name)
importlib.metadata.distribution = none
try:
    import tl_topk
except ImportError as error:
    print(error)
"""
        assert "pip install" in run_python(code, PYTHONPATH="", LD_LIBRARY_PATH="", PATH="")

    def test_stubs_are_what_the_library_exports(self, tmp_path: Path) -> None:
        stubs = ROOT / "tl_topk" / "_ffi" / "exports.py"
        fresh = Path(shutil.copy(stubs, tmp_path))
        subprocess.run(
            [
                *(sys.executable, "-m", "tvm_ffi.stub.cli"),
                *(str(tmp_path), "--dlls", str(loaded_library())),
            ],
            check=True,
            capture_output=True,
        )
        assert fresh.read_text() == stubs.read_text(), "run tvm-ffi-stubgen, see exports.py"

    def test_only_public_names_of_tvm_ffi(self) -> None:
        """So that one build runs with every 0.1.x; its inner namespaces come and go."""
        for source in (ROOT / "python_bindings").iterdir():
            assert "detail" not in source.read_text(), source


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_cpp_without_python(tmp_path: Path) -> None:
    """tests/ffi_cpp/select.cc: from host memory, and from device memory where there is a GPU."""
    package = Path(tvm_ffi.__file__).parent
    program = tmp_path / "select"
    subprocess.run(
        [
            *("c++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror"),
            *("-isystem", str(package / "include"), str(ROOT / "tests/ffi_cpp/select.cc")),
            *("-o", str(program), f"-L{package / 'lib'}", "-ltvm_ffi", "-ldl"),
            f"-Wl,-rpath,{package / 'lib'}",
        ],
        check=True,
    )
    done = subprocess.run([program, loaded_library()], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": right") == (4 if _ffi.device_count() else 2)
