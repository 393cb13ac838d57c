"""The functions that a worker was sent, loaded when a call needs one."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from peloton.sdk.executor.needs import NeedsWorkers
from peloton.sdk.executor.outcome import unpickled

STATELESS = (types.FunctionType, types.BuiltinFunctionType, type, NeedsWorkers)


class LoadedFunctions:
    """Functions by their digests. The client says which ones it will not name again."""

    def __init__(self) -> None:
        self._data: dict[bytes, bytes] = {}
        self._loaded: dict[bytes, Callable[..., Any]] = {}
        self.names: dict[bytes, str] = {}

    def add(self, functions: Mapping[bytes, tuple[str, bytes]], forgotten: Iterable[bytes]) -> None:
        """Keep these functions, with their names."""
        for digest in forgotten:
            for kept in (self._data, self._loaded, self.names):
                kept.pop(digest, None)
        for digest, (name, data) in functions.items():
            self.names[digest] = name
            self._data[digest] = data

    def get(self, digest: bytes) -> Callable[..., Any]:
        """Return a function. Raises NotSendable.

        An object with a state of its own is made anew for each call, as if it were an argument.
        """
        found = self._loaded.get(digest)
        if found is None:
            found = unpickled(self._data[digest], what=self.names[digest])
            if isinstance(found, STATELESS):
                self._loaded[digest] = found
        return found
