"""Which pools have somebody waiting, and what the first of each waits for.

Turns "the head of this pool needs so much of one kind at that pool" into who may be served once
there is more of it: the first that fits, in the order in which the pools began to wait. A release
or a higher limit so reaches the pools it can help, and no other. It must not judge what fits
where: whoever looks at the tree says so.

A pool that waits is in one of three places:

- `fresh`: something of its own has changed, so it has to be looked at;
- blocked: its head lacks one kind at one pool of its way up; growth there is what it waits for,
  and as long as there is none, whatever happens elsewhere cannot admit its head;
- neither: it does not exist, or all its lots are stepped over. Only a change of its own helps.
"""

from __future__ import annotations

from typing import NamedTuple

from peloton.actors.resources import Resources
from peloton.actors.respool.first_fit import FirstFit
from peloton.runtime.vocabulary import Key


class Place(NamedTuple):
    """A kind of resource at a pool: what may run short."""

    pool: Key
    kind: int


class Thresholds:
    """Items by number, each with a place and the amount it takes there."""

    def __init__(self) -> None:
        self._lines: dict[Place, FirstFit] = {}
        self._places: dict[Key, tuple[Place, int]] = {}
        self._items: dict[int, Key] = {}

    def put(self, item: Key, number: int, *, place: Place, amount: int) -> None:
        """An item that is not held yet waits at a place; its number is its own."""
        line = self._lines.get(place)
        if line is None:
            line = self._lines[place] = FirstFit()
        line.put(number, amount)
        self._places[item] = place, number
        self._items[number] = item

    def drop(self, item: Key) -> None:
        """The item waits no more, if it did."""
        known = self._places.pop(item, None)
        if known is None:
            return
        place, number = known
        del self._items[number]
        line = self._lines[place]
        line.drop(number)
        if not len(line):
            del self._lines[place]

    def first(self, place: Place, *, start: int, most: int) -> int | None:
        """The number of the first item from `start` on that waits there for at most so much."""
        line = self._lines.get(place)
        return line.first(start, most) if line is not None else None

    def item(self, number: int) -> Key:
        """The item of a number."""
        return self._items[number]

    def items(self) -> list[Key]:
        """All that wait."""
        return [*self._places]

    def anybody(self, place: Place) -> bool:
        """Whether anybody waits there."""
        return place in self._lines


class Waiting:
    """The pools of a tree in which somebody waits."""

    def __init__(self) -> None:
        self.hungry: dict[Key, int] = {}  # pools by number, the first to wait first
        self.fresh: dict[Key, None] = {}
        self.blocked = Thresholds()
        self.grown: dict[Place, None] = {}  # places with more room since nobody there fitted
        self._needs: dict[Resources, dict[Key, None]] = {}  # blocked pools by need of their head
        self._heads: dict[Key, Resources] = {}
        self._number = 0

    def come(self, pool: Key) -> None:
        """Somebody waits in a pool, and something of it has changed."""
        if pool not in self.hungry:
            self._number += 1
            self.hungry[pool] = self._number
        self.look_again(pool)

    def go(self, pool: Key) -> None:
        """Nobody waits there any more."""
        self.hungry.pop(pool, None)
        self.fresh.pop(pool, None)
        self._unblock(pool)

    def look_again(self, pool: Key) -> None:
        """Whatever a pool was found to wait for may have changed."""
        if pool in self.hungry:
            self._unblock(pool)
            self.fresh[pool] = None

    def look_at_all_again(self) -> None:
        """The shape of the tree changed above pools that wait."""
        for pool in self.blocked.items():
            self.look_again(pool)

    def block(self, pool: Key, *, place: Place, need: Resources) -> None:
        """The head of a pool, which needs that much, does not fit at a place."""
        self._unblock(pool)
        self.fresh.pop(pool, None)
        amount = need.amounts()[place.kind]
        self.blocked.put(pool, self.hungry[pool], place=place, amount=amount)
        self._heads[pool] = need
        self._needs.setdefault(need, {})[pool] = None

    def park(self, pool: Key) -> None:
        """Nobody of a pool can be admitted until something of its own changes."""
        self.fresh.pop(pool, None)
        self._unblock(pool)

    def grow(self, place: Place) -> None:
        """There is more room at a place."""
        if self.blocked.anybody(place):
            self.grown[place] = None

    def beyond(self, limit: Resources) -> list[Key]:
        """The blocked pools whose head needs more than this."""
        needs = [need for need in self._needs if not need.within(limit)]
        return [pool for need in needs for pool in self._needs[need]]

    def _unblock(self, pool: Key) -> None:
        need = self._heads.pop(pool, None)
        if need is None:
            return
        self.blocked.drop(pool)
        alike = self._needs[need]
        del alike[pool]
        if not alike:
            del self._needs[need]
