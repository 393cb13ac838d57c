"""Runs a function of a user and keeps whatever comes of it.

The one place of the executor that catches every failure: an exception of a call belongs to its
future, whatever it is.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from peloton.sdk.executor.errors import NotSendable

NOTHING: Mapping[str, Any] = {}


class CallOutcome(NamedTuple):
    """What came of a call: its result, or else its exception."""

    result: Any = None
    exception: BaseException | None = None


def call_outcome(
    function: Callable[..., Any], args: Iterable[Any] = (), *, kwargs: Mapping[str, Any] = NOTHING
) -> CallOutcome:
    """Call a function; return what came of it."""
    try:
        return CallOutcome(function(*args, **kwargs))
    except BaseException as error:
        return CallOutcome(exception=error)


def pickled(dumps: Callable[[Any], bytes], value: Any, *, what: str) -> bytes:
    """Return the pickle of a value. Raises NotSendable: `__reduce__` of a user may raise
    anything."""
    try:
        return dumps(value)
    except Exception as error:
        text = f"{what} cannot be pickled: {type(error).__name__}: {error}"
        raise NotSendable(text) from error


def unpickled(data: bytes, *, what: str) -> Any:
    """Return the value of a pickle, of a peer that has shown the token. Raises NotSendable."""
    try:
        return pickle.loads(data)
    except Exception as error:
        text = f"{what} cannot be unpickled: {type(error).__name__}: {error}"
        raise NotSendable(text) from error
