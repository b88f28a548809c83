"""Options that are passed by keyword alone, and cost no more than arguments passed by position.

Python fills in each omitted keyword-only argument from a dictionary, which in a call with seven of
them costs as much as passing two tensors to native code. Ours are ordinary arguments instead, and a
parameter before them that nobody may pass keeps them apart from those passed by position::

    @keyword_options
    def topk(scores, k, _: NoReturn = GUARD, lengths=None, ...):
        if _ is not GUARD:
            refuse_positional("topk", "scores and k")
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

__all__ = ["GUARD", "keyword_options", "refuse_positional"]

F = TypeVar("F", bound=Callable[..., Any])

#: What the guarding parameter holds as long as nobody passes it.
GUARD: Any = ...


def keyword_options(function: F) -> F:
    """``function`` itself, which says of itself what its callers need to know."""
    signature = inspect.signature(function)
    shown: list[inspect.Parameter] = []
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for name, parameter in signature.parameters.items():
        if name == "_":
            kind = inspect.Parameter.KEYWORD_ONLY
        else:
            shown.append(parameter.replace(kind=kind))
    function.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return function


def refuse_positional(function: str, allowed: str) -> NoReturn:
    raise TypeError(f"{function}: expected {allowed} by position and the rest by keyword")
