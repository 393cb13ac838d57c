"""Passivation: idle entities go cold, packed as the bytes that a checkpoint holds of them.

An entity that was not touched for `COLD_AFTER_S` is packed, and unpacked when it is read; the only
difference a reader can notice is time. Packing and unpacking give an equal value, and nothing about
it is journaled.

    EntityCache  entities by key, each warm (a value) or cold (bytes)
    Idleness     which entity was touched when, and so which to pack next
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any

from peloton.runtime.vocabulary import Key

COLD_AFTER_S = 60.0
COLD_CHECK_S = 10.0
COLD_PER_CHECK_MAX = 256
"""Packing delays the pump: at most so many per check, though thousands may become idle at once."""


class EntityCache(MutableMapping[Key, Any]):
    """Entities by key. `get` and `[]` unpack what they find; `peek` and iteration leave it cold."""

    __slots__ = ("_pack", "_unpack", "cold", "warm", "woken")

    def __init__(self, pack: Callable[[Key, Any], bytes], unpack: Callable[[bytes], Any]) -> None:
        self._pack = pack
        self._unpack = unpack
        self.warm: dict[Key, Any] = {}
        self.cold: dict[Key, bytes] = {}
        self.woken: dict[Key, None] = {}  # unpacked since the owner last reset this

    def get(self, key: Key, default: Any = None) -> Any:
        """Return the entity, warm from now on."""
        found = self.warm.get(key)
        if found is not None:
            return found
        return self._warmed(key) if key in self.cold else default

    def peek(self, key: Key) -> Any:
        """Return the entity; a cold one stays cold."""
        found = self.warm.get(key)
        if found is None and key in self.cold:
            return self._unpack(self.cold[key])
        return found

    def freeze(self, key: Key) -> bool:
        """Pack the entity; return False if it is absent, or cold already."""
        found = self.warm.pop(key, None)
        if found is None:
            return False
        self.cold[key] = self._pack(key, found)
        return True

    def __getitem__(self, key: Key) -> Any:
        found = self.warm.get(key)
        return self._warmed(key) if found is None else found

    def __setitem__(self, key: Key, value: Any) -> None:
        if self.cold:
            self.cold.pop(key, None)
        self.warm[key] = value

    def __delitem__(self, key: Key) -> None:
        if self.cold.pop(key, None) is None:
            del self.warm[key]

    def __contains__(self, key: object) -> bool:
        return key in self.warm or key in self.cold

    def __iter__(self) -> Iterator[Key]:
        yield from self.warm
        yield from self.cold

    def __len__(self) -> int:
        return len(self.warm) + len(self.cold)

    def items(self) -> Any:
        """Yield all pairs; cold ones stay cold. The caller may unpack others meanwhile."""
        for key in [*self]:
            yield key, self.peek(key)

    def values(self) -> Any:
        """Yield all entities; cold ones stay cold."""
        for _, found in self.items():
            yield found

    def _warmed(self, key: Key) -> Any:
        found = self.warm[key] = self._unpack(self.cold.pop(key))
        self.woken[key] = None
        return found


class Idleness:
    """The time at which each warm entity was last touched, in that order."""

    def __init__(
        self,
        after_s: float = COLD_AFTER_S,
        *,
        check_s: float = COLD_CHECK_S,
        per_check_max: int = COLD_PER_CHECK_MAX,
    ) -> None:
        self._after_s = after_s
        self._per_check_max = per_check_max
        self.full = 0  # checks that left some to the next, for metrics
        self._every_s = check_s
        self._touched: dict[Key, float] = {}
        self._check_s = 0.0  # when to check next

    def touch(self, keys: Iterable[Key], now: float) -> None:
        """Note that these entities acted at `now`."""
        for key in keys:
            self._touched.pop(key, None)
            self._touched[key] = now

    def idle(self, now: float) -> list[Key]:
        """Return the entities to pack now."""
        if now < self._check_s:
            return []
        self._check_s = now + self._every_s
        found: list[Key] = []
        for key, at in self._touched.items():
            if at + self._after_s > now or len(found) >= self._per_check_max:
                break
            found.append(key)
        for key in found:
            del self._touched[key]
        if len(found) >= self._per_check_max:
            self._check_s = now  # there are more
            self.full += 1
        return found

    @property
    def next_s(self) -> float | None:
        """When to check again, in seconds since the epoch; None while nothing is warm."""
        for at in self._touched.values():
            return max(at + self._after_s, self._check_s)
        return None
