"""Plans, graphs, threads, streams, torch's compiler and several devices: what one process mixes."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

import tl_topk
from certificate import assert_certified
from tl_topk import TopK, TopKPlan, topk, topk_indices

K = 2048
TWO_GPUS = pytest.mark.skipif(
    torch.cuda.device_count() < 2, reason="torch sees fewer than two devices"
)


def cuda_plan(scores: Tensor, *, order: str = "index", values: bool = True) -> TopKPlan:
    rows, width = scores.shape
    device = scores.device.index or 0
    return TopKPlan(
        rows, width, K, order=order, values=values, device_type="cuda", device_id=device
    )


def outputs(scores: Tensor, k: int = K) -> TopK:
    shape = (*scores.shape[:-1], k)
    return TopK(scores.new_empty(shape), scores.new_empty(shape, dtype=torch.int32))


def captured(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    # torch's own stream to capture on stays that of the device on which the process captured first.
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        call()
    return graph


class TestGraphs:
    @pytest.mark.patience(120)
    @pytest.mark.parametrize("width", [4096, 65_536])
    def test_100_000_replays_with_changing_lengths_and_contents(self, width: int) -> None:
        """The graph itself turns to the next content and length, and compares."""
        normal = torch.randn(width, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
        contents = torch.stack(
            [
                normal,
                torch.zeros_like(normal),
                (normal - 1).relu(),
                normal.sort().values,
                torch.where(normal > 1, normal, float("nan")),
                (normal * 2).round(),
                normal.sort(descending=True).values,
            ]
        )
        lengths = torch.tensor(
            [width, 0, 1, K - 1, K, K + 1, width // 2, width - 1, -5, 2**31 - 1, 3000],
            device="cuda",
            dtype=torch.int32,
        )
        turns = len(contents) * len(lengths)  # coprime: every pair comes up once
        expected = []
        for turn in range(turns):
            given = contents[turn % len(contents)].unsqueeze(0)
            length = lengths[turn % len(lengths)].unsqueeze(0)
            result = topk(given, K, lengths=length, order="index", backend="dsmem")
            assert_certified(given, result.indices, result.values, lengths=length, order="index")
            expected.append(torch.cat([result.indices, result.values.view(torch.int32)], 1))
        answers = torch.cat(expected)

        scores = torch.empty(1, width, device="cuda")
        length = torch.empty(1, device="cuda", dtype=torch.int32)
        found = torch.empty(1, 2 * K, device="cuda", dtype=torch.int32)
        out = TopK(found[:, K:].view(torch.float32), found[:, :K])
        turn = torch.zeros(1, device="cuda", dtype=torch.int64)
        wrong = torch.zeros((), device="cuda", dtype=torch.int64)

        def step() -> None:
            torch.index_select(contents, 0, turn % len(contents), out=scores)
            torch.index_select(lengths, 0, turn % len(lengths), out=length)
            topk(scores, K, lengths=length, order="index", backend="dsmem", out=out)
            wrong.add_((found != answers[turn]).any())
            turn.add_(1).remainder_(turns)

        graph = captured(step)
        for _ in range(100_000):
            graph.replay()
        assert wrong.item() == 0

    def test_two_of_one_problem_at_once_while_the_cache_is_cleared(self) -> None:
        """Neither plans nor workspaces that the cache forgets are missed by a graph."""
        problems = [torch.randn(1, 262_144, device="cuda") * scale for scale in (1, 5)]
        problems[1].relu_()
        outs = [outputs(scores) for scores in problems]
        graphs = []
        for scores, out in zip(problems, outs, strict=True):
            tl_topk.clear_plan_cache()
            graphs.append(captured(lambda s=scores, o=out: topk(s, K, order="index", out=o)))
        stop = threading.Event()

        def disturb() -> None:
            while not stop.wait(0.001):
                tl_topk.clear_plan_cache()
                gc.collect()
                torch.cuda.empty_cache()

        disturber = threading.Thread(target=disturb)
        disturber.start()
        streams = [torch.cuda.Stream() for _ in graphs]
        torch.cuda.synchronize()
        try:
            for turn in range(2000):
                for stream, graph in zip(streams, graphs, strict=True):
                    with torch.cuda.stream(stream):
                        graph.replay()
                if turn % 100 == 0:  # the eager call makes its plan anew
                    topk(problems[0], K, order="index")
        finally:
            stop.set()
            disturber.join()
        torch.cuda.synchronize()
        for scores, out in zip(problems, outs, strict=True):
            assert_certified(scores, out.indices, out.values, order="index")

    def test_a_plan_may_be_dropped_before_its_graph_is_replayed(self) -> None:
        """With a workspace of the caller's, or none, the graph needs nothing of the plan."""
        scores = torch.randn(2, 70_000, device="cuda")
        out = outputs(scores)
        plan = cuda_plan(scores)
        workspace = torch.zeros(plan.workspace_bytes, device="cuda", dtype=torch.uint8)
        given = workspace if plan.workspace_bytes else None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            plan.run(scores, out.indices, out.values, workspace=given)
        del plan
        gc.collect()
        scores.normal_()
        graph.replay()
        assert_certified(scores, out.indices, out.values, order="index")


class TestThreadsAndStreams:
    def test_one_plan_from_two_threads(self) -> None:
        """Safe where the plan needs no workspace; refused by name where it owns one."""
        problems = [torch.randn(1, 65_536, device="cuda") for _ in range(2)]
        expected = [topk(scores, K, order="index").indices for scores in problems]
        plan = cuda_plan(problems[0], values=False)
        torch.cuda.synchronize()
        refused: list[str] = []
        failed: list[object] = []

        def work(scores: Tensor, answer: Tensor) -> None:
            try:
                with torch.cuda.stream(torch.cuda.Stream()):
                    wrong = torch.zeros((), device="cuda", dtype=torch.int64)
                    indices = torch.empty_like(answer)
                    for _ in range(2000):
                        try:
                            plan.run(scores, indices)
                        except RuntimeError as error:
                            refused.append(str(error))
                        else:
                            wrong += (indices != answer).any()
                    if wrong.item():
                        failed.append(wrong.item())
            except Exception as error:
                failed.append(error)

        threads = [
            threading.Thread(target=work, args=pair)
            for pair in zip(problems, expected, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert all("being run by another thread" in text for text in refused)
        if plan.workspace_bytes == 0:
            assert refused == []

    def test_a_thread_that_has_not_used_the_gpu_before(self) -> None:
        """No context is current there: the driver would refuse, and the runtime launches."""
        scores = torch.randn(2, 70_000, device="cuda")
        out = outputs(scores)
        plan = cuda_plan(scores)
        torch.cuda.synchronize()
        for _ in range(2):
            out.indices.fill_(-7)
            torch.cuda.synchronize()
            with ThreadPoolExecutor(1) as fresh:
                fresh.submit(plan.run, scores, out.indices, out.values).result()
            assert_certified(scores, out.indices, out.values, order="index")

    def test_a_found_plan_runs_on_the_current_stream(self) -> None:
        """Calls whose plan is found natively are ordered by the caller's stream as well."""
        final = torch.randn(2, 70_000, device="cuda")
        scores = torch.zeros_like(final)
        out = outputs(scores)
        for _ in range(2):
            topk(scores, K, order="index", out=out)
            topk_indices(scores, K, order="index", out=out.indices)
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            scores.copy_(final)
            topk(scores, K, order="index", out=out)
        stream.synchronize()
        assert_certified(final, out.indices, out.values, order="index")

    def test_a_plan_refuses_what_it_was_not_made_for(self) -> None:
        scores = torch.randn(2, 5000, device="cuda")
        out = outputs(scores)
        plan = cuda_plan(scores)
        out.indices.fill_(-7)
        for bad, message in (
            (scores.cpu(), "scores: expected on cuda:0, got on the CPU"),
            (scores.half(), "scores: expected float32, got float16"),
            (scores[:, :4000], r"scores: expected shape \(2, 5000\), got \(2, 4000\)"),
        ):
            with pytest.raises((ValueError, TypeError), match=message):
                plan.run(bad, out.indices, out.values)
        scores.untyped_storage().resize_(0)
        with pytest.raises(ValueError, match="scores: expected memory"):
            plan.run(scores, out.indices, out.values)
        assert (out.indices == -7).all()


class TestTorch:
    """The registered operators on CUDA tensors; tests/test_api.py has the rest on the CPU."""

    @pytest.fixture(autouse=True)
    def fresh(self) -> None:
        torch._dynamo.reset()

    @pytest.mark.parametrize("backend", ["aot_eager", "cudagraphs"])
    def test_compiled_without_a_break(self, backend: str) -> None:
        def both(x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            result = topk(x * 2, K, lengths=lengths, order="value")
            return result.values + 1, result.indices, topk_indices(x, 100, order="index")

        compiled = torch.compile(both, fullgraph=True, backend=backend)
        for turn in range(4):
            x = torch.randn(3, 20_000, device="cuda")
            lengths = torch.tensor([20_000, 10 + turn, 0], device="cuda")
            for found, expected in zip(compiled(x, lengths), both(x, lengths), strict=True):
                assert torch.equal(found, expected)

    @pytest.mark.parametrize("operator", ["topk", "topk_indices", "topk_out", "topk_indices_out"])
    def test_opcheck(self, operator: str) -> None:
        from tl_topk import torch_op  # noqa: F401 - registers the operators

        scores = torch.randn(3, 5000, device="cuda")
        lengths = torch.tensor([2, 100, 5000], dtype=torch.int32, device="cuda")
        out = outputs(scores, 5)
        filled = {"topk_out": (*out,), "topk_indices_out": (out.indices,)}.get(operator, ())
        given = scores if filled else scores.requires_grad_()
        inputs = (given, 5, lengths, None, True, "value", "dsmem")
        torch.library.opcheck(getattr(torch.ops.tl_topk, operator).default, (*inputs, *filled))

    def test_gradient_is_that_of_a_gather(self) -> None:
        distinct = torch.stack([torch.randperm(20_000, device="cuda") for _ in range(3)]).float()
        mine, torchs = (distinct.clone().requires_grad_() for _ in range(2))
        weights = torch.rand(3, K, device="cuda")
        (topk(mine, K, order="value").values * weights).sum().backward()
        (torch.topk(torchs, K).values * weights).sum().backward()
        assert mine.grad is not None
        assert torch.equal(mine.grad, torchs.grad)
        with pytest.raises(ValueError, match="out: expected None when scores requires grad"):
            topk(mine, K, out=outputs(mine.detach()))


@TWO_GPUS
class TestTwoDevices:
    @pytest.mark.parametrize("current", [0, 1])
    def test_the_scores_device_decides(self, current: int) -> None:
        """Whatever device is current, and it stays current: plans, functions, found plans."""
        torch.cuda.set_device(current)
        try:
            for device in (0, 1, 1, 0):
                scores = torch.randn(2, 70_000, device=f"cuda:{device}")
                out = outputs(scores)
                for call in (
                    lambda s=scores, o=out: cuda_plan(s).run(s, o.indices, o.values),
                    lambda s=scores, o=out: topk(s, K, order="index", out=o),
                    lambda s=scores, o=out: topk(s, K, order="index", out=o),
                ):
                    out.indices.fill_(-7)
                    call()
                    assert torch.cuda.current_device() == current
                    assert_certified(scores, out.indices, out.values, order="index")
                result = topk(scores, K, order="index")
                assert result.indices.device == result.values.device == scores.device
                assert torch.equal(result.indices, out.indices)
                assert torch.cuda.current_device() == current
        finally:
            torch.cuda.set_device(0)

    def test_arrays_of_another_device_are_refused(self) -> None:
        scores = torch.randn(2, 70_000, device="cuda:1")
        out = outputs(scores)
        plan = cuda_plan(scores)
        elsewhere = outputs(scores.to("cuda:0"))
        lengths = torch.ones(2, device="cuda:0", dtype=torch.int32)
        for call in (
            lambda: plan.run(scores.to("cuda:0"), out.indices, out.values),
            lambda: plan.run(scores, elsewhere.indices, out.values),
            lambda: plan.run(scores, out.indices, out.values, lengths),
            lambda: topk(scores, K, out=elsewhere),
            lambda: topk(scores, K, lengths=lengths, out=out),
        ):
            with pytest.raises(ValueError, match="expected on cuda:1, got on cuda:0"):
                call()

    def test_both_at_once_from_two_threads(self) -> None:
        failed: list[object] = []

        def work(device: int) -> None:
            try:
                other = torch.cuda.device(1 - device) if device else nullcontext()
                with other:  # the second thread's current device is not that of its scores
                    scores = torch.randn(1, 262_144, device=f"cuda:{device}")
                    first = topk(scores, K, order="index")
                    out = outputs(scores)
                    wrong = torch.zeros((), device=scores.device, dtype=torch.int64)
                    for _ in range(500):
                        topk(scores, K, order="index", out=out)
                        wrong += (out.indices != first.indices).any()
                    assert wrong.item() == 0
                    assert_certified(scores, out.indices, out.values, order="index")
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(device,)) for device in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []

    def test_a_graph_of_the_device_that_is_not_current(self) -> None:
        with torch.cuda.device(1):
            scores = torch.randn(2, 70_000, device="cuda:1")
            out = outputs(scores)
            graph = captured(lambda: topk(scores, K, order="index", out=out))
        scores.normal_()
        torch.cuda.synchronize(1)
        graph.replay()
        torch.cuda.synchronize(1)
        assert_certified(scores, out.indices, out.values, order="index")
        assert torch.cuda.current_device() == 0
