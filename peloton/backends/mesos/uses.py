"""The maintenance of Mesos, by what hosts say of their use.

A host that drains is in the master's schedule of maintenance, so that other frameworks see it; one
that is out of use is down there, which ends its agent; one that is in use again is neither. The
master has one schedule, which a change replaces: it is read, changed and written, and read again
until all is as it should be. Who else changes it in that instant may lose what they wrote; so may
we, and see it.

An agent that is not registered has no address that could be entered: its host is answered once it
is. What is wanted is absolute, and each pass goes by what the master says now: nothing is kept of
what was done. It must not decide what a host is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from peloton.actors.host.use_messages import HostUse, SetUse, UseSet
from peloton.backends.mesos import calls
from peloton.backends.mesos.agents import Agents
from peloton.runtime.vocabulary import Key

PASSES_MAX = 8
"""Looks at the master for one change: it needs three, and more where others change the schedule."""
REFUSALS_MAX = 3
"""After so many refusals the host is told that the master will not do it."""
Ask = Callable[[calls.Call], Mapping[str, Any]]


class MesosMachine(NamedTuple):
    """As the master names a machine: it does so without regard to case."""

    hostname: str
    ip: str

    @property
    def words(self) -> dict[str, str]:
        """In a call."""
        return {"hostname": self.hostname, "ip": self.ip}


class Uses:
    """What hosts have said of their use, and what of it is yet to be done."""

    def __init__(self) -> None:
        self._said: dict[Key, SetUse] = {}
        self._open: dict[Key, SetUse] = {}

    @property
    def open(self) -> bool:
        """Whether the master is to be looked at."""
        return bool(self._open)

    def ordered(self, order: SetUse) -> None:
        """A host says what it is for."""
        known = self._said.get(order.host)
        if known is None or (order.epoch, order.number) >= (known.epoch, known.number):
            self._said[order.host] = self._open[order.host] = order

    def take(self) -> list[SetUse]:
        """What is yet to be done; whoever takes it does it, or it is ordered again."""
        taken, self._open = self._open, {}
        return [*taken.values()]

    def told(self, answers: Iterable[tuple[Key, UseSet]]) -> None:
        """These were answered: of hosts in use nothing is kept."""
        for host, answer in answers:
            said = self._said.get(host)
            if said is not None and (said.use, said.number) == (HostUse.IN_USE, answer.number):
                del self._said[host]

    def answers(self, asked: Mapping[str, Any], agents: Agents) -> list[calls.Call]:
        """The master asks whether it may have agents back: those of hosts that leave, it may."""
        yes: list[str] = []
        no: list[str] = []
        for each in asked.get("inverse_offers", ()):
            agent = agents.of((each.get("agent_id") or {}).get("value", ""))
            said = self._said.get(agent.host) if agent is not None else None
            leaves = said is not None and said.use != HostUse.IN_USE
            (yes if leaves else no).append(each["id"]["value"])
        return [calls.inverse(ids, accept=ids is yes) for ids in (yes, no) if ids]


class Maintained(NamedTuple):
    """What the master says: its schedule, and which machines are down."""

    windows: Sequence[Mapping[str, Any]]
    down: Sequence[MesosMachine]

    @property
    def scheduled(self) -> list[MesosMachine]:
        """All machines of the schedule; those that are down are among them."""
        return [_machine(each) for one in self.windows for each in one.get("machine_ids", ())]


class MasterPlan(NamedTuple):
    """The next call, if one is needed, and whose order is carried out."""

    call: calls.Call | None
    done: Sequence[SetUse]


def bring_about(
    orders: Sequence[SetUse], agents: Mapping[Key, tuple[str, str]], *, ask: Ask, now: float
) -> list[tuple[Key, UseSet]]:
    """Make it so at the master; returns the answers. `agents`: host name and address of each host,
    the address empty while its agent is not registered. Raises what `ask` does, but for refusals.
    """
    refusals: list[str] = []
    for _ in range(PASSES_MAX):
        try:
            found = _read(ask)
        except calls.CallRefused as refused:  # then nothing of it can be done
            return [(order.host, UseSet(order.number, str(refused))) for order in orders]
        plan = planned(orders, agents, found=found, now=now)
        if plan.call is None:
            return [(order.host, UseSet(order.number)) for order in plan.done]
        try:
            ask(plan.call)
        except calls.CallRefused as refused:
            refusals.append(str(refused))
            if len(refusals) == REFUSALS_MAX:
                break
    if len(orders) > 1:  # one may be what keeps the others from it
        alone = [bring_about((order,), agents, ask=ask, now=now) for order in orders]
        return [answer for answers in alone for answer in answers]
    return [(order.host, UseSet(order.number, refusals[-1])) for order in orders if refusals]


def planned(
    orders: Iterable[SetUse], agents: Mapping[Key, tuple[str, str]], *, found: Maintained,
    now: float,
) -> MasterPlan:  # fmt: skip
    """What is to be said to the master next: up first, as that changes the schedule."""
    up, leave, enter, down, done = [], [], [], [], []
    scheduled = found.scheduled
    for order in orders:
        name, ip = agents[order.host]
        here = MesosMachine(name.lower(), ip)
        is_down = [one for one in found.down if one.hostname == here.hostname]
        waits = [one for one in scheduled if one.hostname == here.hostname and one not in is_down]
        if order.use == HostUse.IN_USE:
            up += is_down
            leave += waits
            if not (is_down or waits):
                done.append(order)
        elif ip and here not in waits and here not in is_down:
            enter.append(here)
        elif order.use == HostUse.OUT_OF_USE and waits:
            down += waits
        elif is_down or waits:
            done.append(order)
    if up:
        return MasterPlan(calls.machines_up([one.words for one in up]), done)
    if leave or enter:
        windows = _changed(found.windows, leave=leave, enter=enter, now=now)
        return MasterPlan(calls.new_schedule(windows), done)
    return MasterPlan(calls.machines_down([one.words for one in down]) if down else None, done)


def _changed(
    windows: Iterable[Mapping[str, Any]],
    *,
    leave: Sequence[MesosMachine],
    enter: Sequence[MesosMachine],
    now: float,
) -> list[Mapping[str, Any]]:
    """The schedule without some machines, and with others from now on; all else as it was."""
    kept: list[Mapping[str, Any]] = []
    for window in windows:
        ids = [one for one in window.get("machine_ids", ()) if _machine(one) not in leave]
        if ids:
            kept.append({**window, "machine_ids": ids})
    if enter:
        ids = [one.words for one in enter]
        start = {"nanoseconds": int(now * 1e9)}
        kept.append({"machine_ids": ids, "unavailability": {"start": start}})
    return kept


def _read(ask: Ask) -> Maintained:
    status = ask({"type": "GET_MAINTENANCE_STATUS"}).get("get_maintenance_status", {})
    schedule = ask({"type": "GET_MAINTENANCE_SCHEDULE"}).get("get_maintenance_schedule", {})
    down = [_machine(one) for one in status.get("status", {}).get("down_machines", ())]
    return Maintained(schedule.get("schedule", {}).get("windows", ()), down)


def _machine(words: Mapping[str, Any]) -> MesosMachine:
    return MesosMachine(words.get("hostname", "").lower(), words.get("ip", ""))
