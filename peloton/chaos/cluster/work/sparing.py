"""R34: wanted disruptions take no more instances of a service down than may be down at once.

Turns scenario actions into services with a disruption budget, updates of these, hosts that go down
and come back, and restarts of single instances; and committed facts into a `Contradiction` or
nothing. Each time a slice takes members down, those that are down by the facts before it are
counted, whatever took them down; and no member is ended for a workflow, a host, a pool or a restart
that was not taken down so. The code by which slices decide is not used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peloton.actors.host.messages import CompleteMaintenance, StartMaintenance
from peloton.actors.host.stages import Maintenance
from peloton.actors.job.messages import CreateJob
from peloton.actors.job.slice import facts as sf
from peloton.actors.job.slice.messages import slice_key
from peloton.actors.job.slice.rollout_messages import DownBudget, RestartIfSpared
from peloton.actors.job.state import Job
from peloton.actors.job.workflow.messages import (
    ControlWorkflow,
    ReplaceJob,
    WorkflowOptions,
    WorkflowOrders,
)
from peloton.actors.task import facts as tf
from peloton.actors.task.messages import KillCause, Policy, TaskGoals
from peloton.actors.task.run_messages import TaskHealth
from peloton.chaos.cluster.rules.liveness import reach
from peloton.chaos.cluster.work.drawing import ActionDraw, by_weight
from peloton.chaos.cluster.work.servicing import (
    OPERATOR,
    service_of,
    service_spec,
    wanted_services,
)
from peloton.chaos.cluster.work.workload import client_of, cluster_of
from peloton.chaos.cluster.world.cluster import SimulatedCluster
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Storm
from peloton.runtime.vocabulary import Key, Message, members_of

SHARE = 0.25
ACTIONS = (6, 16)
SIZES = (2, 3, 5)
BOUNDED_NAME, LASTS_S = "budget", (5.0, 60.0)
"""Runs of such a service last longer than others: most of its instances are up."""
MAINTAINED_S = 3.0
"""An operator looks so often whether a host is down, and may come back."""
WANTED = frozenset(
    (
        *(KillCause.PREEMPTED, KillCause.PREEMPTED_FOR_GOOD),
        *(KillCause.MAINTENANCE, KillCause.SPARED_RESTART),
    )
)


class _Members:
    """The members of one slice, as bits."""

    def __init__(self) -> None:
        self.budget: DownBudget | None = None
        self.wanted = self.stopped = self.running = 0
        self.checked = self.gated = 0  # by their configs: of health, of readiness
        self.well = self.ready = 0  # by what was told of the present run
        self.going = 0  # taken down, and not yet told
        self.excused = 0  # that ran when the bound came: an earlier order may end them
        self.stops = False  # the last workflow stops instances, which asks nobody

    @property
    def up(self) -> int:
        """The members that run, and are healthy and ready as far as they are checked."""
        return self.running & (self.well | ~self.checked) & (self.ready | ~self.gated)

    @property
    def down(self) -> int:
        """The members that are to run, and do not, or are about to go down."""
        return self.wanted & ~self.stopped & ~(self.up & ~self.going)


class BudgetCheck:
    """The down members of services with a disruption budget."""

    def __init__(self) -> None:
        self.checked = 0
        self._slices: dict[str, _Members] = {}
        down = (tf.RunEnded, tf.LaunchRefused, tf.TaskRetried)
        self.noted: dict[type, Callable[[Entry, Any], None]] = {
            sf.SliceGoalSet: self._goal,
            sf.MembersSpared: self._spared,
            sf.RolloutBegun: self._begun,
            tf.TaskCreated: self._created,
            tf.TaskGoalSet: self._wanted,
            tf.TaskStarted: self._started,
            tf.TaskKilling: self._killing,
            tf.RenewalOrdered: self._renewed,
            tf.TaskRenewed: self._configured,
            tf.HealthTold: self._told,
            tf.TaskForgotten: self._forgotten,
            **dict.fromkeys(down, self._down),
        }

    def doing(self, name: str) -> tuple[int, int]:
        """Return the members of the slice that are to run, and those that are up."""
        some = self._slices.get(name, _Members())
        return some.wanted & ~some.stopped, some.up

    def _of(self, entry: Entry) -> _Members:
        name = entry.key.partition("/")[2]
        return self._slices.setdefault(name, _Members())

    def _goal(self, entry: Entry, fact: sf.SliceGoalSet) -> None:
        some = self._of(entry)
        if some.budget is None and fact.budget is not None:
            some.excused = some.running
        some.budget, some.stopped = fact.budget, fact.stopped.raw

    def _begun(self, entry: Entry, fact: sf.RolloutBegun) -> None:
        self._of(entry).stops = fact.order.stops

    def _spared(self, entry: Entry, fact: sf.MembersSpared) -> None:
        self.checked += 1
        some, taken = self._of(entry), 0
        for _, members in fact.runs:
            taken |= members.raw
        name = f"R34 {entry.key} for {fact.by.name}"
        if some.budget is None:
            raise Contradiction(f"{name}: the slice has no bound")
        if taken & some.down:
            text = f"members {members_of(taken & some.down)} are down already"
            raise Contradiction(f"{name}: {text}")
        down = (some.down | taken).bit_count()
        if down > some.budget.allowance:
            text = f"{down} are down, {some.budget.allowance} may be"
            raise Contradiction(f"{name}: {members_of(taken)} are taken down: {text}")
        some.going |= taken

    def _created(self, entry: Entry, fact: tf.TaskCreated) -> None:
        if fact.goal == TaskGoals.RUNNING:
            self._of(entry).wanted |= entry.members
        self._check(entry, fact.policy)

    def _configured(self, entry: Entry, fact: tf.TaskRenewed) -> None:
        self._check(entry, fact.renewal.policy)

    def _check(self, entry: Entry, policy: Policy) -> None:
        some, members = self._of(entry), entry.members
        some.checked = some.checked & ~members | members * policy.checked
        some.gated = some.gated & ~members | members * policy.awaits_ready

    def _told(self, entry: Entry, fact: tf.HealthTold) -> None:
        some, members = self._of(entry), entry.members
        # DISABLED: nobody carries out the check that it has.
        passes = (TaskHealth.DISABLED, TaskHealth.HEALTHY)
        well, ready = (one in passes for one in (fact.health, fact.ready))
        some.well = some.well & ~members | members * well
        some.ready = some.ready & ~members | members * ready

    def _wanted(self, entry: Entry, fact: tf.TaskGoalSet) -> None:
        some = self._of(entry)
        some.wanted &= ~entry.members
        if fact.goal == TaskGoals.RUNNING:
            some.wanted |= entry.members
        else:
            some.going &= ~entry.members

    def _started(self, entry: Entry, fact: tf.TaskStarted) -> None:
        some = self._of(entry)
        some.running |= entry.members
        some.well &= ~entry.members
        some.ready &= ~entry.members
        some.going &= ~entry.members
        some.excused &= ~entry.members

    def _down(self, entry: Entry, fact: Any) -> None:
        some = self._of(entry)
        some.running &= ~entry.members
        some.going &= ~entry.members

    def _killing(self, entry: Entry, fact: tf.TaskKilling) -> None:
        if fact.cause in WANTED:
            self._ended(entry, fact.cause.name)
        self._down(entry, fact)

    def _renewed(self, entry: Entry, fact: tf.RenewalOrdered) -> None:
        if not self._of(entry).stops:
            self._ended(entry, "WORKFLOW")
        self._down(entry, fact)

    def _ended(self, entry: Entry, why: str) -> None:
        some = self._of(entry)
        ended = entry.members & some.up & some.wanted & ~some.going & ~some.excused & ~some.stopped
        if ended and some.budget is not None:
            text = f"members {members_of(ended)} are ended for {why}, and were not spared"
            raise Contradiction(f"R34 {entry.key}: {text}")

    def _forgotten(self, entry: Entry, fact: tf.TaskForgotten) -> None:
        self._down(entry, fact)
        self._of(entry).wanted &= ~entry.members


def create_bounded(storm: Storm, action: StormAction) -> None:
    """Create a service of which so many may be down at once, in a pool that others may lend to."""
    storm.strike(action.name)
    cluster = cluster_of(storm)
    spec = service_spec(
        max(2, action.count), bound=1 + action.other % 2, check=cluster.machines.check
    )
    job = cluster.draw_job(f"{BOUNDED_NAME}{len(cluster.jobs) + 1}")
    cluster.clients.create(client_of(action), job, message=CreateJob(spec))


def replace_bounded(storm: Storm, action: StormAction) -> None:
    """Give a service another command, and another bound, or none."""
    job = service_of(storm, action)
    known: Job | None = cluster_of(storm).cells("job").get(job) if job is not None else None
    if job is None or known is None or known.spec is None:
        return
    storm.strike(action.name, job)
    bound = (1, 2, 1, 0)[action.other % 4]
    check = cluster_of(storm).machines.check
    spec = service_spec(known.spec.instances, f"y{action.other % 3}", bound=bound, check=check)
    options = WorkflowOptions(batch=action.count % 3, paused=action.other % 11 == 0)
    message = ReplaceJob(spec, options=options)
    cluster_of(storm).clients.command(client_of(action), job, message=message)


def restart_spared(storm: Storm, action: StormAction) -> None:
    """Restart one instance, if the service can spare it."""
    job = service_of(storm, action)
    if job is None:
        return
    storm.strike(action.name, job)
    message = RestartIfSpared(action.other % max(1, action.count))
    to = slice_key(job.partition("/")[2], 0)
    cluster_of(storm).clients.command(client_of(action), to, message=message)


def maintain_host(storm: Storm, action: StormAction) -> None:
    """Take a host down, and bring it back once it is."""
    cluster = cluster_of(storm)
    host = cluster.hosts[action.which % len(cluster.hosts)]
    storm.strike(action.name, host)
    cluster.clients.command(OPERATOR, host, message=StartMaintenance(), keyed=False)
    _bring_back(storm, host)


def _bring_back(storm: Storm, host: Key) -> None:
    cluster = cluster_of(storm)

    def look() -> None:
        state = cluster.cells("host").get(host)
        phase = state.maintenance if state is not None else None
        if phase == Maintenance.NONE and not cluster.clients.waiting:
            return
        if phase == Maintenance.DOWN:
            cluster.clients.command(OPERATOR, host, message=CompleteMaintenance(), keyed=False)
        _bring_back(storm, host)

    storm.world.later.at(storm.world.now + MAINTAINED_S, look)  # when the storm is over, too


def settle(cluster: SimulatedCluster, *, within_s: float) -> None:
    """Check R7, in a calm: updates of services with a bound end, and hosts come back.

    Each such service is updated, all of it at once as far as the bound allows, while hosts go down
    one after the other.
    """
    bounded = [each for each in wanted_services(cluster) if _is_bounded(each)]
    if not bounded:
        return
    for job in bounded:
        assert job.spec is not None
        abort = ControlWorkflow(WorkflowOrders.ABORT)
        cluster.clients.command(OPERATOR, job.key, message=abort)
        bound = job.spec.maximum_unavailable
        check = cluster.machines.check
        spec = service_spec(job.spec.instances, "calm", bound=bound, check=check)
        cluster.clients.command(OPERATOR, job.key, message=ReplaceJob(spec))
    for host in cluster.hosts[:2]:
        _go_down(cluster, host, within_s=within_s)
    keys = [job.key for job in bounded]
    reach(cluster, lambda: all(_is_over(cluster, each) for each in keys), within_s=within_s)


def _go_down(cluster: SimulatedCluster, host: Key, *, within_s: float) -> None:
    """Take a host down, and bring it back.

    Each order is sent until it is answered, and has no request key: a start that is sent again
    after the host was brought back would begin another maintenance, which nobody ends.
    """
    _order(cluster, host, message=StartMaintenance(), wanted=Maintenance.DOWN, within_s=within_s)
    _order(cluster, host, message=CompleteMaintenance(), wanted=Maintenance.NONE, within_s=within_s)


def _order(
    cluster: SimulatedCluster, host: Key, *, message: Message, wanted: Maintenance, within_s: float
) -> None:
    answers: list[Any] = []
    seen: set[Maintenance] = set()  # an operator of the storm may end it before we are answered

    def is_over() -> bool:
        state = cluster.cells("host").get(host)
        if state is not None:
            seen.add(state.maintenance)
        return bool(answers) and wanted in seen

    cluster.clients.command(OPERATOR, host, message=message, answered=answers.append, keyed=False)
    reach(cluster, is_over, within_s=within_s)


def _is_bounded(job: Job) -> bool:
    return job.spec is not None and job.spec.maximum_unavailable > 0


def _is_over(cluster: SimulatedCluster, job: Key) -> bool:
    known: Job | None = cluster.cells("job").get(job)
    return known is None or known.workflow is None or known.workflow.is_over


WORK: dict[str, Callable[[Storm, StormAction], None]] = {
    "create bounded": create_bounded,
    "replace bounded": replace_bounded,
    "restart spared": restart_spared,
    "maintain host": maintain_host,
}
WEIGHTS = {"create bounded": 4, "replace bounded": 3, "restart spared": 3, "maintain host": 3}

DRAWN = ActionDraw(
    "budgets", SHARE, ACTIONS, by_weight(WEIGHTS), lambda chance: chance.choice(SIZES)
)
