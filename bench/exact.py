"""Whether an answer is right, decided without sorting the scores.

Let w be the worst score selected. If all elements are distinct and inside their row, and as many
better than w were selected as there are in the row, then the selected set is a right one; it is
*the* set of our contract if the elements equal to w have the lowest indices as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bench.inputs import Inputs
from bench.results import EXACT, TIES

__all__ = ["Answer", "judge"]

_CHUNK = 1 << 24  # elements looked at together, to bound memory


@dataclass(frozen=True)
class Answer:
    """What a call returned: indices of any integer type, and values if it gives them."""

    indices: Tensor  # (rows, k)
    values: Tensor | None = None


def judge(inputs: Inputs, answers: list[Answer]) -> str:
    """EXACT, TIES, or what is wrong, over the answers to the first slots."""
    verdicts: dict[str, int] = {}
    at_once = max(1, _CHUNK // (inputs.case.rows * inputs.case.width))
    for first in range(0, len(answers), at_once):
        for name, rows in _failures(inputs, first, answers[first : first + at_once]).items():
            verdicts[name] = verdicts.get(name, 0) + rows
    total = len(answers) * inputs.case.rows
    for name, rows in verdicts.items():
        if rows and name != TIES:
            return f"wrong: {name} in {rows} of {total} rows"
    return TIES if verdicts[TIES] else EXACT


def _failures(inputs: Inputs, first: int, answers: list[Answer]) -> dict[str, int]:
    """How many rows fail each check; gravest first."""
    case = inputs.case
    scores = inputs.scores[first : first + len(answers)].flatten(0, 1)
    indices = torch.stack([answer.indices for answer in answers]).flatten(0, 1).long()
    begins, ends = (bound.repeat(len(answers)).unsqueeze(1) for bound in _bounds(inputs))
    columns = torch.arange(case.width, device=scores.device)
    inside = (columns >= begins) & (columns < ends)
    keys = _ascending_keys(scores)

    slots = torch.arange(case.k, device=scores.device)
    real = slots < (ends - begins)
    valid = torch.where(real, (indices >= 0) & (indices < ends - begins), indices == -1)
    distinct = torch.where(real, indices, -1 - slots).sort(dim=1).values.diff(dim=1) != 0
    places = (begins + indices).clamp(0, case.width - 1)
    chosen = keys.gather(1, places)
    worst = torch.where(real, chosen, torch.iinfo(torch.int32).max).amin(1, keepdim=True)
    better = ((keys > worst) & inside).sum(1)
    chosen_better = ((chosen > worst) & real).sum(1)
    at_worst = (chosen == worst) & real
    last = torch.where(at_worst, places, -1).amax(1, keepdim=True)
    ties = ((keys == worst) & inside & (columns <= last)).sum(1)
    sorted_slots, sorted_ties = _in_order(case.order, indices, chosen, real)
    failures = {
        "an index out of range or bad padding": ~valid.all(1),
        "an index twice": ~distinct.all(1),
        "not the best k": better != chosen_better,
        "slots not in order": ~sorted_slots,
        "a value that is not the score": ~_same_values(scores, places, real, answers),
        TIES: (ties != at_worst.sum(1)) | ~sorted_ties,
    }
    return {name: int(rows.sum()) for name, rows in failures.items()}


def _bounds(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Where each row begins and ends, by the contract."""
    lengths = inputs.row_lengths().long()
    width = inputs.case.width
    begins = torch.zeros_like(lengths) if inputs.row_starts is None else inputs.row_starts.long()
    return begins, torch.minimum(begins + lengths.clamp_min(0), torch.full_like(lengths, width))


def _ascending_keys(scores: Tensor) -> Tensor:
    """int32 that compare as the scores do; +0 and -0 are the same."""
    bits = (scores.float() + 0.0).view(torch.int32)
    return torch.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)


def _in_order(order: str, indices: Tensor, chosen: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """By row: whether the slots are in order, and whether those of equal scores are as well."""
    padding = ~real[:, 1:]
    later = (indices.diff(dim=1) > 0) | padding
    if order == "any":
        later = torch.ones_like(later)
    if order != "value":
        return later.all(1), later.all(1)
    before, after = chosen[:, :-1], chosen[:, 1:]
    return ((after <= before) | padding).all(1), ((after < before) | later).all(1)


def _same_values(scores: Tensor, places: Tensor, real: Tensor, answers: list[Answer]) -> Tensor:
    given = [answer.values for answer in answers if answer.values is not None]
    if not given:
        return torch.ones(len(scores), dtype=torch.bool, device=scores.device)
    values = torch.stack(given).flatten(0, 1)
    expected = torch.where(real, scores.gather(1, places), float("-inf"))
    return (values == expected).all(1)
