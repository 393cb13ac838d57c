"""What becomes of an actor that fails: a pure function of its record.

Turns a failed turn into "again after a while", "set the message aside" or "quarantine the actor".
It must not hide a failure: every one is told to the story with its error. Here, and in the shells,
is the only place that catches `Exception`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from peloton.runtime.vocabulary import At, Kind, Unavailable

T = TypeVar("T")

ATTEMPTS_MAX = 3
RETRY_FIRST_S = 0.5
SET_ASIDE_MAX = 3
ERROR_CHARS_MAX = 2000
"""An error that tells the whole message it failed on would be too large to be written down."""


class Response(enum.Enum):
    """What the supervisor orders."""

    RETRY = "retry"
    SET_ASIDE = "set aside"


class Failure(NamedTuple):
    """A turn that raised: the actor's state is the last good one."""

    error: str


def attempt(turn: Callable[..., T], *args: Any, **more: Any) -> T | Failure:
    """Run a turn; what it raises becomes a value."""
    try:
        return turn(*args, **more)
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}"[:ERROR_CHARS_MAX])


def attempt_at(
    raised: Callable[[Exception], Exception], step: Callable[..., T], *args: Any, **more: Any
) -> T:
    """Run a step; what it raises becomes what `raised` makes of it: the same, and where it was."""
    try:
        return step(*args, **more)
    except Exception as error:
        raise raised(error) from error


def attempt_query(look: Callable[..., Any], *args: Any) -> Any:
    """Run a query; one that raises is answered so, and harms nobody else."""
    try:
        return look(*args)
    except Exception as error:
        return Unavailable(f"the query failed: {type(error).__name__}: {error}")


def attempt_pursue(kind: Kind, state: Any, at: At) -> Any:
    """The next step towards the goal; None when the look raised: the turn will tell."""
    try:
        return kind.pursue(state, at)
    except Exception:
        return None


def attempt_test(test: Callable[..., Any], *args: Any) -> bool:
    """Whether a test of a kind says yes; one that raises says no, the side on which it is safe."""
    return attempt(test, *args) is True


def respond(attempts: int) -> Response:
    """What to do after the `attempts`-th failure of one message."""
    return Response.SET_ASIDE if attempts >= ATTEMPTS_MAX else Response.RETRY


def retry_after_s(attempts: int) -> float:
    """How long to wait before the next try."""
    return float(RETRY_FIRST_S * 2 ** (attempts - 1))


def quarantined_after(set_aside: int) -> bool:
    """Whether an actor with so many messages set aside is to be left alone."""
    return set_aside >= SET_ASIDE_MAX
