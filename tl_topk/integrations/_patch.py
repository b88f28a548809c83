"""Putting our functions in the place of an engine's, for a while."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, TypeAlias

__all__ = ["Function", "engine_module", "patched_functions", "patched_operators"]

Function: TypeAlias = Callable[..., Any]


def engine_module(name: str) -> ModuleType:
    """The engine's module; ImportError that says what it was wanted for where there is none."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"install: expected {name} to be importable, as it is to be patched, got: {error}"
        ) from error


@contextmanager
def patched_functions(package: str, ours: Iterable[Function], *modules: str) -> Iterator[None]:
    """Replaces functions of ``modules`` by those of ours with the same names.

    Wherever else in ``package`` and what has been imported from it the engine's function is held
    under whatever name, it is replaced as well: engines say ``from x import f``.

    Raises:
        ImportError: a module is not there.
        ValueError: an engine's function takes arguments that ours would not understand, or it has
            none of the functions; nothing has been patched then.
    """
    sources = [engine_module(name) for name in modules]
    pairs = [
        (theirs, each)
        for each in ours
        for source in sources
        if inspect.isroutine(theirs := getattr(source, each.__name__, None))
    ]
    if not pairs:
        names = ", ".join(each.__name__ for each in ours)
        raise ValueError(f"{package}: expected one of {names}, got a version with none of them")
    for theirs, each in pairs:
        _check_signature(f"{package}.{each.__name__}", theirs, each)
    with ExitStack() as undo:
        for module in list(sys.modules.values()):
            for name, value in list(getattr(module, "__dict__", {}).items()):
                for theirs, each in pairs:
                    if value is theirs:
                        undo.callback(setattr, module, name, value)
                        setattr(module, name, each)
        yield


def _check_signature(name: str, theirs: Function, ours: Function) -> None:
    """Raises unless every call that is valid for theirs is valid for ours, and means the same."""
    wanted, offered = inspect.signature(theirs), inspect.signature(ours)
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    positional = [p.name for p in wanted.parameters.values() if p.kind is not keyword_only]
    named = {p.name for p in wanted.parameters.values() if p.kind is keyword_only}
    ours_positional = [p.name for p in offered.parameters.values() if p.kind is not keyword_only]
    further = [p for p in offered.parameters.values() if p.name not in wanted.parameters]
    if (
        ours_positional[: len(positional)] != positional
        or not named <= set(offered.parameters)
        or any(p.default is inspect.Parameter.empty for p in further)
    ):
        raise ValueError(f"{name}: expected the signature {offered}, got {wanted}")


@contextmanager
def patched_operators(namespace: str, ours: Iterable[Function]) -> Iterator[None]:
    """Replaces operators of ``torch.ops.NAMESPACE`` by functions with the same names.

    Raises:
        ValueError: an operator takes other arguments, or there is none of them; nothing has been
            patched then.
    """
    import torch

    operators = getattr(torch.ops, namespace)
    there = [each for each in ours if hasattr(operators, each.__name__)]
    if not there:
        names = ", ".join(each.__name__ for each in ours)
        raise ValueError(
            f"torch.ops.{namespace}: expected one of {names}, got a version with none of them"
        )
    for each in there:
        schema = getattr(operators, each.__name__).default._schema
        wanted = [argument.name for argument in schema.arguments]
        offered = list(inspect.signature(each).parameters)
        if [_plain(name) for name in wanted] != [_plain(name) for name in offered]:
            raise ValueError(
                f"torch.ops.{namespace}.{each.__name__}: expected the arguments"
                f" ({', '.join(offered)}), got ({', '.join(wanted)})"
            )
    with ExitStack() as undo:
        for each in there:
            # A namespace keeps the operators it has been asked for as plain attributes.
            undo.callback(setattr, operators, each.__name__, getattr(operators, each.__name__))
            setattr(operators, each.__name__, each)
        yield


def _plain(name: str) -> str:
    """``numRows`` and ``num_rows`` are the same argument."""
    return name.replace("_", "").lower()
