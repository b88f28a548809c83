"""Calls that bring their outputs: the plan is found natively, and nothing is let through by it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import tl_topk
import tl_topk.api
import tl_topk.mapped
from tl_topk import TopK, TopKPlan, topk, topk_indices
from tl_topk._ffi import PlanSet
from tl_topk.plans import SETS

K = 5


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
    tl_topk.clear_plan_cache()
    yield
    tl_topk.clear_plan_cache()


def scores(rows: int = 3, width: int = 200, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows * width)
    return torch.randn(rows, width, generator=generator).to(dtype)


def outputs(given: torch.Tensor, k: int = K) -> TopK:
    shape = (*given.shape[:-1], k)
    return TopK(given.new_empty(shape), given.new_empty(shape, dtype=torch.int32))


@pytest.fixture
def warm() -> tuple[torch.Tensor, TopK]:
    """Scores and outputs of a problem that has been met before."""
    given = scores()
    out = outputs(given)
    topk(given, K, out=out)
    topk_indices(given, K, out=out.indices)
    return given, out


class TestPlanSet:
    def test_runs_the_plan_that_fits(self) -> None:
        plans = [
            TopKPlan(rows, width, K, dtype, "value")
            for rows in (1, 3)
            for width in (200, 201)
            for dtype in ("float32", "bfloat16")
        ]
        plan_set = PlanSet(plans)
        for given in (
            scores(3, 200),
            scores(3, 201),
            scores(1, 201),
            scores(1, 200)[0],
            scores(3, 201, torch.bfloat16),
        ):
            out = outputs(given)
            assert plan_set.run(given, out.indices, out.values) is True
            expected = topk(given, K, order="value")
            assert torch.equal(out.indices, expected.indices)
            assert torch.equal(out.values, expected.values)

    @pytest.mark.parametrize(
        "other",
        [scores(2), scores(3, 199), scores(3, 200, torch.float16), scores()[0], scores()[None]],
        ids=["rows", "width", "dtype", "vector", "three dimensions"],
    )
    def test_does_nothing_where_none_fits(self, other: torch.Tensor) -> None:
        indices = torch.full((3, K), -7, dtype=torch.int32)
        plan_set = PlanSet([TopKPlan(3, 200, K, values=False)])
        assert plan_set.run(other, indices) is False
        assert PlanSet([]).run(scores(), indices) is False
        assert (indices == -7).all()

    def test_the_plan_still_checks(self) -> None:
        plan_set = PlanSet([TopKPlan(3, 200, K, values=False)])
        with pytest.raises(ValueError, match=r"out indices: expected shape \(3, 5\)"):
            plan_set.run(scores(), torch.empty(3, K + 1, dtype=torch.int32))


class TestFastLane:
    def test_is_taken(
        self, warm: tuple[torch.Tensor, TopK], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Neither the general way nor the policy is asked about a problem met before."""
        given, out = warm
        expected = topk(given, K, order="index")
        lengths = torch.tensor([200, 3, 0])
        monkeypatch.setattr(tl_topk.api, "select", None)  # calling it would raise
        assert topk(given, K, out=out) is out
        assert torch.equal(out.indices.sort().values, expected.indices)
        assert topk_indices(given, K, lengths=lengths, out=out.indices) is out.indices
        assert (out.indices[1, 3:] == -1).all()
        assert (out.indices[2] == -1).all()
        topk(given, K)
        topk_indices(given, K)

    def test_each_option_has_its_own_plans(self, warm: tuple[torch.Tensor, TopK]) -> None:
        given, out = warm
        for largest in (True, False):
            for order in ("any", "index", "value"):
                for k in (K, 3):
                    pair = outputs(given, k)
                    expected = topk(given, k, largest=largest, order=order)
                    for _ in range(2):
                        topk(given, k, largest=largest, order=order, out=pair)
                        assert torch.equal(pair.indices, expected.indices)
                        assert torch.equal(pair.values, expected.values)
        assert topk(given, K, out=out) is out

    def test_more_shapes_than_a_set_holds(self) -> None:
        for _ in range(2):
            for width in range(100, 170):
                given = scores(2, width)
                out = outputs(given)
                assert torch.equal(
                    topk(given, K, order="value", out=out).values, torch.topk(given, K).values
                )
        (ready,) = SETS[True]._entries.values()
        assert len(ready.plans) <= 32

    def test_bounded_and_clearable(self) -> None:
        given = scores()
        for k in range(200):
            topk_indices(given, k, out=outputs(given, k).indices)
        assert len(SETS[False]) == SETS[False].capacity
        tl_topk.clear_plan_cache()
        assert len(SETS[False]) == 0

    @pytest.mark.parametrize("k", [True, 1.0])
    def test_numbers_that_only_equal_a_k_are_refused(self, k: Any) -> None:
        given = scores()
        out = outputs(given, 1)
        topk(given, 1, out=out)
        with pytest.raises(TypeError, match="k: expected an integer"):
            topk(given, k, out=out)

    def test_grad_is_refused(self, warm: tuple[torch.Tensor, TopK]) -> None:
        given, out = warm
        with pytest.raises(ValueError, match="out: expected None when scores requires grad"):
            topk(given.clone().requires_grad_(), K, out=out)
        with pytest.raises(ValueError, match="out values: expected a tensor that requires no grad"):
            topk(given, K, out=TopK(out.values.clone().requires_grad_(), out.indices))

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            (lambda out: TopK(out.values[:2], out.indices), r"out values: expected shape \(3, 5\)"),
            (lambda out: TopK(out.values, out.indices.long()), "out indices: expected int32"),
            (lambda out: TopK(out.values.double(), out.indices), "out values: expected float32"),
            (
                lambda out: TopK(out.values.numpy(), out.indices),
                "out values: expected a torch tensor",
            ),
            (
                lambda out: TopK(out.values, None),
                r"out: expected a pair .* got \(Tensor, NoneType\)",
            ),
            (lambda out: (out.values,), r"out: expected a pair \(values, indices\)"),
        ],
    )
    def test_bad_outputs_are_named(
        self, warm: tuple[torch.Tensor, TopK], bad: Any, message: str
    ) -> None:
        given, out = warm
        with pytest.raises((ValueError, TypeError), match=message):
            topk(given, K, out=bad(out))

    def test_bad_lengths_are_named(self, warm: tuple[torch.Tensor, TopK]) -> None:
        given, out = warm
        for lengths in (np.zeros(3, np.float32), torch.zeros(2, dtype=torch.int32), [1, 2, 3]):
            with pytest.raises((ValueError, TypeError), match="lengths"):
                topk(given, K, lengths=lengths, out=out)

    def test_what_needs_the_dispatcher_gets_it(self, warm: tuple[torch.Tensor, TopK]) -> None:
        given, out = warm

        class Subclass(torch.Tensor):
            seen: tuple[str, ...] = ()

            @classmethod
            def __torch_function__(
                cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                cls.seen += (str(func),)
                return super().__torch_function__(func, types, args, kwargs or {})

        topk(given.as_subclass(Subclass), K, out=out)
        assert any("tl_topk" in name for name in Subclass.seen)
        with pytest.raises((TypeError, RuntimeError)):
            torch.vmap(lambda row: topk_indices(row, K, out=out.indices[0]))(given)

    def test_compiles_when_warm(self, warm: tuple[torch.Tensor, TopK]) -> None:
        given, out = warm
        expected = topk(given, K, out=outputs(given))

        def fill(x: torch.Tensor, values: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
            topk(x, K, out=TopK(values, indices))
            return indices + 0

        torch._dynamo.reset()
        compiled = torch.compile(fill, fullgraph=True, backend="aot_eager")
        out.indices.fill_(-7)
        assert torch.equal(compiled(given, *out), expected.indices)
        assert torch.equal(out.values, expected.values)

    def test_threads(self) -> None:
        """Many threads fill sets with many shapes while another empties them."""
        problems = []
        for width in range(50, 90):
            given = scores(2, width)
            problems.append((given, topk(given, K, order="value").indices))
        wrong: list[object] = []

        def work(turn: int) -> None:
            try:
                for _ in range(10):
                    for given, expected in problems[turn:] + problems[:turn]:
                        out = outputs(given)
                        topk(given, K, order="value", out=out)
                        if not torch.equal(out.indices, expected):
                            wrong.append(given.shape)
                    tl_topk.clear_plan_cache()
            except Exception as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(10 * turn,)) for turn in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


class TestWhatTheFastLaneMustNotTake:
    """Tensors that look plain and are not, on cold and on warm caches."""

    @pytest.mark.parametrize("with_out", [False, True])
    def test_tracing_sees_the_operator(self, with_out: bool) -> None:
        """A trace that missed the call would replay uninitialised memory."""

        def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            out = outputs(x) if with_out else None
            found = topk(x, K, order="value", out=out)
            return found.values, topk_indices(x, K, order="value", out=out and out.indices)

        for _ in range(2):
            traced = torch.fx.experimental.proxy_tensor.make_fx(both)(scores())
            other = scores() * -1
            for found, expected in zip(traced(other), both(other), strict=True):
                assert torch.equal(found, expected)

    def test_dispatch_modes_see_the_operator(self, warm: tuple[torch.Tensor, TopK]) -> None:
        given, out = warm
        seen = []

        class Watch(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                seen.append(str(func))
                return func(*args, **(kwargs or {}))

        with Watch():
            topk(given, K, out=out)
            topk(given, K)
            topk_indices(given, K)
            topk_indices(given, K, out=out.indices)
        names = ("topk_out", "topk", "topk_indices", "topk_indices_out")
        assert seen == [f"tl_topk.{name}.default" for name in names]

    def test_negated_views_are_read_as_they_show(self) -> None:
        given = torch.randn(50, dtype=torch.complex64).conj().imag.as_strided((50,), (1,))
        assert given.is_neg()
        plain = given.clone()
        for _ in range(2):
            found, expected = topk(given, K, order="value"), topk(plain, K, order="value")
            assert torch.equal(found.values, expected.values)
            assert torch.equal(topk_indices(given, K, order="value"), expected.indices)
        with pytest.raises(ValueError, match="out values: expected a tensor that holds"):
            topk(plain, K, out=(given[:K], expected.indices))

    def test_forward_mode_is_refused(self, warm: tuple[torch.Tensor, TopK]) -> None:
        given, out = warm
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(given, torch.ones_like(given))
            for pair in (None, out):
                with pytest.raises(ValueError, match="scores: expected without a forward-mode"):
                    topk(dual, K, out=pair)
            assert torch.equal(topk_indices(dual, K), topk_indices(given, K))


class TestMapped:
    """The same for the calls that map, and for hints."""

    def test_is_taken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        given = scores()
        table = torch.arange(39, dtype=torch.int32).flip(0).view(3, 13)
        offsets = torch.tensor([0, 1000, 2000])
        hint = torch.zeros(3, 7, dtype=torch.int32)
        lengths = torch.tensor([200, 3, 0])
        best = topk_indices(given, K, lengths=lengths, order="index")
        pages = table.gather(1, best.clamp(min=0).long() // 16)
        slots = torch.where(best < 0, -1, pages * 16 + best % 16)
        places = torch.where(best < 0, -1, best + offsets.unsqueeze(1))
        monkeypatch.setattr(tl_topk.mapped, "select_mapped", None)  # calling it would raise
        monkeypatch.setattr(tl_topk.api, "select", None)
        options: dict[str, Any] = {"lengths": lengths, "order": "index", "hint": hint}
        found = tl_topk.topk_paged(given, K, table, page_size=16, **options)
        assert torch.equal(found, slots)
        out, raw = (torch.empty_like(best) for _ in range(2))
        found = tl_topk.topk_paged(
            given, K, table, page_size=16, out=out, out_indices=raw, **options
        )
        assert found is out
        assert torch.equal(out, slots)
        assert torch.equal(raw, best)
        assert torch.equal(tl_topk.topk_ragged(given, K, offsets, **options), places)
        assert tl_topk.topk_ragged(given, K, offsets, out=out, **options) is out
        assert torch.equal(out, places)
        assert torch.equal(topk_indices(given, K, **options), best)

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            ({"page_size": True}, "page_size: expected an integer"),
            ({"page_size": 3}, "page_size: expected a power of two"),
            ({"next_n": 1.0}, "next_n: expected an integer"),
            ({"out": np.zeros((3, K), np.int32)}, "out slots: expected a torch tensor"),
            ({"out_indices": torch.zeros(3, K)}, "out indices: expected int32"),
            ({"hint": torch.zeros(3, K)}, "hint: expected int32"),
            ({"hint": torch.zeros(2, K, dtype=torch.int32)}, "hint: expected shape"),
            ({"hint": [1]}, "hint: expected a NumPy array, a torch tensor"),
            ({"offsets": torch.zeros(3, dtype=torch.int32)}, "offsets: expected"),
            ({"order": "best"}, "order: expected"),
            ({"k": True}, "k: expected an integer"),
        ],
    )
    def test_what_is_wrong_is_named(self, bad: dict[str, Any], message: str) -> None:
        given = scores()
        table = torch.zeros(3, 200, dtype=torch.int32)
        tl_topk.topk_paged(given, K, table)
        arguments: dict[str, Any] = {"k": K, "page_table": table, **bad}
        with pytest.raises((ValueError, TypeError), match=message):
            tl_topk.topk_paged(given, **arguments)
