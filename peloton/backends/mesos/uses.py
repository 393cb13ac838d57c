"""The maintenance of Mesos, according to the use of hosts.

A host that drains is in the master's schedule of maintenance, so that other frameworks see it; one
that is out of use is down there, which ends its agent; one that is in use again is neither. The
master has one schedule, which a change replaces: it is read, changed and written, and read again
until all is as it should be. Another writer in that instant may lose its change; so may we, and see
it.

An agent that is not registered has no address that could be entered: its host is answered once it
is. Orders are absolute, and each pass goes by the master's present answer: nothing is kept of what
was done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from peloton.actors.host.machine_messages import HostUse, SetUse, UseSet
from peloton.backends.mesos.agents import Agents
from peloton.backends.mesos.masters import calls
from peloton.runtime.vocabulary import Key

PASSES_MAX = 8
"""Looks at the master for one change: it needs three, and more where others change the schedule."""
REFUSALS_MAX = 10
"""In one go: one order that is refused among 500 is found with so many."""
REFUSED_S = 60.0
"""For how long a host that was refused is answered with that, without a new attempt."""
Ask = Callable[[calls.Call], Mapping[str, Any]]
Still = Callable[[SetUse], bool]


class MesosMachine(NamedTuple):
    """A machine by the names of the master, which ignores case."""

    hostname: str
    ip: str

    @property
    def words(self) -> dict[str, str]:
        """The machine as part of a call."""
        return {"hostname": self.hostname, "ip": self.ip}


class Uses:
    """The orders of hosts about their use, and those yet to be carried out."""

    def __init__(self) -> None:
        self._said: dict[Key, SetUse] = {}
        self._open: dict[Key, SetUse] = {}
        self._refused: dict[Key, tuple[UseSet, float]] = {}
        self._strays: set[Key] = set()

    @property
    def open(self) -> bool:
        """Whether the master is to be asked."""
        return bool(self._open)

    def ordered(self, order: SetUse, now: float) -> UseSet | None:
        """Take an order; return the answer, if the same order was refused a short while ago."""
        known = self._said.get(order.host)
        if known is not None and (order.epoch, order.number) < (known.epoch, known.number):
            return None
        self._said[order.host] = order
        answer, until = self._refused.get(order.host, (None, 0.0))
        if answer is not None and answer.number == order.number and now < until:
            return answer
        self._open[order.host] = order
        return None

    def take(self) -> list[SetUse]:
        """Remove and return the orders to be carried out now."""
        taken, self._open = self._open, {}
        return [*taken.values()]

    def is_newest(self, order: SetUse) -> bool:
        """Return whether the host has given no other order since."""
        said = self._said.get(order.host)
        return said is not None and (said.use, said.number) == (order.use, order.number)

    def clear(self) -> None:
        """Forget all: the subscription is over.

        A host that is not in use orders it again after the next one, and may have given another
        order to another link meanwhile.
        """
        self._said, self._open, self._strays = {}, {}, set()

    def missed(self, host: Key) -> None:
        """Note a host that asks for its agent, which is not registered."""
        self._strays.add(host)

    def strays(self, agents: Agents) -> list[str]:
        """Return the machines of hosts in use that miss their agents."""
        self._strays -= agents.by_host.keys()
        return [agents.machine_of(one)[0] for one in self._strays if one not in self._said]

    def told(self, answers: Iterable[tuple[Key, UseSet]], now: float) -> None:
        """Note that these orders were answered: of hosts in use nothing is kept."""
        self._refused = {host: one for host, one in self._refused.items() if now < one[1]}
        for host, answer in answers:
            if answer.text:
                self._refused[host] = answer, now + REFUSED_S
            said = self._said.get(host)
            if said is not None and (said.use, said.number) == (HostUse.IN_USE, answer.number):
                del self._said[host]

    def answers(self, asked: Mapping[str, Any], agents: Agents) -> list[calls.Call]:
        """Return answers to inverse offers: the agents of hosts that leave are given back."""
        yes: list[str] = []
        no: list[str] = []
        for each in asked.get("inverse_offers", ()):
            agent = agents.at((each.get("agent_id") or {}).get("value", ""))
            said = self._said.get(agent.host) if agent is not None else None
            leaves = said is not None and said.use != HostUse.IN_USE
            (yes if leaves else no).append(each["id"]["value"])
        return [calls.inverse(ids, accept=ids is yes) for ids in (yes, no) if ids]


class Maintained(NamedTuple):
    """The master's answer: its schedule, and the machines that are down."""

    windows: Sequence[Mapping[str, Any]]
    down: Sequence[MesosMachine]

    @property
    def scheduled(self) -> list[MesosMachine]:
        """All machines of the schedule, including those that are down."""
        return [_machine(each) for one in self.windows for each in one.get("machine_ids", ())]


class MasterStep(NamedTuple):
    """The next call, if any, the orders that are carried out, and those that need calls."""

    call: calls.Call | None
    done: Sequence[SetUse]
    needing: Sequence[SetUse]


class _Tried(NamedTuple):
    """The outcome of some orders: those done, and those whose last call was refused."""

    done: Sequence[SetUse] = ()
    refused: Sequence[SetUse] = ()
    text: str = ""
    changed: bool = False
    blind: bool = False
    """Whether it was a look that was refused."""


def bring_about(
    orders: Sequence[SetUse], agents: Mapping[Key, tuple[str, str]], *, ask: Ask, now: float,
    still: Still = lambda _: True,
) -> list[tuple[Key, UseSet]]:  # fmt: skip
    """Carry out the orders at the master; return the answers.

    `agents`: host name and address of each host, the address empty while its agent is not
    registered. `still`: whether an order counts, asked before each call that changes anything.
    Raises what `ask` does, except refusals.

    One order may be what keeps others from it: what is refused for several is tried for each half.
    After `REFUSALS_MAX` refusals the rest waits to be ordered again, if the master has changed
    anything at all; if not, it is taken for a master that does not let us.
    """
    answers: list[tuple[Key, UseSet]] = []
    parts, refusals, changed = deque([orders]), 0, False
    while parts:
        tried = _try(parts.popleft(), agents, ask=ask, now=now, still=still)
        changed = changed or tried.changed
        answers += [(order.host, UseSet(order.number)) for order in tried.done]
        left = tried.refused
        if not left:
            continue
        refusals += 1
        if len(left) > 1 and not tried.blind:
            parts += [left[: len(left) // 2], left[len(left) // 2 :]]
        else:
            answers += _refused(left, tried.text)
        if refusals == REFUSALS_MAX:
            untried = [order for part in parts for order in part]
            return answers if changed else [*answers, *_refused(untried, tried.text)]
    return answers


def trouble_of(strays: Sequence[str], ask: Ask) -> str:
    """Return a text if some of these machines are down at the master; else empty."""
    try:
        down = {one.hostname for one in _read(ask).down} if strays else set()
    except calls.CallRefused:
        return ""
    names = sorted(name for name in strays if name.lower() in down)
    if not names:
        return ""
    return (
        f"{', '.join(names)}: down for maintenance at the master, but not here. If nobody else "
        "wants that, `peloton host maintenance start` and `complete` put a host up"
    )


def _refused(orders: Iterable[SetUse], text: str) -> list[tuple[Key, UseSet]]:
    return [(order.host, UseSet(order.number, text)) for order in orders]


def _try(
    orders: Sequence[SetUse], agents: Mapping[Key, tuple[str, str]], *, ask: Ask, now: float,
    still: Still,
) -> _Tried:  # fmt: skip
    """Try to carry out these orders together.

    A call counts as refused if it is still needed when the master is read anew: others may have
    changed its state between our reading and our call.
    """
    refused: calls.Call | None = None
    text, changed = "", False
    for _ in range(PASSES_MAX):
        try:
            found = _read(ask)
        except calls.CallRefused as error:
            return _Tried((), orders, str(error), changed=changed, blind=True)
        orders = [order for order in orders if still(order)]
        step = next_step(orders, agents, found=found, now=now)
        if step.call is None:
            return _Tried(step.done, changed=changed)
        if step.call == refused:
            return _Tried(step.done, step.needing, text, changed=changed)
        try:
            ask(step.call)
        except calls.CallRefused as error:
            refused, text = step.call, str(error)
        else:
            refused, changed = None, True
    return _Tried(changed=changed)


def next_step(
    orders: Iterable[SetUse], agents: Mapping[Key, tuple[str, str]], *, found: Maintained,
    now: float,
) -> MasterStep:  # fmt: skip
    """Return the next call to the master: up first, as that changes the schedule."""
    up, leave, enter, down = [], [], [], []
    done: list[SetUse] = []
    needing: list[SetUse] = []
    scheduled = found.scheduled
    for order in orders:
        name, ip = agents[order.host]
        here = MesosMachine(name.lower(), ip)
        is_down = [one for one in found.down if one.hostname == here.hostname]
        waits = [one for one in scheduled if one.hostname == here.hostname and one not in is_down]
        if order.use == HostUse.IN_USE:
            up += is_down
            leave += waits
            (needing if is_down or waits else done).append(order)
        elif ip and here not in waits and here not in is_down:
            enter.append(here)
            needing.append(order)
        elif order.use == HostUse.OUT_OF_USE and waits:
            down += waits
            needing.append(order)
        elif is_down or waits:
            done.append(order)
    call = None
    if up:
        call = calls.machines_up([one.words for one in up])
    elif leave or enter:
        call = calls.new_schedule(_changed(found.windows, leave=leave, enter=enter, now=now))
    elif down:
        call = calls.machines_down([one.words for one in down])
    return MasterStep(call, done, needing)


def _changed(
    windows: Iterable[Mapping[str, Any]],
    *,
    leave: Sequence[MesosMachine],
    enter: Sequence[MesosMachine],
    now: float,
) -> list[Mapping[str, Any]]:
    """Return the schedule without some machines, and with others from now on."""
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
