"""Workflows of services during a storm: updates and restarts, paused, resumed and aborted.

R37: a workflow has succeeded, or is rolled back, only after all instances that it changed, and that
are to run, have stayed up for as long as was asked, at the end.

Turns a scenario's action into commands of clients; and a cluster in a calm into one in which each
service that has had a workflow is given another command once more, an instance at a time, and that
workflow succeeds (R7): none is stuck, whatever the state of those before. Instances that an aborted
workflow left to be added are added by it. The code by which slices decide is not used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peloton.actors.job.slice import facts as sf
from peloton.actors.job.state import Job
from peloton.actors.job.workflow import facts as wf
from peloton.actors.job.workflow.messages import (
    ControlWorkflow,
    ReplaceJob,
    RestartJob,
    WorkflowOptions,
    WorkflowOrders,
    WorkflowStates,
)
from peloton.actors.task import facts as tf
from peloton.chaos.cluster.rules.liveness import reach
from peloton.chaos.cluster.work.drawing import ActionDraw, any_of, by_weight
from peloton.chaos.cluster.work.servicing import OPERATOR, service_of, service_spec, wanted_services
from peloton.chaos.cluster.work.sparing import BudgetCheck
from peloton.chaos.cluster.work.workload import client_of, cluster_of
from peloton.chaos.cluster.world.cluster import SimulatedCluster
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Storm
from peloton.runtime.vocabulary import members_of

SHARE = 0.5
STEADY_SHARE = 0.15
ACTIONS = (2, 6)
SIZES = 6
"""Instances that services are given at most."""
COMMANDS = 3
"""Different configs that services are given."""
BEGUN_OR_ORDERED = ReplaceJob | RestartJob | ControlWorkflow
"""What workflows come from, or may have left them paused: a creation is one as well."""
HEALTHY_S = (0.2, 1.0, 3.0)
TICK_S = 0.01
"""By so much the runtime may round."""
ORDERS = (WorkflowOrders.PAUSE, WorkflowOrders.RESUME, WorkflowOrders.ABORT)


class _Watched:
    """The members that the newest rollout of a slice has changed."""

    def __init__(self, healthy_s: float) -> None:
        self.healthy_s = healthy_s
        self.members = 0  # that it changed, but those that failed or were removed
        self.since: dict[int, float] = {}  # when each was through, and has done its work since
        self.proved = False


class SteadyCheck:
    """Checks that the instances that a workflow has changed have stayed up for long enough."""

    def __init__(self, budgets: BudgetCheck) -> None:
        self.clocks_agree = True
        self.checked = 0
        self._budgets = budgets
        self._slices: dict[str, _Watched] = {}
        work = [fact for fact in budgets.noted if fact.__module__ == tf.__name__]
        self.noted: dict[type, Callable[[Entry, Any], None]] = {
            **dict.fromkeys(work, self._worked),
            sf.RolloutBegun: self._begun,
            sf.LeaveChanged: self._left,
            sf.MembersTaken: self._taken,
            sf.MembersSettled: self._settled,
            sf.MembersRemoved: self._removed,
            sf.SliceForgotten: self._forgotten,
            wf.WorkflowMoved: self._moved,
        }
        """Looked at after those of `budgets`."""

    def _begun(self, entry: Entry, fact: sf.RolloutBegun) -> None:
        # Where the host of a daemon job's instance is down, nobody waits for it.
        asked = not (fact.order.stops or fact.order.over or fact.opening.hosts_of is not None)
        some = self._slices[_name(entry)] = _Watched(fact.order.healthy_s if asked else 0.0)
        some.members = fact.current.raw

    def _left(self, entry: Entry, fact: sf.LeaveChanged) -> None:
        if fact.over:
            self._slices.pop(_name(entry), None)

    def _taken(self, entry: Entry, fact: sf.MembersTaken) -> None:
        some = self._slices.get(_name(entry))
        if some is not None:
            some.members |= fact.members.raw
            some.proved = False

    def _removed(self, entry: Entry, fact: sf.MembersRemoved) -> None:
        some = self._slices.get(_name(entry))
        if some is not None:
            some.members &= ~fact.members.raw

    def _forgotten(self, entry: Entry, fact: sf.SliceForgotten) -> None:
        self._slices.pop(_name(entry), None)

    def _worked(self, entry: Entry, fact: Any) -> None:
        some = self._slices.get(_name(entry))
        if some is not None and some.since:
            down = entry.members & ~self._budgets.doing(_name(entry))[1]
            for member in [one for one in some.since if down >> one & 1]:
                del some.since[member]

    def _settled(self, entry: Entry, fact: sf.MembersSettled) -> None:
        some = self._slices.get(_name(entry))
        if some is None or not some.healthy_s:
            return
        some.members &= ~fact.failed.raw
        some.since.update(dict.fromkeys(fact.done, fact.at))
        if fact.steady:
            self._prove(entry, some, now=fact.at)

    def _prove(self, entry: Entry, some: _Watched, *, now: float) -> None:
        self.checked += 1
        wanted, up = self._budgets.doing(_name(entry))
        wanted &= some.members
        if wanted & ~up:
            text = f"{members_of(wanted & ~up)} do not do their work"
            raise Contradiction(f"R37 {entry.key} is steady: {text}")
        for member in members_of(wanted) if self.clocks_agree else ():
            since = some.since.get(member)
            if since is None or now - since < some.healthy_s - TICK_S:
                text = f"member {member} has done its work since {since}, not {some.healthy_s} s"
                raise Contradiction(f"R37 {entry.key} is steady at {now}: {text}")
        some.proved = True

    def _moved(self, entry: Entry, fact: wf.WorkflowMoved) -> None:
        if fact.state not in (WorkflowStates.SUCCEEDED, WorkflowStates.ROLLED_BACK):
            return
        job = entry.key.partition("/")[2] + "/"
        for name, some in self._slices.items():
            open_ = some.healthy_s and some.members and not some.proved
            if open_ and name.startswith(job):
                text = f"slice {name} has not said that all of it have stayed well"
                raise Contradiction(f"R37 {entry.key} is {fact.state.name}: {text}")


def _name(entry: Entry) -> str:
    return entry.key.partition("/")[2]


def update_steadily(storm: Storm, action: StormAction) -> None:
    """Give a service another command, whose instances must stay well for a while."""
    job = service_of(storm, action)
    known = cluster_of(storm).cells("job").get(job) if job is not None else None
    if job is None or known is None or known.spec is None:
        return
    storm.strike(action.name, job)
    check = cluster_of(storm).machines.check
    spec = service_spec(known.spec.instances, f"x{action.other % COMMANDS}", check=check)
    options = WorkflowOptions(
        batch=action.count,
        max_attempts=action.other % 4,
        tolerated=action.other % 2,
        back=action.other % 3 == 0,
        healthy_s=HEALTHY_S[action.which % len(HEALTHY_S)],
    )
    message = ReplaceJob(spec, options=options)
    cluster_of(storm).clients.command(client_of(action), job, message=message)


def replace_service(storm: Storm, action: StormAction) -> None:
    """Give a service another command, or as many instances more; rolled back or not."""
    job = service_of(storm, action)
    known = cluster_of(storm).cells("job").get(job) if job is not None else None
    if job is None or known is None or known.spec is None:
        return
    storm.strike(action.name, job)
    more = int(action.other % 5 == 0)
    spec = service_spec(
        known.spec.instances + more,
        f"x{action.other % COMMANDS}",
        check=cluster_of(storm).machines.check,
    )
    options = WorkflowOptions(
        batch=action.count,
        max_attempts=action.other % 3,
        tolerated=action.other % 2,
        back=not more and action.other % 4 == 1,
        paused=action.other % 7 == 0,
    )
    message = ReplaceJob(spec, options=options)
    cluster_of(storm).clients.command(client_of(action), job, message=message)


def restart_service(storm: Storm, action: StormAction) -> None:
    """Begin new runs of a part of a service, stopped or not."""
    job = service_of(storm, action)
    if job is None:
        return
    storm.strike(action.name, job)
    ranges = ((0, 1 + action.other % 3),) if action.other % 2 else ()
    message = RestartJob(ranges, WorkflowOptions(batch=action.count))
    cluster_of(storm).clients.change(client_of(action), job, message=message)


def control_workflow(storm: Storm, action: StormAction) -> None:
    """Pause, resume or abort the workflow of a service, if it has one."""
    job = service_of(storm, action)
    if job is None:
        return
    storm.strike(action.name, job)
    message = ControlWorkflow(ORDERS[action.other % len(ORDERS)])
    cluster_of(storm).clients.command(client_of(action), job, message=message)


def resize_service(storm: Storm, action: StormAction) -> None:
    """Give a service more instances or fewer, with another command or the same."""
    job = service_of(storm, action)
    known = cluster_of(storm).cells("job").get(job) if job is not None else None
    if job is None or known is None or known.spec is None:
        return
    storm.strike(action.name, job)
    spec = service_spec(1 + action.other % SIZES, f"x{action.other % COMMANDS}")
    options = WorkflowOptions(
        batch=action.count,
        max_attempts=action.other % 2,
        tolerated=action.other % 2,
        back=action.other % 3 == 0,
        paused=action.other % 5 == 0,
    )
    message = ReplaceJob(spec, options=options)
    cluster_of(storm).clients.command(client_of(action), job, message=message)


def undo_workflow(storm: Storm, action: StormAction) -> None:
    """Roll the workflow of a service back, if it has one."""
    job = service_of(storm, action)
    if job is not None:
        storm.strike(action.name, job)
        message = ControlWorkflow(WorkflowOrders.ROLL_BACK)
        cluster_of(storm).clients.command(client_of(action), job, message=message)


def settle(cluster: SimulatedCluster, *, within_s: float) -> None:
    """Check R7, in a calm: whatever workflows have left, the next one comes to its end."""
    clients = cluster.clients

    def quiet() -> bool:
        return not clients.waiting and cluster.world.whole()

    if not any(isinstance(each.message, BEGUN_OR_ORDERED) for each in clients.requests):
        return
    reach(cluster, quiet, within_s=within_s)
    for job in _rolled(cluster):
        clients.command(OPERATOR, job.key, message=ControlWorkflow(WorkflowOrders.ABORT))
    reach(cluster, quiet, within_s=within_s)
    for job in _rolled(cluster):
        assert job.spec is not None
        bound, check = job.spec.maximum_unavailable, cluster.machines.check
        spec = service_spec(job.spec.instances, "last", bound=bound, check=check)
        message = ReplaceJob(spec, options=WorkflowOptions(batch=1))
        clients.command(OPERATOR, job.key, message=message)

    def all_done() -> bool:
        return quiet() and all(map(_is_done, _rolled(cluster)))

    reach(cluster, all_done, within_s=within_s)


def _rolled(cluster: SimulatedCluster) -> list[Job]:
    return [job for job in wanted_services(cluster) if job.workflow is not None]


def _is_done(job: Job) -> bool:
    return job.workflow is not None and job.workflow.state == WorkflowStates.SUCCEEDED


WORK: dict[str, Callable[[Storm, StormAction], None]] = {
    "replace service": replace_service,
    "restart service": restart_service,
    "control workflow": control_workflow,
}
RESIZES: dict[str, Callable[[Storm, StormAction], None]] = {
    "resize service": resize_service,
    "undo workflow": undo_workflow,
}
STEADIES: dict[str, Callable[[Storm, StormAction], None]] = {"update steadily": update_steadily}
WEIGHTS = {"replace service": 4, "restart service": 2, "control workflow": 2}

DRAWN = ActionDraw(
    "workflows", SHARE, ACTIONS, by_weight(WEIGHTS), lambda chance: chance.choice((0, 1, 2))
)
RESIZED = ActionDraw(
    "resizes",
    SHARE,
    ACTIONS,
    by_weight({"resize service": 3, "undo workflow": 1}),
    lambda chance: chance.choice((0, 1, 2)),
)
STEADY = ActionDraw(
    "steady updates",
    STEADY_SHARE,
    ACTIONS,
    any_of(STEADIES),
    lambda chance: chance.choice((0, 1, 2)),
)
"""Drawn apart: what is drawn above is part of older seeds."""
