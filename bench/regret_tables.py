"""How good the dispatcher's choices are, and where fusing pays: tables from recorded contests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from bench.cases import length_name
from bench.contest import Contest, Question
from bench.fit_costs import gpu_of_document, problem_of
from bench.results import Document
from bench.tables import Table
from tl_topk.dispatch import Candidate, Policy, model, rule
from tl_topk.problem import Gpu

__all__ = ["Regret", "choice", "ready_table", "regrets", "scored_table", "summary"]

WITHIN = 1.05
#: The policies that need no table of this GPU.
_POLICIES: dict[str, Policy] = {"model": model, "rule": rule}


@dataclass(frozen=True)
class Regret:
    """What a policy's choice costs.

    Attributes:
        contest: the problem, and what each candidate took.
        chosen: the candidate that the policy takes.
        ratio: its time by the best candidate's.
    """

    contest: Contest
    chosen: str
    ratio: float


def regrets(document: Document, policy: Policy = model) -> list[Regret]:
    """Of every problem; wrong answers are no candidates. A problem that the library now launches as
    it did not when it was measured tells nothing, and is left out.
    """
    gpu = gpu_of_document(document)
    found = []
    for result in document.results:
        contest = Contest.from_dict(result)
        chosen = choice(contest.question, gpu, policy)
        if chosen not in contest.us:
            continue
        right = {name: us for name, us in contest.us.items() if name not in contest.wrong}
        found.append(Regret(contest, chosen, right[chosen] / min(right.values())))
    return found


@cache
def choice(question: Question, gpu: Gpu, policy: Policy) -> str:
    """The name of the candidate that ``policy`` takes on ``gpu``."""
    decision = policy(problem_of(question, gpu))
    first: Candidate = decision.candidates[0]
    return first.name


def summary(all_regrets: Iterable[Regret]) -> tuple[int, float, float]:
    """(problems, the share of them within 5 % of the best, the worst ratio)."""
    ratios = [regret.ratio for regret in all_regrets]
    return len(ratios), sum(ratio <= WITHIN for ratio in ratios) / len(ratios), max(ratios)


def _summary_rows(name: str, found: list[Regret]) -> list[str]:
    count, share, worst = summary(found)
    ratios = sorted(regret.ratio for regret in found)
    middle = ratios[len(ratios) // 2]
    exactly = sum(ratio == 1 for ratio in ratios) / count
    return [name, str(count), f"{exactly:.1%}", f"{share:.1%}", f"{middle:.3f}", f"{worst:.2f}"]


_HEADER = ["problems", "number", "the best taken", "within 5 %", "median", "worst"]


def ready_table(document: Document) -> Table:
    """By kind of problem: how often the choice is the best, near it, and how far off at most."""
    found = regrets(document)
    kinds: dict[str, Callable[[Question], bool]] = {
        "1 to 4 rows": lambda q: q.rows <= 4 and _plain(q),
        "6 to 24 rows": lambda q: 4 < q.rows <= 24 and _plain(q),
        "32 to 256 rows": lambda q: q.rows > 24 and _plain(q),
        "bfloat16": lambda q: q.dtype == "bfloat16",
        "rows of 1M that hold 4K to 64K": lambda q: q.length is not None,
        "**all**": lambda q: True,
    }
    rows = []
    for name, is_kind in kinds.items():
        here = [regret for regret in found if is_kind(regret.contest.question)]
        if here:
            rows.append(_summary_rows(name, here))
    worst = sorted(found, key=lambda regret: -regret.ratio)[:5]
    rows += [_one(regret) for regret in worst if regret.ratio > WITHIN]
    return Table(_HEADER, rows)


def _plain(question: Question) -> bool:
    return question.dtype == "float32" and question.length is None


def _one(regret: Regret) -> list[str]:
    contest = regret.contest
    best = contest.best
    taken = f"{regret.chosen}, {contest.us[regret.chosen]:.1f} us"
    other = f"best: {best}, {contest.us[best]:.1f} us"
    return [str(contest.question), "1", taken, other, "", f"{regret.ratio:.2f}"]


def scored_table(document: Document) -> Table:
    """A row for heads, queries of a sequence and sequences; the keys across: what scores first and
    selection take, by what one kernel takes. Bold where the default policy takes the slower one by
    more than 5 %.
    """
    found = {regret.contest.question: regret for regret in regrets(document)}
    widths = sorted({question.width for question in found})
    rows = []
    for heads, queries, sequences in _groups(found):
        cells = []
        for width in widths:
            mine = [
                regret
                for q, regret in found.items()
                if q.scored is not None
                and (q.scored.heads, q.scored.queries) == (heads, queries)
                and (q.rows // queries, q.width) == (sequences, width)
            ]
            cells.append(_cell(mine[0]) if mine else "-")
        rows.append([f"{heads} heads, {queries} of {sequences}", *cells])
    for name, policy in _POLICIES.items():
        count, share, worst = summary(regrets(document, policy))
        text = f"{count} problems, {share:.1%} within 5 %, worst {worst:.2f}"
        rows.append([f"policy {name}: {text}", *[""] * len(widths)])
    return Table(["heads, queries of sequences", *map(length_name, widths)], rows)


def _groups(questions: Iterable[Question]) -> list[tuple[int, int, int]]:
    groups = {
        (q.scored.heads, q.scored.queries, q.rows // q.scored.queries)
        for q in questions
        if q.scored is not None
    }
    return sorted(groups)


def _cell(regret: Regret) -> str:
    us = regret.contest.us
    text = f"{us['dsmem after scores']:.1f} / {us['fused']:.1f}"
    return f"**{text}**" if regret.ratio > WITHIN else text
