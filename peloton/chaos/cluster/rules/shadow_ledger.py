"""A second ledger of a simulated cluster, kept from committed facts alone, beside the actors.

Turns frames into which run may run where and which pool is charged for it, and each fact that
contradicts this into a `Contradiction`. The ledger knows less than the actors on purpose: it has no
goals, no owed sends and no deadlines, so a mistake there is not repeated here. Actors are not asked
for anything.

The frames of one round are committed in one moment, in which a task may be admitted, start and be
released by turns. So rules over two shards are checked once all frames were applied (`settle`).

    R1   a request key has one effect
    R8a  one intended run per instance, from its launch to its end
    R8b  the outcome of an instance is how its current run really ended
    R9   no host over its capacity, no port given twice, no condition broken, no run accepted twice,
         nothing started that was not accepted
    R10  every launched run has a charge as long as it is intended; no pool over its limit
    R11  a deleted instance has no charge left
    R13  nothing happens to a run after its end
    R36  the volume of an instance is on one host, where alone it runs, and is removed only once the
         instance has left it
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from peloton.actors.host import facts as hf
from peloton.actors.host.ledger import names_of
from peloton.actors.job import facts as jf
from peloton.actors.job.slice import facts as sf
from peloton.actors.job.workflow.facts import (
    LeavesRaised,
    OpaqueChanged,
    WorkflowBegun,
    WorkflowMoved,
    WorkflowUndone,
)
from peloton.actors.resources import Resources
from peloton.actors.respool import facts as pf
from peloton.actors.respool.lot import facts as lf
from peloton.actors.respool.lot.messages import LotShape
from peloton.actors.respool.messages import NO_SLACK_LIMIT, ROOT
from peloton.actors.task import facts as tf
from peloton.actors.task.messages import End, TaskGoals, pod_id
from peloton.actors.task.run_messages import UNHEALTHY
from peloton.chaos.cluster.rules.usage import HostUsage, SliceUsage
from peloton.chaos.cluster.world.machines import Machines
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.core.entities.records import RequestAnswered
from peloton.runtime.core.turning.replies import SCOPE
from peloton.runtime.simulation.checkers import DecodedFrame
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import Bits, Key

STOPPING = (TaskGoals.KILLED, TaskGoals.DELETED)


class ShadowLedger:
    """The ledger of one cluster."""

    def __init__(self, machines: Machines) -> None:
        self.tasks: dict[Key, SliceUsage] = {}
        self.hosts: dict[Key, HostUsage] = {}
        self.lots: dict[Key, tuple[LotShape, Key]] = {}
        self.pools: dict[Key, tuple[Key, Resources]] = {}  # parent and limit
        self.use: dict[Key, Resources] = {}  # of a pool, by its own lots
        self.accepted: dict[str, Key] = {}  # run → the one host that may ever accept it
        self.times_accepted: Counter[str] = Counter()
        """More than once only for a run of a job that was deleted, and created again by its id."""
        self.made: dict[Key, int] = {}  # jobs, and how often each id was created
        self.deleted: dict[Key, None] = {}
        """Jobs, or pieces of jobs, that were deleted and not created again."""
        self.deleted_ever: dict[Key, None] = {}
        self.requests: dict[tuple[Key, str], None] = {}
        """Requests with an effect, since the entity was last created."""
        self.requests_refused: dict[tuple[Key, str], None] = {}
        self.requests_ever: dict[tuple[Key, str], None] = {}
        self.volumes: dict[str, Key] = {}  # by name: where it was made
        self.left: dict[str, None] = {}  # those whose instances have left them, until one is made
        self._capacity: dict[Key, Resources] = {}  # of the cluster, by inventory
        self._machines = machines
        self._started = 0
        self._prepared_first: dict[str, Key] = {}
        self._unsettled: dict[Key, float] = {}  # slices, and when they were changed last
        self._now_s = 0.0

    def settle(self, until_s: float = math.inf) -> None:
        """Check after all frames of a round up to this time. Raises `Contradiction`."""
        for crowd, changed_s in [*self._unsettled.items()]:
            if changed_s > until_s:
                break
            del self._unsettled[crowd]
            tasks = self.tasks[crowd]
            charges = tasks.charges
            for rule, members, text in (
                ("R10", tasks.launched & ~tasks.charged_some_time, "are launched without a charge"),
                ("R10", tasks.intended & ~charges, "are released while they run"),
                (
                    "R11",
                    tasks.vanished & ~tasks.existing & charges,
                    "are deleted while their pool is charged",
                ),
            ):
                if members:
                    raise Contradiction(f"{rule} {crowd}: {[*Bits(members)][:5]} {text}")
            tasks.launched = tasks.vanished = 0
            tasks.charged_some_time = charges

    def apply(self, frame: DecodedFrame) -> None:
        """Apply a committed frame. Raises `Contradiction`."""
        self._now_s = frame.at
        for entry in frame.entries:
            for fact in entry.facts:
                apply = APPLIED.get(type(fact))
                if apply is not None:
                    apply(self, entry, fact)

    def _change(self, crowd: Key) -> None:
        self._unsettled.pop(crowd, None)
        self._unsettled[crowd] = self._now_s  # behind those that were changed before

    def step(self) -> None:
        """Check that every run started since the last step was accepted by its host."""
        started = self._machines.started
        if len(started) > self._started:
            for run, host in itertools.islice(started.items(), self._started, None):
                if self.accepted.get(run) != host:
                    text = f"{run} was started on {host}, accepted by {self.accepted.get(run)}"
                    raise Contradiction(f"R9 {text}")
                self._has_its_volume(run, host)
            self._started = len(started)

    def _has_its_volume(self, run: str, host: Key) -> None:
        name = run.rpartition("-")[0]
        if run in self._machines.volumes.get((host, name), ()):
            home = self.volumes.get(name, host)
            if home != host:
                raise Contradiction(f"R36 {run} was started on {host}, its volume is on {home}")

    # ---- tasks ----

    def created(self, entry: Entry, fact: tf.TaskCreated) -> None:
        """Create instances; for one that was removed the numbers of runs go on."""
        tasks = self.tasks.setdefault(entry.key, SliceUsage())
        _none(entry, tasks.existing, rule="R8a", text="exist already")
        tasks.existing |= entry.members
        self.goal(entry, fact)
        for member in Bits(entry.members):
            tasks.runs[member] = fact.past + 1

    def goal(self, entry: Entry, fact: tf.TaskCreated | tf.TaskGoalSet) -> None:
        """Note whether a refused launch is tried again."""
        tasks = self.tasks[entry.key]
        tasks.stopping &= ~entry.members
        if fact.goal in STOPPING:
            tasks.stopping |= entry.members

    def launching(self, entry: Entry, fact: tf.TaskLaunching) -> None:
        """Launch a run, which is intended from now on; a prepared one is launched once more."""
        tasks = self.tasks[entry.key]
        others = tasks.intended if fact.prepare else tasks.intended & ~tasks.holding
        _none(entry, others, rule="R8a", text="run already")
        tasks.holding &= ~entry.members
        tasks.holding |= entry.members if fact.prepare else 0
        _all(entry, tasks.existing, rule="R8a", text="do not exist")
        tasks.intended |= entry.members
        tasks.launched |= entry.members
        self._change(entry.key)

    def in_progress(self, entry: Entry, fact: Any) -> None:
        """Note a transition of a run that has not ended."""
        text = f"have no intended run, but: {type(fact).__name__}"
        _all(entry, self.tasks[entry.key].intended, rule="R13", text=text)

    def refused(self, entry: Entry, fact: Any) -> None:
        """Note a refused run, which never started; the next one has a new id."""
        self.in_progress(entry, fact)
        tasks = self.tasks[entry.key]
        tasks.intended &= ~entry.members
        self._count(tasks, entry.members & ~tasks.stopping)

    def ended(self, entry: Entry, fact: tf.RunEnded) -> None:
        """End a run; its journaled outcome is what really happened."""
        self.in_progress(entry, fact)
        tasks, outcome = self.tasks[entry.key], fact.outcome
        tasks.intended &= ~entry.members
        if outcome.end not in (End.SUCCEEDED, End.FAILED) or outcome.system:
            return
        for member in Bits(entry.members):
            run = pod_id(entry.key, member, run=tasks.runs[member])
            if outcome.reason == UNHEALTHY:  # it may have ended by itself before
                is_true = self._machines.truth(run) == outcome
            else:
                is_true = self._machines.has_ended_as(run, outcome)
            if not is_true:
                result = self._machines.results.get(run)
                raise Contradiction(f"R8b {run} is journaled as {outcome}, it ended as {result}")

    def retried(self, entry: Entry, fact: Any) -> None:
        """Note a new run, which is not launched yet."""
        tasks = self.tasks[entry.key]
        _none(entry, tasks.intended, rule="R8a", text="are retried while they run")
        self._count(tasks, entry.members)

    def withdrawn(self, entry: Entry, fact: Any) -> None:
        """End an instance without a run."""
        text = f"have an intended run, but: {type(fact).__name__}"
        _none(entry, self.tasks[entry.key].intended, rule="R8a", text=text)

    def vanished(self, entry: Entry, fact: Any) -> None:
        """Delete instances, which may not hold anything any more."""
        self.withdrawn(entry, fact)
        tasks = self.tasks[entry.key]
        tasks.existing &= ~entry.members
        tasks.vanished |= entry.members
        self._change(entry.key)
        for member in Bits(entry.members):
            # A new job of the same id will use the same run ids.
            for run in range(1, tasks.runs.pop(member) + 1):
                self.accepted.pop(pod_id(entry.key, member, run=run), None)
                self._prepared_first.pop(pod_id(entry.key, member, run=run), None)

    def _count(self, tasks: SliceUsage, members: int) -> None:
        for member in Bits(members):
            tasks.runs[member] += 1

    # ---- hosts ----

    def configured(self, entry: Entry, fact: hf.HostConfigured) -> None:
        """Set the capacity of a host."""
        host = self.hosts.setdefault(entry.key, HostUsage())
        host.capacity, host.labels = fact.capacity, fact.labels
        host.declared = fact.capacity.slack
        host.set_slack()

    def measured(self, entry: Entry, fact: hf.SlackMeasured) -> None:
        """Set the slack of a host; None: the declared one."""
        host = self.hosts[entry.key]
        host.measured = fact.slack
        host.set_slack()

    def accept(self, entry: Entry, fact: hf.RunsAccepted) -> None:
        """Reserve a host's resources for runs, which start, or are prepared."""
        host = self.hosts[entry.key]
        known, verb = (
            (self._prepared_first, "prepared") if fact.prepared else (self.accepted, "accepted")
        )
        for at, pod in enumerate(names_of(fact.crowd, fact.members.raw, run=fact.run)):
            first = known.setdefault(pod, entry.key)
            if first != entry.key or pod in host.runs:
                raise Contradiction(f"R9 {pod} was {verb} by {first}, and again by {entry.key}")
            if not fact.prepared:
                self.times_accepted[pod] += 1
            if wrong := host.take(pod, fact, ports=fact.ports[at] if fact.ports else ()):
                raise Contradiction(f"R9 {pod} is {verb} by {entry.key}: {wrong}")

    def begin(self, entry: Entry, fact: hf.PreparedStarted) -> None:
        """Start runs that were prepared."""
        for pod in _runs(fact):
            if pod not in self.hosts[entry.key].runs or pod in self.accepted:
                raise Contradiction(
                    f"R9 {pod} is started on {entry.key}, which has not prepared it"
                )
            self.accepted[pod] = entry.key
            self.times_accepted[pod] += 1

    def give_back(self, entry: Entry, fact: hf.PreparedReleased) -> None:
        """Free what was prepared for runs that were never started."""
        for pod in _runs(fact):
            if pod in self.accepted:
                raise Contradiction(f"R9 {pod} was started on {entry.key}, which gives it back")
            self.hosts[entry.key].free(pod)

    def given(self, entry: Entry, fact: hf.DevicesGiven) -> None:
        """Give a host's gpus to runs that it has just accepted, or prepared."""
        if wrong := self.hosts[entry.key].give(fact):
            raise Contradiction(f"R9 {entry.key} gives {wrong}")

    def lost_for_good(self, entry: Entry, fact: hf.HostRemoved) -> None:
        """Give up a host with its runs; its volumes are there if it comes back."""
        self.hosts[entry.key].clear()

    def volumes_given(self, entry: Entry, fact: hf.VolumesGiven) -> None:
        """Note the volumes of instances on this host. R36: on no other, unless they left it."""
        self.hosts[entry.key].keep(fact)
        for pod in names_of(fact.crowd, fact.members.raw, run=0):
            name = pod.rpartition("-")[0]
            self.left.pop(name, None)
            home = self.volumes.setdefault(name, entry.key)
            if home != entry.key:
                raise Contradiction(f"R36 {entry.key} makes the volume {name}, which {home} has")

    def volumes_home(self, entry: Entry, fact: sf.VolumeHomesGiven) -> None:
        """Note the hosts that a slice has chosen for volumes of instances."""
        crowd = Key("task" + entry.key[len("slice") :])
        pods = names_of(crowd, fact.members.raw, run=0)
        for pod, host in zip(pods, fact.hosts, strict=True):
            home = self.volumes.setdefault(pod.rpartition("-")[0], host)
            if home != host:
                raise Contradiction(f"R36 {entry.key} sends {pod} to {host}, its home is {home}")

    def volume_deleting(self, entry: Entry, fact: hf.VolumeDeleting) -> None:
        """Note a volume that is to be removed, whose instance has left it.

        The instance may have come back to this host since, and is refused there until the volume is
        gone.
        """
        if self.volumes.get(fact.volume) == entry.key and fact.volume not in self.left:
            raise Contradiction(f"R36 {entry.key} deletes {fact.volume}, which nobody has left")

    def volumes_left(self, entry: Entry, fact: sf.VolumeHomesLeft) -> None:
        """Note instances that may have volumes anywhere.

        Theirs were never made; or are to be deleted, and then the instances are not to run.
        """
        crowd = Key("task" + entry.key[len("slice") :])
        to_run = Bits(fact.members.raw & ~self.tasks.setdefault(crowd, SliceUsage()).stopping)
        running = names_of(crowd, to_run.raw, run=0)
        for pod in names_of(crowd, fact.members.raw, run=0):
            name = pod.rpartition("-")[0]
            home = self.volumes.pop(name, None)
            self.left[name] = None
            if home and pod in running and name in self.hosts[home].volumes:
                raise Contradiction(f"R36 {entry.key} leaves {name} on {home}, and is to run")

    def stopped(self, entry: Entry, fact: hf.ProcessesEnded | hf.SetEnded) -> None:
        """End runs, each once."""
        host = self.hosts[entry.key]
        for run in _runs(fact):
            if run not in host.runs:
                raise Contradiction(f"R13 {run} ended on {entry.key}, which has not prepared it")
            host.free(run)

    def dropped(self, entry: Entry, fact: hf.RunsForgotten | hf.SetForgotten) -> None:
        """Drop the rows of runs that ended or were refused, and whose task knows."""
        if kept := [run for run in _runs(fact) if run in self.hosts[entry.key].runs]:
            raise Contradiction(f"R11 {entry.key} drops {kept[:3]} whose resources it holds")

    # ---- pools ----

    def pool(self, entry: Entry, fact: pf.PoolConfigured) -> None:
        """Create or update a pool."""
        self.pools[entry.key] = (fact.config.parent, fact.config.limit)

    def pool_deleted(self, entry: Entry, fact: Any) -> None:
        """Delete a pool, and the answers to its requests with it."""
        self.pools.pop(entry.key, None)
        self._forget_requests(entry.key)

    def capacity(self, entry: Entry, fact: pf.CapacityChanged) -> None:
        """Set the capacity of one inventory of the cluster."""
        self._capacity[fact.inventory] = fact.capacity

    def opened(self, entry: Entry, fact: lf.LotOpened) -> None:
        """Open a lot of alike members of one slice."""
        self.lots[entry.key] = (fact.shape, fact.crowd)

    def admitted(self, entry: Entry, fact: lf.LotAdmitted) -> None:
        """Admit members of a lot: the pool is charged for them."""
        shape, crowd = self.lots[entry.key]
        tasks = self.tasks.setdefault(crowd, SliceUsage())
        if tasks.charges & fact.members.raw:
            raise Contradiction(f"R10 {entry.key} is charged twice for some of {fact.members}")
        tasks.charged[entry.key] = tasks.charged.get(entry.key, 0) | fact.members.raw
        tasks.charged_some_time |= fact.members.raw
        self._charge(shape, len(fact.members))
        more = shape.resources.times(len(fact.members))
        for above in self._up(shape.pool):
            used, limit = self._total(above), self._limit(above)
            # Not of all that is used: of slack there may be less by now, which is another's matter.
            if not more.within(limit - used + more):
                raise Contradiction(f"R10 {above} uses {used} of {limit}")

    def left(self, entry: Entry, fact: lf.LotReleased | lf.LotEnqueued | lf.LotParked) -> None:
        """Free the charges of members of a lot that were released, or queued again."""
        shape, crowd = self.lots[entry.key]
        tasks = self.tasks.setdefault(crowd, SliceUsage())
        before = tasks.charged.get(entry.key, 0)
        gone = before & fact.members.raw
        self._change(crowd)
        tasks.charged[entry.key] = before & ~gone
        self._charge(shape, -gone.bit_count())

    def _charge(self, shape: LotShape, count: int) -> None:
        used = self.use.get(shape.pool, Resources())
        self.use[shape.pool] = used + shape.resources.times(count)

    def _up(self, pool: Key) -> list[Key]:
        path: list[Key] = []
        while pool in self.pools and pool not in path:
            path.append(pool)
            pool = self.pools[pool][0] if pool != ROOT else ROOT
        return path

    def _total(self, pool: Key) -> Resources:
        total = Resources()
        for below, used in self.use.items():
            if pool in self._up(below):
                total = total + used
        return total

    def _limit(self, pool: Key) -> Resources:
        if pool != ROOT:
            return self.pools[pool][1] + NO_SLACK_LIMIT
        total = Resources()
        for capacity in self._capacity.values():
            total = total + capacity
        return total

    # ---- clients ----

    def make(self, entry: Entry, fact: jf.JobMade) -> None:
        """Create a job."""
        self.made[entry.key] = self.made.get(entry.key, 0) + 1
        if self.made[entry.key] > 1 and entry.key not in self.deleted:
            raise Contradiction(f"R1 {entry.key} was created twice")
        self.deleted.pop(entry.key, None)

    def unmake(self, entry: Entry, fact: jf.JobForgotten) -> None:
        """Delete a job, and the answers to its requests with it."""
        self.deleted[entry.key] = self.deleted_ever[entry.key] = None
        self._forget_requests(entry.key)
        name = entry.key.partition("/")[2]  # its volumes outlive it, and are nobody's home
        of_it = [each for each in self.volumes if each.rpartition("-")[0] == name]
        for volume in of_it:
            del self.volumes[volume]

    def _forget_requests(self, key: Key) -> None:
        for request in [each for each in self.requests if each[0] == key]:
            del self.requests[request]

    def request(self, entry: Entry, fact: RequestAnswered) -> None:
        """Note the answer to a request, which may have one effect only.

        With facts beside the answer the request had an effect; alone it was refused.
        """
        name = (entry.key, fact.request)
        if all(type(each) is RequestAnswered for each in entry.facts):
            self.requests_refused[name] = None
            return
        if name in self.requests_refused:
            raise Contradiction(f"R2 request {fact.request} was refused, but changed {entry.key}")
        if name in self.requests:
            raise Contradiction(f"R1 request {fact.request} changed {entry.key} a second time")
        self.requests[name] = None
        # As its client chose it: whose it is, the gateway adds.
        self.requests_ever[entry.key, fact.request.partition(SCOPE)[0]] = None


def _runs(fact: Any) -> list[str]:
    """Return the runs of a host's fact, which names them by id or as a set."""
    if isinstance(fact, hf.ProcessesEnded):
        return [end.run for end in fact.ends]
    if isinstance(fact, hf.RunsForgotten):
        return [*fact.runs]
    return names_of(fact.crowd, fact.members.raw, run=fact.run)


def _all(entry: Entry, members: int, *, rule: str, text: str) -> None:
    """Raise `Contradiction` unless every member of the entry is one of `members`."""
    others = entry.members & ~members
    if others:
        raise Contradiction(f"{rule} {entry.key}: {[*Bits(others)][:5]} {text}")


def _none(entry: Entry, members: int, *, rule: str, text: str) -> None:
    """Raise `Contradiction` if a member of the entry is one of `members`."""
    _all(entry, ~members, rule=rule, text=text)


APPLIED: Mapping[type, Callable[[ShadowLedger, Entry, Any], None]] = {
    tf.TaskCreated: ShadowLedger.created,
    tf.TaskGoalSet: ShadowLedger.goal,
    tf.TaskLaunching: ShadowLedger.launching,
    tf.TaskPrepared: ShadowLedger.in_progress,
    tf.LaunchAccepted: ShadowLedger.in_progress,
    tf.TaskStarted: ShadowLedger.in_progress,
    tf.TaskKilling: ShadowLedger.in_progress,
    tf.LaunchRefused: ShadowLedger.refused,
    tf.RunEnded: ShadowLedger.ended,
    tf.TaskRetried: ShadowLedger.retried,
    tf.TaskWithdrawn: ShadowLedger.withdrawn,
    tf.TaskForgotten: ShadowLedger.vanished,
    hf.HostConfigured: ShadowLedger.configured,
    hf.RunsAccepted: ShadowLedger.accept,
    hf.PreparedStarted: ShadowLedger.begin,
    hf.PreparedReleased: ShadowLedger.give_back,
    hf.DevicesGiven: ShadowLedger.given,
    hf.SlackMeasured: ShadowLedger.measured,
    hf.ProcessesEnded: ShadowLedger.stopped,
    hf.SetEnded: ShadowLedger.stopped,
    hf.HostLost: lambda ledger, entry, _: ledger.hosts[entry.key].clear(),
    hf.HostRemoved: ShadowLedger.lost_for_good,
    hf.VolumesGiven: ShadowLedger.volumes_given,
    hf.VolumesGone: lambda ledger, entry, fact: ledger.hosts[entry.key].remove(fact.volumes),
    hf.RunsForgotten: ShadowLedger.dropped,
    hf.SetForgotten: ShadowLedger.dropped,
    pf.PoolConfigured: ShadowLedger.pool,
    pf.PoolDeleted: ShadowLedger.pool_deleted,
    pf.CapacityChanged: ShadowLedger.capacity,
    lf.LotOpened: ShadowLedger.opened,
    lf.LotEnqueued: ShadowLedger.left,
    lf.LotAdmitted: ShadowLedger.admitted,
    lf.LotReleased: ShadowLedger.left,
    lf.LotParked: ShadowLedger.left,
    jf.JobMade: ShadowLedger.make,
    jf.JobForgotten: ShadowLedger.unmake,
    hf.VolumeDeleting: ShadowLedger.volume_deleting,
    sf.VolumeHomesGiven: ShadowLedger.volumes_home,
    sf.VolumeHomesLeft: ShadowLedger.volumes_left,
    RequestAnswered: ShadowLedger.request,
}
NOT_APPLIED = (
    pf.HourKept,
    hf.MaintenanceCompleted, hf.MaintenanceStarted, hf.ProcessesStarted, hf.HostUnreachable,
    hf.HostQuarantined, hf.QuarantineEnded, hf.HostReconciled, hf.TaskHoldsEnded, hf.HostReachable,
    hf.HostTakenDown, hf.TroubleNoted, hf.RunsRefused, hf.KillOrdered, hf.HostPoolSet, hf.TaskHeld,
    hf.UseWanted, hf.UseTold, hf.PortsNoted, hf.PortsGiven,
    hf.HostDrained, hf.TroubleOver, hf.SetStarted, hf.HostMoving, hf.HoldEnded, hf.HoldTaken,
    jf.ChangePiecesDropped, jf.InstancesStopped, jf.InstancesStarted, jf.ChangePieceGiven,
    jf.DeletionOrdered, jf.OverridesGiven, jf.SliceConfirmed, jf.SliceVanished, jf.NoticeSettled,
    jf.GrantsRaised, jf.StopOrdered, jf.WaiterNoted, jf.NameSettled, jf.ArchivedIn, jf.JobChanged,
    jf.JobTallied, jf.OtherNoted, jf.OtherEnded, jf.WaiterTold, jf.SpecConfirmed, jf.SpecGone,
    lf.ReclaimOrdered, lf.ReclaimAnswered,
    tf.AdmissionRequested, tf.AdmissionReleasing, tf.AdmissionReleased, tf.TaskUnschedulable,
    tf.AdmissionGranted, tf.AdmissionQueued, tf.TaskThrottled, tf.EventsDropped, tf.RunLimitSet,
    tf.GangJoined, lf.LotGangSet, hf.SlackTaken, tf.AdmissionParking, tf.AdmissionParked,
    tf.RenewalOrdered, tf.TaskRenewed, tf.HealthTold, tf.ContainersTold,
    hf.DaemonsEnding, jf.BudgetShared, jf.SpareHeard,
    WorkflowBegun, WorkflowMoved, WorkflowUndone, LeavesRaised, OpaqueChanged,
)  # fmt: skip
"""Facts that change nothing here. A test fails for a fact in neither list."""
