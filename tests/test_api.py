"""The Python side of the API: dispatch, plans, outputs, autograd, compilation, array libraries."""

from __future__ import annotations

import contextlib
import doctest
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import tl_topk
import tl_topk.about
import tl_topk.api
from tl_topk import TopK, topk, topk_indices
from tl_topk.backends import BACKENDS
from tl_topk.plans import PLANS, ClockCache
from tl_topk.problem import Problem
from tl_topk.torch_arrays import TORCH, WORKSPACES

CPU = Problem(rows=2, width=100, k=5, dtype="float32")
CUDA = Problem(rows=2, width=100, k=5, dtype="float32", device_type="cuda", device_id=1)


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
    tl_topk.clear_plan_cache()
    yield
    tl_topk.clear_plan_cache()


def scores(rows: int = 3, width: int = 200, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


def without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(BACKENDS["dsmem"]), "unavailable", lambda self: "no GPU today")


class TestProblem:
    def test_is_a_value(self) -> None:
        assert Problem(rows=2, width=100, k=5, dtype="float32") == CPU
        assert hash(CPU) == hash(pickle.loads(pickle.dumps(CPU)))
        assert (CPU.device, CUDA.device) == ("cpu", "cuda:1")

    @pytest.mark.parametrize(
        ("field", "bad"),
        [
            ("rows", -1),
            ("width", 2**31),
            ("k", -1),
            ("k", 2**31),
            ("k", 1.0),
            ("k", True),
            ("dtype", "float64"),
            ("order", "best"),
            ("largest", "yes"),
        ],
    )
    def test_is_always_valid(self, field: str, bad: Any) -> None:
        fields = {"rows": 1, "width": 1, "k": 1, "dtype": "float32", field: bad}
        name = {"width": "scores", "dtype": "scores"}.get(field, field)
        with pytest.raises((ValueError, TypeError), match=rf"^{name}: expected"):
            Problem(**fields)


class TestPlanCache:
    def test_one_plan_per_problem(self) -> None:
        for _ in range(3):
            topk(scores(), 5)
            topk(
                scores(seed=1), 5, out=TopK(torch.empty(3, 5), torch.empty(3, 5, dtype=torch.int32))
            )
            topk(scores(), np.int64(5))
        assert len(PLANS) == 1
        topk_indices(scores(), 5)
        topk(scores(), 6)
        topk(scores(4), 5)
        topk(scores().half(), 5)
        topk(scores(), 5, largest=False)
        topk(scores(), 5, order="value")
        topk(scores(), 5, backend="cpu")
        topk(scores().numpy(), 5)
        topk(scores()[0], 5)
        assert len(PLANS) == 10

    def test_lengths_need_no_plan_of_their_own(self) -> None:
        topk(scores(), 5)
        topk(scores(), 5, lengths=torch.tensor([1, 2, 3]), row_starts=torch.tensor([1, 2, 3]))
        assert len(PLANS) == 1

    def test_a_refused_call_leaves_none(self) -> None:
        with pytest.raises(ValueError, match="order"):
            topk(scores(), 5, order="best")
        assert len(PLANS) == 0

    def test_bounded_and_clearable(self) -> None:
        for k in range(PLANS.capacity + 20):
            topk_indices(scores(1, 4), k)
        assert len(PLANS) == PLANS.capacity
        tl_topk.clear_plan_cache()
        assert len(PLANS) == 0
        assert topk_indices(scores(1, 4), 2).shape == (1, 2)

    def test_what_is_used_stays(self) -> None:
        class Entry:
            recent = False

        cache: ClockCache[Entry] = ClockCache(capacity=8)
        favourite = cache.add("favourite", Entry())
        for number in range(100):
            cache.add(number, Entry())
            found = cache.find("favourite")
            assert found is favourite
            found.recent = True
        assert len(cache) == 8
        assert cache.find(0) is None

    def test_the_first_entry_of_a_key_stays(self) -> None:
        class Entry:
            recent = False

        cache: ClockCache[Entry] = ClockCache(capacity=2)
        first, second = Entry(), Entry()
        assert cache.add("key", first) is first
        assert cache.add("key", second) is first
        assert cache.replace("key", second) is second

    def test_threads(self) -> None:
        """Many threads, one problem and many, while the cache is cleared under them."""
        expected = {k: topk_indices(scores(), k, order="index") for k in range(1, 9)}
        wrong: list[object] = []

        def work() -> None:
            try:
                for _ in range(50):
                    for k, answer in expected.items():
                        if not torch.equal(topk_indices(scores(), k, order="index"), answer):
                            wrong.append(k)
                    tl_topk.clear_plan_cache()
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


class TestWorkspaces:
    """Which workspace a CUDA launch gets, on a pretended GPU whose memory is the CPU's."""

    @pytest.fixture
    def gpu(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        class Gpu:
            device: int | None = None
            stream = 1
            capturing = False

        gpu = Gpu()
        monkeypatch.setattr(torch.cuda, "current_device", lambda: gpu.device)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: gpu.capturing)
        monkeypatch.setattr(
            torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=gpu.stream)
        )
        WORKSPACES.clear()
        yield gpu
        WORKSPACES.clear()

    def test_one_per_stream(self, gpu: Any) -> None:
        first = TORCH.workspace(scores(), 100)
        assert (first.shape, first.dtype) == ((100,), torch.uint8)
        assert not first.any()
        assert TORCH.workspace(scores(), 50) is first
        gpu.stream = 2
        other = TORCH.workspace(scores(), 100)
        assert other is not first
        gpu.stream = 1
        assert TORCH.workspace(scores(), 100) is first
        larger = TORCH.workspace(scores(), 200)
        assert larger.numel() == 200
        assert TORCH.workspace(scores(), 100) is larger
        assert len(WORKSPACES) == 2

    def test_a_graph_gets_its_own_each_time(self, gpu: Any) -> None:
        eager = TORCH.workspace(scores(), 100)
        gpu.capturing = True
        captured = [TORCH.workspace(scores(), 100) for _ in range(2)]
        assert len({id(each) for each in (eager, *captured)}) == 3
        gpu.capturing = False
        assert TORCH.workspace(scores(), 100) is eager

    def test_asks_the_device_of_the_scores(self, gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """The current device may be another, and its stream's capture is not ours."""
        gpu.device = 7
        entered = []

        @contextlib.contextmanager
        def device(index: int | None) -> Iterator[None]:
            entered.append(index)
            before, gpu.device = gpu.device, index
            yield
            gpu.device = before

        monkeypatch.setattr(torch.cuda, "device", device)
        TORCH.workspace(scores(), 100)
        assert entered == [None]
        assert gpu.device == 7


class TestOut:
    @pytest.mark.parametrize("numpy", [False, True])
    def test_the_same_objects_come_back(self, numpy: bool) -> None:
        given = scores().numpy() if numpy else scores()
        expected = topk(given, 5, order="value")
        values, indices = topk(given, 5)
        for _ in range(2):  # the first call makes the plan, the second finds it
            pair = TopK(values, indices)
            assert topk(given, 5, order="value", out=pair) is pair
            assert (values == expected.values).all()
            assert (indices == expected.indices).all()
            indices[:] = -7
            result = topk(given, 5, order="value", out=(values, indices))
            assert result.values is values
            assert result.indices is indices
            assert (indices == expected.indices).all()
            indices[:] = -7
            assert topk_indices(given, 5, order="value", out=indices) is indices
            assert (indices == expected.indices).all()

    def test_read_only_inputs_are_read(self) -> None:
        given = scores().numpy()
        starts, lengths = np.array([1, 2, 3]), np.array([50, 60, 70], np.int32)
        expected = topk(given, 5, lengths=lengths, row_starts=starts)
        for array in (given, starts, lengths):
            array.flags.writeable = False
        found = topk(given, 5, lengths=lengths, row_starts=starts)
        assert (found.indices == expected.indices).all()
        assert (found.values == expected.values).all()
        broadcast = np.broadcast_to(given[:1], given.shape)  # a row stride of 0
        assert (topk_indices(broadcast, 5) == topk_indices(given[:1], 5)).all()


def test_numpy_and_torch_agree() -> None:
    given = scores(4, 3000)
    for largest in (True, False):
        for order in ("index", "value"):
            here = topk(given, 100, largest=largest, order=order)
            there = topk(given.numpy(), 100, largest=largest, order=order)
            assert type(there.values) is type(there.indices) is np.ndarray
            assert (here.values.numpy() == there.values).all()
            assert (here.indices.numpy() == there.indices).all()


class TestGradient:
    def test_is_that_of_a_gather(self) -> None:
        for given in (scores(), scores()[0]):
            mine, torchs = (given.clone().requires_grad_() for _ in range(2))
            weights = torch.rand(*given.shape[:-1], 7)
            (topk(mine, 7, order="value").values * weights).sum().backward()
            (torch.topk(torchs, 7).values * weights).sum().backward()
            assert torch.equal(mine.grad, torchs.grad)

    def test_padding_has_none(self) -> None:
        given = scores().requires_grad_()
        lengths, starts = torch.tensor([2, 0, 500]), torch.tensor([10, 3, -4])
        result = topk(given, 4, lengths=lengths, row_starts=starts, order="value")
        result.values.sum().backward()
        expected = torch.zeros_like(given)
        expected[0, 10:12] = 1
        expected[2, result.indices[2].long()] = 1
        assert torch.equal(given.grad, expected)

    def test_of_nothing_is_nothing(self) -> None:
        for given in (torch.empty(2, 0), torch.empty(0), torch.empty(0, 4)):
            given.requires_grad_()
            topk(given, 3).values.sum().backward()
            assert given.grad is not None
            assert given.grad.shape == given.shape

    def test_numerically_and_twice(self) -> None:
        given = scores(2, 12).requires_grad_()
        (grad,) = torch.autograd.grad((topk(given, 3).values ** 3).sum(), given, create_graph=True)
        (second,) = torch.autograd.grad(grad.sum(), given)
        chosen = torch.zeros_like(given).scatter_(1, topk_indices(given, 3).long(), 1.0)
        torch.testing.assert_close(grad, 3 * given**2 * chosen)
        torch.testing.assert_close(second, 6 * given * chosen)

    def test_parameters_and_no_grad(self) -> None:
        given = torch.nn.Parameter(scores())
        assert topk(given, 3).values.requires_grad
        assert not topk(given, 3).indices.requires_grad
        assert not topk_indices(given, 3).requires_grad
        with torch.no_grad():
            assert not topk(given, 3).values.requires_grad

    def test_out_is_refused(self) -> None:
        given = scores().requires_grad_()
        with torch.no_grad():
            out = topk(given, 3)
            topk(given, 3, out=out)
        with pytest.raises(ValueError, match="out: expected None when scores requires grad"):
            topk(given, 3, out=out)


class TestCompile:
    """One node in the graph, no break, the same answers."""

    @pytest.fixture(autouse=True)
    def fresh(self) -> None:
        torch._dynamo.reset()

    def test_functional(self) -> None:
        def both(x: torch.Tensor, lengths: torch.Tensor) -> tuple[TopK, torch.Tensor]:
            result = topk(x * 2, 5, lengths=lengths, order="value")
            return TopK(result.values + 1, result.indices), topk_indices(x, 4, largest=False)

        compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
        arguments = scores(), torch.tensor([2, 100, 200])
        for found, expected in zip(compiled(*arguments), both(*arguments), strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=0)

    def test_out(self) -> None:
        def fill(x: torch.Tensor, values: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
            topk(x, 5, order="value", out=(values, indices))
            return topk_indices(x, 5, order="index", out=indices)

        found = torch.empty(3, 5), torch.empty(3, 5, dtype=torch.int32)
        expected = torch.empty(3, 5), torch.empty(3, 5, dtype=torch.int32)
        torch.compile(fill, fullgraph=True, backend="aot_eager")(scores(), *found)
        fill(scores(), *expected)
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[1], expected[1])

    def test_changing_shapes_compile_once(self) -> None:
        compiled = torch.compile(
            lambda x, k: topk(x, k).indices, fullgraph=True, backend="aot_eager", dynamic=True
        )
        with torch._dynamo.config.patch(error_on_recompile=True):
            for size in range(3):
                x = scores(2 + size, 50 + size)
                assert torch.equal(compiled(x, 5 + size), topk_indices(x, 5 + size))

    def test_gradient(self) -> None:
        compiled = torch.compile(
            lambda x: topk(x, 5).values.square().sum(), fullgraph=True, backend="aot_eager"
        )
        found, expected = (scores().requires_grad_() for _ in range(2))
        compiled(found).backward()
        topk(expected, 5).values.square().sum().backward()
        assert torch.equal(found.grad, expected.grad)

    @pytest.mark.parametrize("operator", ["topk", "topk_indices", "topk_out", "topk_indices_out"])
    def test_opcheck(self, operator: str) -> None:
        topk(scores(), 5, out=None)
        from tl_topk import torch_op  # noqa: F401 - registers the operators

        lengths = torch.tensor([2, 100, 200], dtype=torch.int32)
        inputs = (scores(), 5, lengths, None, True, "value", "auto")
        outputs = {
            "topk_out": (torch.empty(3, 5), torch.empty(3, 5, dtype=torch.int32)),
            "topk_indices_out": (torch.empty(3, 5, dtype=torch.int32),),
        }.get(operator, ())
        given = inputs if outputs else (scores().requires_grad_(), *inputs[1:])
        torch.library.opcheck(getattr(torch.ops.tl_topk, operator).default, (*given, *outputs))

    def test_an_eager_call_pays_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from tl_topk import torch_op

        monkeypatch.setattr(torch_op, "select", None)  # calling it would raise
        topk(scores(), 5)
        topk_indices(scores().requires_grad_(), 5)


def test_transforms_of_torch_func_are_refused() -> None:
    with pytest.raises((TypeError, RuntimeError)):
        torch.vmap(lambda row: topk_indices(row, 3))(scores())


def run_python(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_torch_is_not_needed() -> None:
    """NumPy alone: torch cannot be imported, and is not missed."""
    run_python(
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np, tl_topk\n"
        "scores = np.array([1, 3, 2], np.float32)\n"
        "assert tl_topk.topk(scores, 2, order='value').indices.tolist() == [1, 2]\n"
        "try: tl_topk.topk([1, 2], 1)\n"
        "except TypeError as error: assert 'scores' in str(error)\n"
        "tl_topk.info()\n"
    )


def test_torch_after_tl_topk() -> None:
    """Imported later, torch is noticed, be it within a compiled function."""
    run_python(
        "import sys; sys.modules['torch'] = None\n"  # or tvm_ffi would import it
        "import tl_topk; del sys.modules['torch']\n"
        "import torch\n"
        "compiled = torch.compile(lambda x: tl_topk.topk(x, 2), fullgraph=True, backend='eager')\n"
        "x = torch.tensor([1.0, 3.0, 2.0])\n"
        "for _ in range(2): assert sorted(compiled(x).indices.tolist()) == [1, 2]\n"
        "assert sorted(tl_topk.topk(x, 2).indices.tolist()) == [1, 2]\n"
        "assert sorted(compiled(x).indices.tolist()) == [1, 2]\n"
    )


def test_importing_touches_no_gpu() -> None:
    run_python("import tl_topk, torch\nassert not torch.cuda.is_initialized()\n")


def test_info() -> None:
    info = tl_topk.info()
    assert info["version"] == tl_topk.__version__ == info["build"]["version"]
    assert info["backends"]["cpu"] == "available"
    assert list(info["backends"]) == list(BACKENDS)
    if not info["build"]["cuda"]:
        assert info["devices"] == []
        assert "no CUDA kernels" in info["backends"]["dsmem"]


@pytest.mark.parametrize("module", [tl_topk.api, tl_topk.about])
def test_examples_in_docstrings(module: Any) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
