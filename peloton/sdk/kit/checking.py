"""What is wrong with a declaration, as lines of `file:line: kind NAME: text`.

Checked is what can be known without running a function: classes and their fields, what functions
are called with and name, the rows of the goal table.
"""

from __future__ import annotations

import enum
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from types import CodeType, UnionType
from typing import Any

import msgspec

from peloton.sdk.kit import values
from peloton.sdk.kit.declaring import ActorKind, undeclared
from peloton.sdk.kit.limits import LIMITS_MAX

NAME = re.compile(r"[a-z][a-z0-9_]{0,30}", re.ASCII)
SHARDS_MAX = 4096
_ROLES: dict[str, tuple[str, type, int]] = {
    "messages": ("message", values.ActorMessage, 3),
    "facts": ("fact", values.ActorFact, 2),
    "queries": ("query", values.ActorQuery, 3),
}
"""By the table: the word for its classes, their base, and how many arguments a function gets."""
_HOOK_ARGUMENTS = 1
_STEP_ARGUMENTS = 2
_ANSWERED_ARGUMENTS = 3
_MUTABLE = {list: "tuple[X, ...]", dict: "Mapping", set: "frozenset", bytearray: "bytes"}
"""Types whose values could be changed in place, without a fact, and what there is instead."""


def problems(kind: ActorKind) -> list[str]:
    """Return every mistake of a declaration, in the order of its parts."""
    lines = [f"{where}: kind {kind.name}: {text}" for where, text in _each(kind)]
    return [*dict.fromkeys(lines)]  # a struct may be in several fields


def place(of: Any) -> str:
    """Return `file:line` of a function or a class; of anything else its text."""
    code = getattr(inspect.unwrap(of) if callable(of) else of, "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    try:
        return f"{inspect.getsourcefile(of)}:{inspect.getsourcelines(of)[1]}"
    except (OSError, TypeError):  # made without a file, such as by `defstruct`
        return f"{getattr(of, '__module__', '?')}.{getattr(of, '__qualname__', of)}"


def _each(kind: ActorKind) -> Iterator[tuple[str, str]]:
    yield from _of_words(kind)
    yield from _of_state(kind)
    for name, function in kind.twice:
        yield place(function), f"{name} is declared twice"
    for table, (word, base, takes) in _ROLES.items():
        for cls, function in getattr(kind, table).items():
            yield from _of_class(cls, word, base=base)
            what = f"the function of {word} {_name(cls)}"
            if function is not undeclared:
                yield from _of_function(function, what, takes=takes)
            elif isinstance(cls, type):
                yield place(cls), f"{what} is not declared"
    for cls in kind.replies:
        if cls is not kind.state:
            yield from _of_class(cls, "reply", base=values.ActorReply)
    if not kind.messages:
        yield kind.place, "it decides no message"
    yield from _of_numbers(kind)
    for name, function in kind.dues.items():
        if not (isinstance(name, str) and name and ":" not in name):
            at = place(name if function is undeclared else function)
            yield at, f"due {_name(name)!r}: give a name, the part before the colon"
            continue
        yield from _of_function(function, f"what {name} is due for", takes=_STEP_ARGUMENTS)
    for name, function in kind.hooks.items():
        takes = _ANSWERED_ARGUMENTS if name == "answered" else _HOOK_ARGUMENTS
        yield from _of_function(function, f"`{name}`", takes=takes)
    if ("calls" in kind.hooks) != ("answered" in kind.hooks):
        some = kind.hooks.get("calls") or kind.hooks["answered"]
        yield place(some), "`calls` need a function `answered` for their answers, and that `calls`"
    if ("deadline" in kind.hooks) != bool(kind.dues):
        some = kind.hooks.get("deadline") or next(iter(kind.dues.values()))
        yield place(some), "a deadline needs a function `due` for its name, and that a deadline"
    yield from _of_goals(kind)
    yield from _of_names(kind)


def _of_words(kind: ActorKind) -> Iterator[tuple[str, str]]:
    if not (isinstance(kind.name, str) and NAME.fullmatch(kind.name)):
        yield kind.place, "the name is not 1 to 31 of a-z, 0-9 and _, a letter first"
    if not (type(kind.shards) is int and 1 <= kind.shards <= SHARDS_MAX):
        yield kind.place, f"shards: {kind.shards!r} is no whole number between 1 and {SHARDS_MAX}"
    for limit, most in LIMITS_MAX._asdict().items():
        given: Any = getattr(kind.limits, limit, None)
        if not (type(given) in (int, float) and 0 <= given <= most):
            yield kind.place, f"limits.{limit}: {given!r} is no number between 0 and {most}"
    if isinstance(kind.sends_to, str):
        yield kind.place, f"sends_to: {kind.sends_to!r} is a text, not a tuple of names"


def _of_state(kind: ActorKind) -> Iterator[tuple[str, str]]:
    state = kind.state
    yield from _of_class(state, "state", base=values.ActorState, where=kind.place)
    for field in _fields(state):
        if field.required:
            text = f"field {field.name} of {_name(state)} has no default: a new actor has none"
            yield place(state), text


def _of_class(cls: Any, word: str, *, base: type, where: str = "") -> Iterator[tuple[str, str]]:
    if not (isinstance(cls, type) and issubclass(cls, base)):
        at = place(cls) if isinstance(cls, type) or not where else where
        yield at, f"the {word} {_name(cls)} is not a class below kit.{base.__name__}"
        return
    config = cls.__struct_config__  # type: ignore[attr-defined]
    if not config.frozen:
        yield place(cls), f"the {word} {_name(cls)} is not frozen"
    if config.array_like:
        yield place(cls), f"the {word} {_name(cls)} is array_like: fields are stored by name"
    if config.forbid_unknown_fields:
        text = "forbids unknown fields, which a later version may write"
        yield place(cls), f"the {word} {_name(cls)} {text}"
    try:
        msgspec.json.Decoder(cls)
    except (TypeError, NameError) as error:
        yield place(cls), f"the {word} {_name(cls)} cannot be encoded: {error}"
        return
    for field in _fields(cls):
        for flaw in _flaws(field.type, set()):
            yield place(cls), f"field {field.name} of {_name(cls)}: {flaw}"
        if not isinstance(field.default_factory, type | type(msgspec.NODEFAULT)):
            text = "its default is made by a function, so what is stored without it would vary"
            yield place(cls), f"field {field.name} of {_name(cls)}: {text}"


def _fields(cls: Any) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of a struct; none if a type of one is not there."""
    try:
        return msgspec.structs.fields(cls)
    except (TypeError, NameError):
        return ()


def _flaws(of: Any, seen: set[Any]) -> Iterator[str]:
    """Yield what is wrong with the type of a field, and with those that it is made of."""
    of = getattr(of, "__supertype__", of)
    origin = typing.get_origin(of) or of
    if not isinstance(origin, type) or origin is UnionType:  # or a literal's value
        pass
    elif origin in _MUTABLE:
        yield f"a {origin.__name__} can be changed in place: use {_MUTABLE[origin]}"
    elif isinstance(msgspec.inspect.type_info(origin), msgspec.inspect.CustomType):
        yield f"a {_name(origin)} cannot be stored"
    elif issubclass(origin, msgspec.Struct) and origin not in seen:
        seen.add(origin)
        if not origin.__struct_config__.frozen:
            yield f"{_name(origin)} is not frozen"
        for field in _fields(origin):
            yield from _flaws(field.type, seen)
    for part in typing.get_args(of):
        yield from _flaws(part, seen)


def _of_function(
    function: Callable[..., Any], what: str, *, takes: int
) -> Iterator[tuple[str, str]]:
    if not callable(function):
        yield place(function), f"{what} is no function"
        return
    if (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    ):
        yield place(function), f"{what} is a coroutine or a generator: it must return its result"
    try:
        inspect.signature(function).bind(*range(takes))
    except TypeError:
        yield place(function), f"{what} is called with {takes} arguments"


def _of_numbers(kind: ActorKind) -> Iterator[tuple[str, str]]:
    row = type("Row", (), {})  # of listings, which `build` makes
    received = {**kind.messages, **kind.queries}
    for group in (received, kind.facts, {row: None, **kind.replies}):
        seen: dict[int, type] = {}
        for cls in group:
            if not isinstance(cls, type):
                continue
            other = seen.setdefault(values.class_number(cls), cls)
            if other is not cls:
                text = f"{_name(cls)} is stored by the number of {_name(other)}"
                yield place(cls), f"{text} of {other.__module__}: name one of them otherwise"


def _of_names(kind: ActorKind) -> Iterator[tuple[str, str]]:
    """Yield the functions that name a fact, a reply or a message that was not declared."""
    steps = [] if kind.goals is None else [*kind.goals.steps.values()]
    functions = [
        *(*kind.messages.values(), *kind.queries.values(), *kind.dues.values()),
        *(step for row in steps if isinstance(row, tuple | list) for step in row),
        *(kind.hooks[name] for name in ("owes", "answered") if name in kind.hooks),
    ]
    known = {*kind.messages, *kind.facts, *kind.replies}
    for function in functions:
        for cls in dict.fromkeys(_named_by(function, set())):
            if cls in known:
                continue
            if issubclass(cls, values.ActorFact):
                yield place(function), f"no function folds the fact {_name(cls)} that it uses"
            elif issubclass(cls, values.ActorReply):
                yield place(function), f"no `reply=` declares the reply {_name(cls)} that it uses"
            elif issubclass(cls, values.ActorMessage) and not kind.sends_to:
                yield place(function), f"no function decides the message {_name(cls)} that it uses"


def _named_by(function: Any, seen: set[Any]) -> Iterator[type]:
    """Yield the classes that a function names, or one of its module that it calls."""
    function = inspect.unwrap(function) if callable(function) else function
    if not inspect.isfunction(function) or function in seen:
        return
    seen.add(function)
    for name in _names_in(function.__code__):
        found = function.__globals__.get(name)
        if isinstance(found, type):
            yield found
        elif inspect.isfunction(found) and found.__module__ == function.__module__:
            yield from _named_by(found, seen)


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _of_goals(kind: ActorKind) -> Iterator[tuple[str, str]]:
    goals = kind.goals
    if goals is None:
        return
    yield from _of_function(goals.phase, "the phase of the goal table", takes=_HOOK_ARGUMENTS)
    if not goals.steps:
        yield place(goals.phase), "the goal table has no row"
    for phase, steps in goals.steps.items():
        if not isinstance(steps, tuple | list):
            yield place(goals.phase), f"the row of {phase} is no tuple of steps"
            continue
        for step in steps:
            yield from _of_function(step, f"a step of {phase}", takes=_STEP_ARGUMENTS)
    enums = dict.fromkeys(type(phase) for phase in goals.steps if isinstance(phase, enum.Enum))
    for enumerated in enums:
        missing = [str(each) for each in enumerated if each not in goals.steps]
        if missing:
            yield place(goals.phase), f"the goal table has no row for {', '.join(missing)}"


def _name(cls: Any) -> str:
    return str(getattr(cls, "__qualname__", cls))
