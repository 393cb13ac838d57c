"""R22: a held host is its holder's alone, until a time; and the callers' actions on held hosts.

Turns scenario actions into holds, launches on them and their ends; and committed facts into a
`Contradiction` or nothing. A host that nobody holds must not be used: a launch on such a hold is
refused, whatever the storm does. The host actor is not asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peloton.actors.host import facts as hf
from peloton.actors.host.holds.foreign_names import FOREIGN_MARK, foreign_number, is_foreign
from peloton.actors.host.holds.hold_messages import (
    ForeignLaunched,
    ForeignRun,
    HoldHost,
    HostHeld,
    HostHold,
    KillForeign,
    LaunchForeign,
    ReleaseHold,
    TaskHold,
    comes_for,
)
from peloton.actors.host.ledger import names_of
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.task.messages import End, RunOutcome
from peloton.chaos.cluster.work.drawing import ActionDraw, by_weight
from peloton.chaos.cluster.work.workload import client_of, cluster_of
from peloton.chaos.cluster.world.cluster import NEED, SimulatedCluster
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Storm
from peloton.runtime.vocabulary import Bits, Key

SHARE = 0.15
ACTIONS = (2, 8)
SECONDS = (0.5, 3.0, 20.0)
PAUSES_S = (0.0, 0.4, 2.5, 6.0)
HELD_S_MAX = 60.0
"""In s: no hold of a storm is asked for longer than a third of that, whatever clocks say."""


class HoldCheck:
    """The holder of each host, by committed facts."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.launched = 0
        self._cluster = cluster
        self._holds: dict[Key, HostHold] = {}
        self._taken: dict[Key, float] = {}
        self._used: tuple[Entry, HostHold] | None = None
        self._task_holds: dict[Key, dict[str, TaskHold]] = {}
        self.for_tasks = 0  # runs accepted where a host was held for them
        self._running: dict[str, Key] = {}  # foreign runs that have not ended
        self.noted: dict[type, Callable[[Entry, Any], None]] = {
            hf.HoldTaken: self._takes,
            hf.HoldEnded: self._ends,
            hf.TaskHeld: self._waits_for,
            hf.TaskHoldsEnded: self._waits_no_more,
            hf.MaintenanceStarted: self._waits_for_nobody,
            hf.RunsAccepted: self._accepts,
            hf.ProcessesEnded: self._processes_end,
            hf.SetEnded: self._set_ends,
            hf.HostLost: self._is_lost,
            hf.HostRemoved: self._is_lost,
        }

    def quiet(self) -> None:
        """Check at a quiet point. Raises `Contradiction`."""
        for host, taken in self._holds.items():
            if self._taken[host] + HELD_S_MAX < self._cluster.world.now:
                raise Contradiction(f"R22 {host} is still held, {taken.seconds} s were asked for")
        for run, host in self._running.items():
            raise Contradiction(f"R22 {run} of {host} has not ended in the journal")

    def _takes(self, entry: Entry, fact: hf.HoldTaken) -> None:
        if entry.key in self._holds:
            raise Contradiction(f"R22 {entry.key} is held, and again: {fact.hold}")
        since = fact.hold.until - fact.hold.seconds
        tasks = [one.task for one in self._alive(entry.key, since)]
        if tasks and not comes_for(self._hint(entry.key, fact.hold.name), tasks):
            text = f"{fact.hold.holder} holds {entry.key}, which waits for {tasks[:3]}"
            raise Contradiction(f"R22 {text}")
        self._holds[entry.key] = fact.hold
        self._taken[entry.key] = self._cluster.world.now

    def _ends(self, entry: Entry, fact: hf.HoldEnded) -> None:
        taken = self._holds.pop(entry.key, None)
        if taken is None or taken.name != fact.name:
            raise Contradiction(f"R22 {entry.key}: {fact.name} ends, and {taken} is there")
        self._used = (entry, taken)

    def _accepts(self, entry: Entry, fact: hf.RunsAccepted) -> None:
        if not is_foreign(fact.crowd):
            if entry.key in self._holds:
                text = f"{fact.crowd} gets {entry.key}, which is held"
                raise Contradiction(f"R22 {text}")
            self._is_for(entry.key, fact)
            return
        used = self._used
        if used is None or used[0] is not entry:
            raise Contradiction(f"R22 {fact.crowd} is launched on {entry.key} without a hold")
        taken = used[1]
        if fact.run != foreign_number(taken.name) or fact.at >= taken.until:
            text = f"{fact.crowd} is launched at {fact.at} on a hold until {taken.until}"
            raise Contradiction(f"R22 {text}")
        self.launched += 1
        for run in names_of(fact.crowd, fact.members.raw, run=fact.run):
            self._running[run] = entry.key

    def _is_for(self, host: Key, fact: hf.RunsAccepted) -> None:
        """Check that a host that waits for tasks takes no others."""
        holds = self._alive(host, fact.at)
        if not holds:
            return
        wanted = Bits.of(*sorted({one.member for one in holds if one.crowd == fact.crowd}))
        if fact.members - wanted:
            text = f"{fact.crowd} {[*fact.members - wanted][:5]} gets {host}, which waits for"
            raise Contradiction(f"R22 {text} {[one.task for one in holds][:3]}")
        self.for_tasks += 1

    def _alive(self, host: Key, now: float) -> list[TaskHold]:
        return [one for one in self._task_holds.get(host, {}).values() if now < one.until]

    def _hint(self, host: Key, name: str) -> tuple[str, ...]:
        """Return the tasks for which a caller came; they are in no fact."""
        for each in self._cluster.clients.requests:
            asked = each.message
            if isinstance(asked, HoldHost) and (asked.name, each.operation.job) == (name, host):
                return asked.hint
        return ()

    def _waits_for(self, entry: Entry, fact: hf.TaskHeld) -> None:
        self._task_holds.setdefault(entry.key, {})[fact.hold.task] = fact.hold

    def _waits_no_more(self, entry: Entry, fact: hf.TaskHoldsEnded) -> None:
        for task in fact.tasks:
            self._task_holds.get(entry.key, {}).pop(task, None)

    def _waits_for_nobody(self, entry: Entry, fact: Any) -> None:  # noqa: ARG002
        self._task_holds.pop(entry.key, None)

    def _processes_end(self, entry: Entry, fact: hf.ProcessesEnded) -> None:
        for end in fact.ends:
            self._ended(end.run, end.outcome)

    def _set_ends(self, entry: Entry, fact: hf.SetEnded) -> None:
        for run in names_of(fact.crowd, fact.members.raw, run=fact.run):
            self._ended(run, fact.outcome)

    def _ended(self, run: str, outcome: RunOutcome) -> None:
        """Check that the end of a foreign run is what happened, as far as its machine knows."""
        if not run.startswith(FOREIGN_MARK):
            return
        self._running.pop(run, None)
        machines = self._cluster.machines
        result = machines.results.get(run)
        told = outcome.end in (End.SUCCEEDED, End.FAILED) and not outcome.system
        if (told and result != outcome) or (result is None and run in machines.running):
            raise Contradiction(f"R22 {run} is journaled as {outcome}, it ended as {result}")
        ended_well = result is not None and result.end != End.LOST
        if outcome.end == End.LOST and ended_well and run not in machines.gone:
            raise Contradiction(f"R22 {run} counts as lost, it ended as {result}")

    def _is_lost(self, entry: Entry, fact: Any) -> None:  # noqa: ARG002
        self._holds.pop(entry.key, None)
        self._waits_for_nobody(entry, fact)
        self._running = {run: host for run, host in self._running.items() if host != entry.key}


def hold(storm: Storm, action: StormAction) -> None:
    """Hold a host; then launch there, give it back, or let the time pass."""
    cluster = cluster_of(storm)
    host = cluster.hosts[action.which % len(cluster.hosts)]
    client = client_of(action)
    name = f"hold{len(cluster.clients.requests)}"

    def answered(answer: Any) -> None:
        if isinstance(answer, HostHeld):
            storm.strike(action.name, host)
            pause_s = PAUSES_S[action.which // 7 % len(PAUSES_S)]
            storm.later(pause_s, lambda: _use(storm, action, host=host, name=name))

    message = HoldHost(name, client, SECONDS[action.other % len(SECONDS)])
    cluster.clients.command(client, host, message=message, answered=answered)


def _use(storm: Storm, action: StormAction, *, host: Key, name: str) -> None:
    how = action.other // 3 % 5
    clients = cluster_of(storm).clients
    if how == 0:
        clients.command("c1", host, message=ReleaseHold(name), keyed=False)
    elif how < 4:
        launched: list[Any] = []
        for _ in range(2 if how == 3 else 1):
            _launch(storm, host, name=name, count=1 + action.count % 3, launched=launched)


def _launch(storm: Storm, host: Key, *, name: str, count: int, launched: list[Any]) -> None:
    """Launch runs of new ids. Of several launches on one hold one is carried out."""
    clients = cluster_of(storm).clients
    number = len(clients.requests)
    runs = tuple(
        ForeignRun(f"{number * 10 + each:0>28}", RunSpec(NEED, "x")) for each in range(count)
    )

    def answered(answer: Any) -> None:
        if isinstance(answer, ForeignLaunched):
            launched.append(answer)
        if len(launched) > 1:
            storm.broken.append(f"R22 hold {name} of {host} was used twice: {launched}")

    clients.command("c2", host, message=LaunchForeign(name, runs), answered=answered)


def launch_stale(storm: Storm, action: StormAction) -> None:
    """Launch on a hold that never was, which must be refused, or that may be over."""
    cluster = cluster_of(storm)
    host = cluster.hosts[action.which % len(cluster.hosts)]
    known = [
        each.message.hold
        for each in cluster.clients.requests
        if isinstance(each.message, LaunchForeign) and each.operation.job == host
    ]
    storm.strike(action.name, host)
    if known:
        _launch(storm, host, name=known[0], count=1, launched=[])
        return
    _launch(storm, host, name="never", count=1, launched=["it was never held"])


def kill_foreign(storm: Storm, action: StormAction) -> None:
    """End some of the runs that were launched on holds."""
    clients = cluster_of(storm).clients
    known = [each for each in clients.requests if isinstance(each.message, LaunchForeign)]
    if known:
        some = known[action.which % len(known)]
        assert isinstance(some.message, LaunchForeign)
        tasks = tuple(run.task for run in some.message.runs)
        storm.strike(action.name, some.operation.job)
        order = KillForeign(tasks, 2.0)
        clients.command("c3", some.operation.job, message=order, keyed=False)


WORK: dict[str, Callable[[Storm, StormAction], None]] = {
    "hold host": hold,
    "launch on a stale hold": launch_stale,
    "kill foreign runs": kill_foreign,
}
WEIGHTS = {"hold host": 5, "launch on a stale hold": 1, "kill foreign runs": 1}


DRAWN = ActionDraw(
    "holds",
    SHARE,
    ACTIONS,
    by_weight(WEIGHTS),
    lambda chance: chance.randrange(4),
)
