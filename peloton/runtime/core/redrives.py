"""Orders of people to try again what was set aside, until they are carried out.

Turns "redrive this key" into one try within one frame: what was set aside is taken back and decided
by the very frame that says so, and what fails again is set aside by it again, so that no crash can
lose it in between. It must not answer before that frame.
"""

from __future__ import annotations

from typing import Any

from peloton.runtime.vocabulary import Key


class Redrives:
    """The orders of one shard."""

    def __init__(self) -> None:
        self._wanted: dict[Key, list[Any]] = {}
        self._loading: dict[Key, list[Any]] = {}

    def want(self, key: Key, ask: Any = None) -> None:
        """Try again; `ask` is whom to answer."""
        asks = self._wanted.setdefault(key, [])
        if ask is not None:
            asks.append(ask)

    def take(self) -> dict[Key, list[Any]]:
        """The orders to carry out now, with who waits for each."""
        wanted, self._wanted = self._wanted, {}
        return wanted

    def wait_for_load(self, key: Key, asks: list[Any]) -> None:
        """The entity has to be loaded first."""
        self._loading.setdefault(key, []).extend(asks)

    def loaded(self, key: Key) -> None:
        """It was looked for."""
        asks = self._loading.pop(key, None)
        if asks is not None:
            self._wanted.setdefault(key, []).extend(asks)

    def __bool__(self) -> bool:
        return bool(self._wanted)
