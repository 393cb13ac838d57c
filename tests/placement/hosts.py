"""Small hosts, wishes and an oracle for tests of the placer: plain loops, one member at a time.

It imports only messages and resources of what it checks, to be independent of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from peloton.actors.resources import UNIT, Resources
from peloton.placement.messages import (
    Constraint,
    HostDeltas,
    HostSummary,
    Label,
    Placed,
    Shape,
    Unplaced,
    Wish,
)
from peloton.placement.placer import Placer, PlacerSettings
from peloton.runtime.vocabulary import Bits, Key, Send

INVENTORY = Key("inventory/0")
SLICE = Key("slice/j/0")


def res(cpu: float = 0, memory: float = 0, disk: float = 0, gpu: float = 0) -> Resources:
    return Resources(*(round(amount * UNIT) for amount in (cpu, memory, disk, gpu)))


def host(name: str, free: Resources, position: int = 1, **rest: object) -> HostSummary:
    rest.setdefault("capacity", free)
    return HostSummary(Key(f"host/{name}"), position, free=free, **rest)  # type: ignore[arg-type]


def label(kind: str, key: str, value: str, condition: str = "greater", n: int = 0) -> Constraint:
    return Constraint("label", kind, Label(key, value), condition, n)


def placer_of(hosts: Sequence[HostSummary], settings: PlacerSettings | None = None) -> Placer:
    """A placer that knows these hosts, and keeps no wish."""
    placer = Placer(Key("placer/0"), settings or PlacerSettings(kept_max=0))
    report(placer, hosts, 1, snapshot=True)
    return placer


def report(
    placer: Placer, hosts: Sequence[HostSummary], sequence: int, *, now: float = 0.0, **rest: object
) -> list[Send]:
    deltas = HostDeltas(INVENTORY, sequence, tuple(hosts), **rest)  # type: ignore[arg-type]
    return placer.receive([(INVENTORY, deltas)], now)


def place(
    placer: Placer, shape: Shape, members: int = 1, *, now: float = 0.0, **rest: object
) -> tuple[list[str], dict[str, int]]:
    """Names of the hosts of the members placed, ascending, and the reasons of the others."""
    wish = Wish(SLICE, 1, Bits.span(0, members), shape, **rest)  # type: ignore[arg-type]
    sends = placer.receive([(SLICE, wish)], now)
    hosts: list[str] = []
    reasons: dict[str, int] = {}
    answered = 0
    for send in sends:
        answer = send.message
        if isinstance(answer, Placed | Unplaced):
            assert send.to == SLICE
            assert answer.number == 1
            assert not answered & answer.members.raw
            answered |= answer.members.raw
        if isinstance(answer, Placed):
            assert len(answer.hosts) == len(answer.members)
            hosts += [name.removeprefix("host/") for name in answer.hosts]
        if isinstance(answer, Unplaced):
            reasons = dict(answer.reasons)
    assert answered == wish.members.raw
    return hosts, reasons


def oracle_pack(hosts: Sequence[HostSummary], shape: Shape, members: int) -> list[str]:
    """PACK by the book: each member to the tightest host with enough free, ties by row."""
    free = {h.host: h.free for h in hosts}
    found: list[str] = []
    for _ in range(members):
        fitting = [
            (h.capacity.gpu > 0, free[h.host].gpu, *free[h.host].amounts()[:3], at)
            for at, h in enumerate(hosts)
            if h.up and shape.resources.within(free[h.host]) and max(free[h.host].amounts()) > 0
        ]
        if not fitting:
            break
        name = hosts[min(fitting)[-1]].host
        free[name] -= shape.resources
        found.append(name.removeprefix("host/"))
    return found
