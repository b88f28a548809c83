"""Who could serve a problem, how each would be launched, and who cannot and why: pure functions."""

from __future__ import annotations

from collections.abc import Iterator

from tl_topk import _ffi
from tl_topk.backends import BACKENDS
from tl_topk.dispatch.costs import estimate
from tl_topk.dispatch.decision import FUSED, SCORE_AND_SELECT, Candidate, Config
from tl_topk.dispatch.devices import native_facts
from tl_topk.problem import Problem, one_of

__all__ = ["MOST_FUSED", "candidates", "check_served", "refusal"]

#: The most that the fused kernel's leading block can hold.
MOST_FUSED = 4096

_CLUSTERS = (1, 2, 4, 8, 16)
_GRIDS = (32, 64)  # blocks a row, in several clusters
_HOPPER = 90


def refusal(problem: Problem, backend: str) -> str:
    """Why ``backend`` cannot serve ``problem``, in one clause; empty if it can."""
    needed = BACKENDS[backend].device_type
    if needed != problem.device_type:
        what = "the scores" if problem.scoring is None else "queries and keys"
        return f"it needs {what} on {needed!r}, they lie on {problem.device!r}"
    missing = dict(problem.absent).get(backend)
    if missing:
        return f"it cannot run here: {missing}"
    if problem.device_type == "cpu":
        return ""
    capability = _HOPPER if problem.gpu is None else problem.gpu.compute_capability
    if problem.scoring is not None:
        return _scored_refusal(problem, backend, capability)
    return ""


def _scored_refusal(problem: Problem, backend: str, capability: int) -> str:
    if capability != _HOPPER:
        return f"scores are made on compute capability 9.0 alone, this is {capability / 10:.1f}"
    if backend == "dsmem":
        return ""
    assert problem.scoring is not None
    if not problem.scoring.paged:
        return "the fused kernel serves keys on pages alone"
    if problem.order != "any":
        return f"the fused kernel serves order='any' alone, asked for was {problem.order!r}"
    if problem.k > MOST_FUSED:
        return f"the fused kernel serves k up to {MOST_FUSED}, asked for were {problem.k}"
    return ""


def check_served(problem: Problem, backend: str) -> None:
    """Raises ValueError, saying why, unless ``backend`` can serve ``problem``."""
    missing = dict(problem.absent).get(backend)
    if missing:
        raise ValueError(f"backend: {backend!r} cannot run here: {missing}")
    why = refusal(problem, backend)
    if not why:
        return
    able = tuple(name for name in BACKENDS if not refusal(problem, name))
    others = one_of(("auto", *able)) if able else "no other"
    what = "scores" if problem.scoring is None else "queries and keys"
    raise ValueError(
        f"backend: expected {others} for {what} on {problem.device!r}, got {backend!r}: {why}"
    )


def candidates(problem: Problem) -> tuple[Candidate, ...]:
    """All ways to serve ``problem``, in the order of the backends; some with a refusal."""
    return tuple(_candidates(problem))


def _candidates(problem: Problem) -> Iterator[Candidate]:
    for name in BACKENDS:
        why = refusal(problem, name)
        if why:
            yield Candidate(name, _kernel(problem, name), refusal=why)
        elif name == "dsmem" and problem.scoring is None:
            yield from _scopes(problem)
        else:
            yield _estimated(problem, name, _config(problem, name))


def _kernel(problem: Problem, backend: str) -> str:
    if problem.scoring is not None and backend != "cpu":
        return FUSED if backend == "pipelined" else SCORE_AND_SELECT
    if backend == "dsmem":
        return "large_k" if problem.k > MOST_FUSED else "select"
    return backend


def _estimated(
    problem: Problem, backend: str, config: Config | None, is_native_choice: bool = True
) -> Candidate:
    kernel = _kernel(problem, backend)
    us, basis = estimate(problem, kernel, config)
    return Candidate(backend, kernel, config, us, basis, is_native_choice=is_native_choice)


def _scopes(problem: Problem) -> Iterator[Candidate]:
    """The native kernel as it launches itself, then with every other number of blocks a row."""
    if problem.gpu is None:
        yield _estimated(problem, "dsmem", None)
        return
    own = _native_config(problem, 0)
    yield _estimated(problem, "dsmem", own)
    for blocks, fitting in zip(_CLUSTERS, problem.gpu.coresident_clusters, strict=True):
        if fitting > 0:
            other = _native_config(problem, blocks)
            if (other.scope, blocks) != (own.scope, own.blocks_per_row):
                yield _estimated(problem, "dsmem", other, is_native_choice=False)
    for blocks in _GRIDS:
        if own.blocks_per_row == blocks:
            continue
        try:
            other = _native_config(problem, blocks)
        except ValueError:  # too many rows, or too short ones
            continue
        yield _estimated(problem, "dsmem", other, is_native_choice=False)


def _native_config(problem: Problem, blocks_per_row: int) -> Config:
    assert problem.gpu is not None
    launch = _ffi.launch_config(
        problem.rows,
        problem.width,
        problem.k,
        problem.dtype,
        problem.order,
        problem.largest,
        problem.values,
        device=native_facts(problem.gpu),
        blocks_per_row=blocks_per_row,
    )
    return Config(
        str(launch.scope),
        int(launch.blocks_per_row),
        int(launch.cluster_blocks),
        int(launch.grid_blocks),
        int(launch.threads),
        int(launch.shared_bytes),
        int(launch.workspace_bytes),
    )


def _config(problem: Problem, backend: str) -> Config | None:
    if backend == "cpu":
        return Config("threads")
    if problem.gpu is None:
        return None
    if problem.scoring is not None:
        # Blocks that stay, one or two a multiprocessor, and take tiles of keys in turn.
        return Config("grid", problem.gpu.sms, 1, problem.gpu.sms)
    if problem.k > MOST_FUSED:
        return _native_config(problem, 0)  # very large k is native in all backends
    from tl_topk.tile.choice import choose  # most processes never come here

    choice = choose(problem, problem.gpu.sms, problem.gpu.coresident_clusters)
    blocks = choice.blocks_per_row
    scope = "cluster" if choice.which.cluster > 1 else "grid" if blocks > 1 else "block"
    return Config(scope, blocks, choice.which.cluster, problem.rows * blocks)
