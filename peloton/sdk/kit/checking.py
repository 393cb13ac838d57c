"""What is wrong with a declaration, as lines of `file:line: kind NAME: text`.

Checked is what can be known without running a function: classes and their fields, what functions
are called with, the rows of the goal table.
"""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from peloton.sdk.kit import values
from peloton.sdk.kit.declaring import ActorKind

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


def problems(kind: ActorKind) -> list[str]:
    """Return every mistake of a declaration, in the order of its parts."""
    return [f"{where}: kind {kind.name}: {text}" for where, text in _each(kind)]


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
    state = kind.state
    if NAME.fullmatch(kind.name) is None:
        yield place(state), "the name is not 1 to 31 of a-z, 0-9 and _, a letter first"
    if not 1 <= kind.shards <= SHARDS_MAX:
        yield place(state), f"shards: {kind.shards} is not between 1 and {SHARDS_MAX}"
    yield from _of_state(state)
    for name, function in kind.twice:
        yield place(function), f"{name} is declared twice"
    for table, (word, base, takes) in _ROLES.items():
        for cls, function in getattr(kind, table).items():
            yield from _of_class(cls, word, base=base)
            yield from _of_function(function, f"the function of {word} {_name(cls)}", takes=takes)
    for cls in kind.replies:
        if cls is not state:
            yield from _of_class(cls, "reply", base=values.ActorReply)
    if not kind.messages:
        yield place(state), "it decides no message"
    yield from _of_numbers(kind)
    for name, function in kind.dues.items():
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


def _of_state(state: type) -> Iterator[tuple[str, str]]:
    yield from _of_class(state, "state", base=values.ActorState)
    if isinstance(state, type) and issubclass(state, msgspec.Struct):
        for field in msgspec.structs.fields(state):
            if field.required:
                text = f"field {field.name} of {_name(state)} has no default: a new actor has none"
                yield place(state), text


def _of_class(cls: Any, word: str, *, base: type) -> Iterator[tuple[str, str]]:
    if not (isinstance(cls, type) and issubclass(cls, base)):
        yield place(cls), f"the {word} {_name(cls)} is not a class below kit.{base.__name__}"
        return
    if not cls.__struct_config__.frozen:  # type: ignore[attr-defined]
        yield place(cls), f"the {word} {_name(cls)} is not frozen"
    try:
        msgspec.json.Decoder(cls)
    except (TypeError, NameError) as error:
        yield place(cls), f"the {word} {_name(cls)} cannot be encoded: {error}"


def _of_function(
    function: Callable[..., Any], what: str, *, takes: int
) -> Iterator[tuple[str, str]]:
    if not callable(function):
        yield place(function), f"{what} is no function"
        return
    try:
        inspect.signature(function).bind(*range(takes))
    except TypeError:
        yield place(function), f"{what} is called with {takes} arguments"


def _of_numbers(kind: ActorKind) -> Iterator[tuple[str, str]]:
    for group in (kind.messages, kind.facts, {**kind.queries, **dict.fromkeys(kind.replies)}):
        seen: dict[int, type] = {}
        for cls in group:
            other = seen.setdefault(values.class_number(cls), cls)
            if other is not cls:
                text = f"{_name(cls)} is stored by the number of {place(other)} {_name(other)}"
                yield place(cls), f"{text}: name one of them otherwise"


def _of_goals(kind: ActorKind) -> Iterator[tuple[str, str]]:
    goals = kind.goals
    if goals is None:
        return
    yield from _of_function(goals.phase, "the phase of the goal table", takes=_HOOK_ARGUMENTS)
    for phase, steps in goals.steps.items():
        for step in steps:
            yield from _of_function(step, f"a step of {phase}", takes=_STEP_ARGUMENTS)
    enums = dict.fromkeys(type(phase) for phase in goals.steps if isinstance(phase, enum.Enum))
    for enumerated in enums:
        missing = [str(each) for each in enumerated if each not in goals.steps]
        if missing:
            yield place(goals.phase), f"the goal table has no row for {', '.join(missing)}"


def _name(cls: Any) -> str:
    return str(getattr(cls, "__qualname__", cls))
