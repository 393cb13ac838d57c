"""Supervision of an actor that fails: a pure function of its record.

Turns a failed turn into "retry with backoff", "keep the message as a dead letter" or "quarantine
the actor". No failure is hidden: each is noted in the story with its error. Only this module and
the shells catch `Exception`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from peloton.pauses import Pauses
from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import At, Unavailable

T = TypeVar("T")

ATTEMPTS_MAX = 3
RETRY = Pauses(0.5, 60.0)
"""Of a message that its actor failed on."""
DEAD_LETTERS_MAX = 3
"""An actor with so many is quarantined."""
ERROR_CHARS_MAX = 2000
"""An error text that quotes the whole message it failed on would be too large to be journaled."""


class Response(enum.Enum):
    """An order of the supervisor."""

    RETRY = "retry"
    DEAD_LETTER = "dead letter"


class Failure(NamedTuple):
    """The error of a function that raised, as a value; the actor's state is the last good one."""

    error: str


def attempt(turn: Callable[..., T], *args: Any, **more: Any) -> T | Failure:
    """Call a function; return an exception as a `Failure`."""
    try:
        return turn(*args, **more)
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}"[:ERROR_CHARS_MAX])


def attempt_at(
    raised: Callable[[Exception], Exception], step: Callable[..., T], *args: Any, **more: Any
) -> T:
    """Call a step; raise `raised(error)`, which adds where it happened."""
    try:
        return step(*args, **more)
    except Exception as error:
        raise raised(error) from error


def attempt_query(inspect: Callable[..., Any], *args: Any) -> Any:
    """Answer a query; return the error as the answer if it raises."""
    try:
        return inspect(*args)
    except Exception as error:
        return Unavailable(f"the query failed: {type(error).__name__}: {error}")


def attempt_pursue(kind: Kind, state: Any, at: At) -> Any:
    """Return the next step towards the goal; None if `pursue` raised."""
    try:
        return kind.pursue(state, at)
    except Exception:
        return None


def attempt_test(test: Callable[..., Any], *args: Any) -> bool:
    """Return whether a test of a kind returns True; False, the safe side, if it raises."""
    return attempt(test, *args) is True


def respond(attempts: int) -> Response:
    """Return what to do after the `attempts`-th failure of one message."""
    return Response.DEAD_LETTER if attempts >= ATTEMPTS_MAX else Response.RETRY


def quarantined_after(dead_letters: int) -> bool:
    """Return whether an actor with so many dead letters is to be quarantined."""
    return dead_letters >= DEAD_LETTERS_MAX
