"""Plans: on which hosts tasks would be placed if they were wished for now.

A placer made for the question alone, which sees the hosts that were reported, answers the wishes.
Nothing reaches a placer that proposes in earnest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from peloton.placement.index import HostIndex
from peloton.placement.messages import (
    GangPlaced,
    GangWish,
    HostDeltas,
    HostSummary,
    Placed,
    Shape,
    Unplaced,
    Wish,
)
from peloton.placement.needs import need_of
from peloton.placement.placer import Placer, PlacerSettings
from peloton.placement.reasons import HOST_LIMIT, HostChecks
from peloton.placement.strategies import STRATEGIES, Strategy
from peloton.placement.unschedulable import Unschedulable, unschedulable_reason
from peloton.runtime.vocabulary import Key, key

INVENTORY = key("inventory", 0)
"""One for all hosts of a plan."""
ROUNDS_MAX = 1000
"""How often a wish is repeated for what is left of it."""


class HostsFound(NamedTuple):
    """How many hosts would take a task now, and why the others would not."""

    fitting: int
    why: Unschedulable


class HostsNow:
    """Hosts as they are at one moment, for questions about any number of shapes.

    Nothing is proposed, so the answers do not depend on each other.
    """

    def __init__(self, hosts: Sequence[HostSummary], *, scarce_gpu: bool) -> None:
        self._index = HostIndex()
        self._index.receive(INVENTORY, hosts, whole=True)
        self._checks = HostChecks(self._index, scarce_gpu)

    def found(self, shape: Shape) -> HostsFound:
        """Return how many hosts a task of this shape fits on, if it came alone."""
        need = need_of(shape)
        why = unschedulable_reason(
            self._index,
            need,
            failed=self._checks.failed(need, [], used=[]),
            fit_if_empty=self._checks.fit_if_empty(need),
        )
        return HostsFound(len(self._checks.fit(need, []).rows), why)


class HostsPlan(NamedTuple):
    """How many tasks each host would get, by name, and the tasks that would get none, each with
    its wish."""

    hosts: list[tuple[Key, int]]
    placed: int
    unplaced: list[tuple[Wish | GangWish, Unplaced]]


def plan_hosts(
    hosts: Sequence[HostSummary],
    wishes: Sequence[Wish | GangWish],
    *,
    scarce_gpu: bool,
    now: float,
    strategies: Mapping[str, Strategy] = STRATEGIES,
) -> HostsPlan:
    """Return what a placer would answer to these wishes, one after another."""
    settings = PlacerSettings(scarce_gpu=scarce_gpu)
    placer = Placer(
        key("placer", "plan"), settings, inventories=(INVENTORY,), strategies=strategies
    )
    placer.receive([(INVENTORY, HostDeltas(INVENTORY, 1, tuple(hosts), snapshot=True))], now)
    counts: Counter[Key] = Counter()
    unplaced: list[tuple[Wish | GangWish, Unplaced]] = []
    for wish in wishes:
        again: Wish | GangWish | None = wish
        for _ in range(ROUNDS_MAX):
            if again is None:
                break
            rest = _answered(placer, again, counts=counts, now=now)
            again = _wished_again(again, rest)
        unplaced += [(wish, answer) for answer in rest]
    return HostsPlan(sorted(counts.items()), counts.total(), unplaced)


def _answered(
    placer: Placer, wish: Wish | GangWish, *, counts: Counter[Key], now: float
) -> list[Unplaced]:
    """Return the members of a wish that get no host; count the hosts of the others in `counts`."""
    rest: list[Unplaced] = []
    for send in placer.receive([(wish.slice, wish)], now):
        answer = send.message
        if isinstance(answer, Placed):
            counts.update(answer.hosts)
        elif isinstance(answer, GangPlaced):
            for part in answer.parts:
                counts.update(part.hosts)
        elif isinstance(answer, Unplaced):
            rest.append(answer)
    return rest


def _wished_again(wish: Wish | GangWish, rest: Sequence[Unplaced]) -> Wish | None:
    """Return a wish for the rest, if hosts took as many as their strategy lets them take of one
    wish."""
    if not isinstance(wish, Wish) or len(rest) != 1:
        return None
    (left,) = rest
    limited = any(rule == HOST_LIMIT and count for rule, count in left.reasons)
    if not limited or len(left.members) == len(wish.members):
        return None
    return replace(wish, members=left.members)
