"""Turns functions, arguments and results into bytes, and refuses what is too large.

cloudpickle sends functions of a script, lambdas and closures by value; the extra `executor` has it.
A peer that has not shown the token is never unpickled: `peers.py` sees to that.
"""

from __future__ import annotations

import hashlib
import pickle
import traceback
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from peloton import INSTALL_EXTRA
from peloton.sdk.errors import Unsupported
from peloton.sdk.executor.errors import NotSendable, RemoteTraceback, TooLarge
from peloton.sdk.executor.needs import NeedsWorkers
from peloton.sdk.executor.outcome import CallOutcome, pickled, unpickled

MIB = 1024 * 1024
FUNCTION_BYTES_MAX = 16 * MIB
ARGUMENTS_BYTES_MAX = 64 * MIB
RESULT_BYTES_MAX = 64 * MIB
CHECKPOINT_BYTES_MAX = 64 * MIB
PROTOCOL = 5
SIMPLE = frozenset({int, float, complex, str, bytes, bool, type(None)})
"""Values of these types need no look at where their classes are defined."""
NONE = pickle.dumps(None, PROTOCOL)


class PackedFunction(NamedTuple):
    """A function as bytes; workers keep it under its digest."""

    name: str
    digest: bytes
    data: bytes


class PackedWork(NamedTuple):
    """A function, and the arguments of one call."""

    function: PackedFunction
    arguments: bytes


def cloudpickled(value: Any) -> bytes:
    """Return the pickle of any value that cloudpickle can send."""
    import cloudpickle

    return bytes(cloudpickle.dumps(value, PROTOCOL))


def require_cloudpickle() -> None:
    """Raise Unsupported if it is not installed."""
    try:
        import cloudpickle  # noqa: F401
    except ImportError:
        text = f"the package cloudpickle is missing; {INSTALL_EXTRA.format('executor')}"
        raise Unsupported(text) from None


def named_function(function: Callable[..., Any]) -> str:
    """Return how messages call a function."""
    return str(getattr(function, "__qualname__", type(function).__qualname__))


class FunctionPacker:
    """Packs functions; those that workers import by name are packed once."""

    def __init__(self) -> None:
        self._importable: weakref.WeakKeyDictionary[Any, PackedFunction] = (
            weakref.WeakKeyDictionary()
        )

    def of(self, function: Callable[..., Any]) -> PackedFunction:
        """Return a function as bytes. Raises NotSendable, TooLarge."""
        if not callable(function):
            raise NotSendable(f"{function!r} is not callable")
        plain = isinstance(function, types.FunctionType | NeedsWorkers)
        found = self._importable.get(function) if plain else None
        if found is None:
            name = named_function(function)
            data = pickled(cloudpickled, function, what=name)
            refuse_large(name, data, most=FUNCTION_BYTES_MAX, limit="FUNCTION_BYTES_MAX")
            found = PackedFunction(name, hashlib.sha256(data).digest(), data)
            if plain and b"cloudpickle" not in data:
                # By name alone. What is sent by value may have changed the next time.
                self._importable[function] = found
        return found


def pack_arguments(function: PackedFunction, args: tuple[Any, ...], *, kwargs: Any) -> PackedWork:
    """Return one call as bytes. Raises NotSendable, TooLarge."""
    what = f"arguments of {function.name}"
    data = pickled(dumps, (args, kwargs), what=what)
    refuse_large(what, data, most=ARGUMENTS_BYTES_MAX, limit="ARGUMENTS_BYTES_MAX")
    return PackedWork(function, data)


def pack_checkpoint(name: str, value: Any) -> PackedFunction:
    """Return what is called next time, under the name of the call. Raises NotSendable, TooLarge."""
    what = f"checkpoint of {name}"
    if not callable(value):
        raise NotSendable(f"{what}: {value!r} is not callable")
    data = pickled(cloudpickled, value, what=what)
    refuse_large(what, data, most=CHECKPOINT_BYTES_MAX, limit="CHECKPOINT_BYTES_MAX")
    return PackedFunction(name, hashlib.sha256(data).digest(), data)


def dumps(value: Any) -> bytes:
    """Return the pickle of a value: quickly, if it holds nothing that has a class of a user."""
    if value is None:
        return NONE
    kind = type(value)
    if kind in SIMPLE:
        return pickle.dumps(value, PROTOCOL)
    if kind is tuple and all(map(is_simple, value)):
        return pickle.dumps(value, PROTOCOL)
    return cloudpickled(value)


def is_simple(value: Any) -> bool:
    """Return whether a value, or each one in a tuple, is of such a type, or an empty dict."""
    kind = type(value)
    if kind is tuple:
        return all(type(one) in SIMPLE for one in value)
    return kind in SIMPLE or (kind is dict and not value)


def refuse_large(what: str, data: bytes, *, most: int, limit: str) -> None:
    """Raise TooLarge if the bytes are more than the limit of this name."""
    if len(data) > most:
        raise TooLarge(
            f"{what}: {len(data) / MIB:.1f} MiB pickled, {most / MIB:g} MiB at most ({limit}): "
            "put the data into a file that workers can read, and send its name"
        )


def pack_outcome(name: str, found: CallOutcome) -> tuple[bool, bytes]:
    """Return whether a call has a result, and it or the exception with its traceback as bytes."""
    error = found.exception
    if error is None:
        what = f"result of {name}"
        try:
            data = pickled(dumps, found.result, what=what)
            refuse_large(what, data, most=RESULT_BYTES_MAX, limit="RESULT_BYTES_MAX")
        except (NotSendable, TooLarge) as refused:
            return False, cloudpickled((refused, ""))
        return True, data
    text = "".join(traceback.format_exception(error))
    try:
        data = pickled(cloudpickled, (error, text), what=f"exception of {name}")
        # Some exceptions can be pickled and not made again, because of what they are made from.
        unpickled(data, what=f"exception of {name}")
        refuse_large(f"exception of {name}", data, most=RESULT_BYTES_MAX, limit="RESULT_BYTES_MAX")
    except (NotSendable, TooLarge) as refused:
        return False, cloudpickled((NotSendable(f"{type(error).__name__}: {refused}"), text))
    return False, data


def unpack_outcome(name: str, has_result: bool, *, data: bytes) -> CallOutcome:
    """Return what came of a call on a worker."""
    try:
        found = unpickled(data, what=f"result of {name}" if has_result else f"exception of {name}")
    except NotSendable as error:
        return CallOutcome(exception=error)
    if has_result:
        return CallOutcome(found)
    raised, text = found
    if text:
        raised.__cause__ = RemoteTraceback(text)
    return CallOutcome(exception=raised)
