"""Values drawn for the fields of records: small ones, odd ones, and often the same ones."""

from __future__ import annotations

import random
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

TEXTS = ("", "a", "b", "another", "ünïcödé", "x" * 200)
NUMBERS = (-1, 0, 1, 2, 3, 7, 10, 60, 1000)
LIST_MAX = 3


def drawn_value(wanted: Any, chance: random.Random) -> Any:
    """Return a value of a type, as one of an extension's fields has it. Raises TypeError."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted in _PLAIN:
        return _PLAIN[wanted](chance)
    if isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        fields = msgspec.structs.fields(wanted)
        return wanted(**{each.name: drawn_value(each.type, chance) for each in fields})
    if isinstance(wanted, type) and hasattr(wanted, "__members__"):
        return chance.choice([*wanted])  # type: ignore[call-overload]
    if origin in (typing.Union, types.UnionType):
        return drawn_value(chance.choice(arguments), chance)
    if origin is typing.Literal:
        return chance.choice(arguments)
    many = range(chance.randint(0, LIST_MAX))
    if origin is tuple and arguments[-1:] != (Ellipsis,):
        return tuple(drawn_value(each, chance) for each in arguments)
    if origin in (tuple, list, frozenset, set):
        return origin(drawn_value(arguments[0], chance) for _ in many)
    if origin is dict:
        return {drawn_value(arguments[0], chance): drawn_value(arguments[1], chance) for _ in many}
    raise TypeError(f"no values can be drawn for {wanted}: give the storms a `command`")


_PLAIN: Mapping[Any, Callable[[random.Random], Any]] = {
    str: lambda chance: chance.choice(TEXTS),
    int: lambda chance: chance.choice(NUMBERS),
    float: lambda chance: float(chance.choice(NUMBERS)) + chance.choice((0.0, 0.5)),
    bool: lambda chance: chance.random() < 0.5,
    bytes: lambda chance: chance.choice(TEXTS).encode(),
    type(None): lambda chance: None,
    Any: lambda chance: chance.choice((None, *TEXTS, *NUMBERS)),
}
