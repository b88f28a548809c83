"""Made-up contests of the dispatcher's candidates, who take what they are estimated to."""

from __future__ import annotations

import json

from bench import fit_costs
from bench.contest import READY, SCORED, Contest, Question
from bench.results import READY_SUITE, SCORED_SUITE, Document
from tl_topk.dispatch.candidates import candidates
from tl_topk.dispatch.costs import estimate
from tl_topk.dispatch.devices import NAMED

H200 = NAMED["h200"]
MACHINE = {
    "gpu": H200.name,
    "driver": "1",
    "cuda": "13",
    "torch": "2",
    "sms": H200.sms,
    "shared_memory_per_block": H200.shared_memory_per_block,
    "l2_bytes": H200.l2_bytes,
    "coresident_clusters": list(H200.coresident_clusters),
}


def estimated(question: Question, **changes: float) -> Contest:
    """A contest in which everybody takes what is estimated, but for ``changes``."""
    problem = fit_costs.problem_of(question, H200)
    us = {}
    for candidate in candidates(problem):
        expected, _ = estimate(problem, candidate.kernel, candidate.config)
        if expected is not None and not candidate.refusal:
            us[candidate.name] = expected
    us |= changes
    return Contest(question, us, dict.fromkeys(us, 0.0))


def document(suite: str, contests: list[Contest]) -> Document:
    results = json.loads(json.dumps([contest.as_dict() for contest in contests]))
    return Document(suite, "command", "commit", "date", MACHINE, complete=True, results=results)


def ready_document() -> Document:
    return document(READY_SUITE, [estimated(question) for question in READY])


def scored_document() -> Document:
    return document(SCORED_SUITE, [estimated(question) for question in SCORED])
