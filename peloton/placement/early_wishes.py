"""Wishes for spread jobs that arrive before the placer knows all hosts, and are answered later.

On the hosts that happen to be known first, the instances of such a job would crowd together, and
the answer "no room" could be wrong. The slice repeats its wish in time, here or at another placer,
and declines what it is offered twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from peloton.placement.messages import AskGangRoom, AskRoom, GangWish, Wish
from peloton.runtime.vocabulary import Key

PlacerRequest: TypeAlias = Wish | GangWish | AskRoom | AskGangRoom

EARLY_MAX = 20_000
"""Messages that wait; of more, those that come last are lost."""


class EarlyWishes:
    """The early wishes of one placer, in the order in which they came."""

    def __init__(self) -> None:
        self._held: dict[tuple[type[PlacerRequest], Key, int], PlacerRequest] = {}

    def sift(self, asked: Sequence[PlacerRequest], *, settled: bool) -> list[PlacerRequest]:
        """Return the requests to answer now. Once hosts are `settled`, all that waited come
        first."""
        if settled:
            held, self._held = self._held, {}
            return [*held.values(), *asked]
        through: list[PlacerRequest] = []
        for each in asked:
            if not _is_spread(each):
                through.append(each)
            elif len(self._held) < EARLY_MAX:
                self._held[type(each), _asker(each), each.number] = each
        return through


def _is_spread(asked: PlacerRequest) -> bool:
    if isinstance(asked, Wish):
        return asked.shape.apart is not None and not asked.hosts
    if isinstance(asked, GangWish | AskGangRoom):
        return any(part.shape.apart is not None for part in asked.parts)
    return False  # of hosts that are named


def _asker(asked: PlacerRequest) -> Key:
    return asked.asker if isinstance(asked, AskGangRoom) else asked.slice
