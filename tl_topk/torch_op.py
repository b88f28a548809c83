"""The same calls as registered torch operators, for what needs torch's dispatcher.

torch.compile sees one node with known shapes instead of a graph break; autograd gets a backward;
tensor subclasses get their own dispatch. An eager call on plain tensors never comes here: the
operator boundary costs more than the call.

Registered through ``torch.library.Library``: ``torch.library.custom_op`` costs four times as much
per call.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.compiler import is_dynamo_compiling

from tl_topk import mapped
from tl_topk.dispatch import POLICIES, Choice, Policy, check_backend
from tl_topk.mapped import Mapping, Outputs
from tl_topk.problem import checked_order
from tl_topk.scalars import checked_flag
from tl_topk.select import Options, select_eagerly
from tl_topk.torch_arrays import TORCH

__all__ = ["select", "select_mapped"]

_INPUTS = (
    "Tensor scores, SymInt k, Tensor? lengths, Tensor? row_starts, bool largest, str order,"
    " str backend"
)
# Must stay alive: dropping it unregisters. (Any: its methods are not typed.)
_LIBRARY: Any = torch.library.Library("tl_topk", "DEF")  # type: ignore[no-untyped-call]

Maybe = torch.Tensor | None

_POLICY = "policy:"  # begins the name of one in the place of a backend's


def select(
    options: Options,
    scores: torch.Tensor,
    lengths: Maybe,
    row_starts: Maybe,
    values: Maybe,
    indices: Maybe,
) -> tuple[Any, Any]:
    """:func:`tl_topk.select.routed` as one operator call."""
    if not is_dynamo_compiling():
        options = _checked(options, lengths, row_starts)
    k, largest, order, choice, with_values = options
    inputs = (scores, k, lengths, row_starts, largest, order, _name_of(choice))
    operators = torch.ops.tl_topk
    if indices is None:
        if with_values:
            values, indices = operators.topk(*inputs)
            return values, indices
        return None, operators.topk_indices(*inputs)
    if with_values:
        if scores.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                "out: expected None when scores requires grad, as filling it is not differentiable:"
                " call without out, or under torch.no_grad()"
            )
        operators.topk_out(*inputs, values, indices)
    else:
        operators.topk_indices_out(*inputs, indices)
    return values, indices


def _checked(options: Options, lengths: object, row_starts: object) -> Options:
    """``options``, all of which the operators' schema admits: it has worse words for the others."""
    for name, array in (("lengths", lengths), ("row_starts", row_starts)):
        if array is not None and not isinstance(array, torch.Tensor):
            raise TypeError(
                f"{name}: expected a torch tensor, as scores are, got {type(array).__name__}"
            )
    check_backend(options.backend)
    checked_order(options.order)
    return options._replace(largest=checked_flag("largest", options.largest))


#: Policies that have no name, for as long as their calls last.
_nameless: WeakValueDictionary[str, Policy] = WeakValueDictionary()


def _name_of(choice: Choice) -> str:
    """``choice`` as a string, the only form that an operator takes it in."""
    if isinstance(choice, str):
        return choice
    for name, policy in POLICIES.items():
        if policy is choice:
            return _POLICY + name
    if is_dynamo_compiling():
        raise TypeError(
            f"policy: expected one of {', '.join(map(repr, POLICIES))} under torch.compile, got a"
            " callable: set it by tl_topk.use_policy or tl_topk.set_policy around the compiled call"
        )
    name = f"{_POLICY}{id(choice)}"
    _nameless[name] = choice
    return name


def _choice_of(name: str) -> Choice:
    """What :func:`_name_of` has named."""
    if not name.startswith(_POLICY):
        return name
    return POLICIES.get(name.removeprefix(_POLICY)) or _nameless[name]


def select_mapped(
    options: Options, scores: torch.Tensor, mapping: Mapping, outputs: Outputs, wanted: str
) -> Outputs:
    """:func:`tl_topk.mapped.select_mapped` as one operator call."""
    k, largest, order, choice, _ = options
    if not is_dynamo_compiling():
        check_backend(choice)
        checked_order(order)
        largest = checked_flag("largest", largest)
    if getattr(outputs, wanted) is None:
        outputs = outputs._replace(**{wanted: _topk_indices_fake(scores, k)})
    torch.ops.tl_topk.topk_mapped_out(
        scores, k, *mapping, largest, order, _name_of(choice), *outputs
    )
    return outputs


def _topk_mapped_out(scores: torch.Tensor, k: int, *given: Any) -> None:
    numbers = len(Mapping._fields)
    mapping, (largest, order, choice), outputs = (
        Mapping(*given[:numbers]),
        given[numbers : numbers + 3],
        Outputs(*given[numbers + 3 :]),
    )
    mapped.select_mapped_eagerly(
        TORCH, Options(k, largest, order, _choice_of(choice), False), scores, mapping, outputs
    )


def _fill(inputs: tuple[Any, ...], values: Maybe, indices: torch.Tensor) -> None:
    scores, k, lengths, row_starts, largest, order, choice = inputs
    options = Options(k, largest, order, _choice_of(choice), values is not None)
    select_eagerly(TORCH, options, scores, lengths, row_starts, values, indices)


def _topk(*inputs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = _topk_fake(*inputs)
    _fill(inputs, values, indices)
    return values, indices


def _topk_indices(*inputs: Any) -> torch.Tensor:
    indices = _topk_indices_fake(*inputs)
    _fill(inputs, None, indices)
    return indices


def _topk_out(*inputs_values_indices: Any) -> None:
    *inputs, values, indices = inputs_values_indices
    _fill(tuple(inputs), values, indices)


def _topk_indices_out(*inputs_indices: Any) -> None:
    *inputs, indices = inputs_indices
    _fill(tuple(inputs), None, indices)


def _topk_fake(scores: torch.Tensor, k: int, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    indices = _topk_indices_fake(scores, k)
    return scores.new_empty(indices.shape), indices


def _topk_indices_fake(scores: torch.Tensor, k: int, *_: Any) -> torch.Tensor:
    torch._check_value(  # type: ignore[no-untyped-call]
        k >= 0, lambda: f"k: expected at least 0, got {k}"
    )
    return scores.new_empty((*scores.shape[:-1], k), dtype=torch.int32)


def _nothing(*_inputs: Any) -> None:
    """The fake of an operator that only fills its outputs."""


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    scores, _, _, row_starts = inputs[:4]
    ctx.shape = scores.shape
    ctx.save_for_backward(output[1], row_starts)


def _backward(ctx: Any, grad_values: torch.Tensor, _grad_indices: None) -> tuple[Any, ...]:
    """Each value's gradient goes to the score it was copied from; padding has none."""
    indices, row_starts = ctx.saved_tensors
    position = indices.long()
    if row_starts is not None:
        start = row_starts.long().clamp(min=0)
        position = position + (start if indices.dim() == 1 else start.unsqueeze(1))
    position = torch.where(indices < 0, 0, position)  # any column, where a zero is added
    grad_values = torch.where(indices < 0, 0, grad_values)
    *rows, width = ctx.shape
    grad = grad_values.new_zeros((*rows, max(width, 1))).scatter_add(-1, position, grad_values)
    return (grad[..., :width], *[None] * 6)


for _name, _outputs, _implementation, _fake in (
    ("topk", ") -> (Tensor values, Tensor indices)", _topk, _topk_fake),
    ("topk_indices", ") -> Tensor indices", _topk_indices, _topk_indices_fake),
    ("topk_out", ", Tensor(a!) values, Tensor(b!) indices) -> ()", _topk_out, _nothing),
    ("topk_indices_out", ", Tensor(a!) indices) -> ()", _topk_indices_out, _nothing),
):
    _LIBRARY.define(f"{_name}({_INPUTS}{_outputs}")
    _LIBRARY.impl(_name, _implementation, "CompositeExplicitAutograd")
    torch.library.register_fake(f"tl_topk::{_name}", _fake, lib=_LIBRARY)

_LIBRARY.define(
    "topk_mapped_out(Tensor scores, SymInt k, "
    + ", ".join(f"Tensor? {name}" for name in Mapping._fields[:8])
    + ", int page_size, int next_n, int compress_ratio, bool largest, str order, str backend,"
    " Tensor(a!)? indices, Tensor(b!)? slots, Tensor(c!)? ragged) -> ()"
)
_LIBRARY.impl("topk_mapped_out", _topk_mapped_out, "CompositeExplicitAutograd")
torch.library.register_fake("tl_topk::topk_mapped_out", _nothing, lib=_LIBRARY)

torch.library.register_autograd(
    "tl_topk::topk", _backward, setup_context=_setup_context, lib=_LIBRARY
)
