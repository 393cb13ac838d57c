"""The checks of a cluster: after every step, by committed facts; and at a quiet point.

Turns a cluster into a `Contradiction` or nothing. Most checks of a quiet point take anything that
has cells, crowds and machines (`ClusterView`). They must not change the cluster, and compute from
the children what a parent has derived from them.

    checks = ClusterChecks(cluster)   before the first step
    checks.quiet()                    when no fault strikes and nothing more is to happen
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from peloton.actors.host.holds.foreign_names import FOREIGN_MARK
from peloton.actors.host.inventory.state import Hosts
from peloton.actors.host.stages import OCCUPYING, HostStates
from peloton.actors.host.state import Host
from peloton.actors.job.kind import FINISHED_JOBS_MAX
from peloton.actors.job.messages import GetJob, JobView, StopJob
from peloton.actors.job.slice.counts import counted_state
from peloton.actors.job.slice.messages import InstanceView, ListInstances, slice_key
from peloton.actors.resources import EPSILON, Resources
from peloton.actors.respool.admission import admissions
from peloton.actors.respool.tree import Tree
from peloton.actors.task.messages import SLICE_SIZE, crowd_key, slice_of_crowd
from peloton.actors.task.run_messages import UNHEALTHY
from peloton.actors.task.state import ON_HOST, Admission, Task, TaskStates
from peloton.chaos.cluster.promises import PromiseChecks
from peloton.chaos.cluster.rules.acknowledged import AcknowledgementCheck
from peloton.chaos.cluster.rules.aftermath import traces
from peloton.chaos.cluster.rules.conserving import root_has_what_hosts_have
from peloton.chaos.cluster.rules.feed_check import FeedCheck
from peloton.chaos.cluster.rules.journaled import (
    answers_equal_the_journal,
    held_by_lots,
    ledger_equals_the_actors,
)
from peloton.chaos.cluster.rules.liveness import ended_by_itself, killed_for_its_time, stopped_jobs
from peloton.chaos.cluster.rules.pool_history import pool_faults
from peloton.chaos.cluster.rules.processes import ProcessCheck
from peloton.chaos.cluster.rules.shadow_ledger import ShadowLedger
from peloton.chaos.cluster.world.clients import Clients
from peloton.chaos.cluster.world.cluster import SimulatedCluster
from peloton.chaos.cluster.world.history import Asked, Operation, faults
from peloton.chaos.cluster.world.view import ClusterView
from peloton.placement.conditions import shape_depends_on_tasks
from peloton.runtime.core.shard import Shard
from peloton.runtime.ports import ShardId
from peloton.runtime.simulation.checkers import Checkers
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.simulation.world import NotReached
from peloton.runtime.vocabulary import Bits, Key, Query, members_of

ANSWER_S_MAX = 60.0
READ_S_MAX = 120.0
"""In s: readers ask again after 25 s without an answer, and pages may hold one change."""


class ClusterChecks:
    """All checks of one cluster; the cheap ones run after each step of its world."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.core = Checkers(cluster.world, contents=contents)
        self.ledger = ShadowLedger(cluster.machines)
        self._cluster = cluster
        self.core.on_frame.append(self.ledger.apply)
        self.core.on_settled.append(self.ledger.settle)
        self.processes = ProcessCheck(cluster.machines)
        self.core.on_frame.append(self.processes.apply)
        self.core.on_closer.append(_hosts_of_a_shard)
        self.acknowledged = AcknowledgementCheck(cluster.clients.requests)
        self.core.on_frame.append(self.acknowledged.apply)
        self.promises = PromiseChecks(cluster)
        self.core.on_frame.append(self.promises.apply)
        self.core.on_settled.append(self.promises.settle)
        self.feeds = FeedCheck(cluster.readers, cluster.world.codec)
        self.core.on_frame.append(self.feeds.apply)
        cluster.world.checks.append(self.step)

    def step(self) -> None:
        """Check what one step may have broken. Raises `Contradiction`."""
        self.ledger.step()
        self.processes.step()
        self.acknowledged.step()
        self.feeds.step()
        self.promises.step()
        self._cluster.twice.step()

    def _readers_catch_up(self) -> None:
        try:
            self._cluster.world.run_until(self.feeds.caught_up, within_s=READ_S_MAX)
        except NotReached as error:
            raise Contradiction(f"R16 a reader does not get what was journaled: {error}") from error

    def quiet(self) -> None:
        """Check everything, at a quiet point. Raises `Contradiction`."""
        self.core.quiet()
        self._readers_catch_up()
        quiet(self._cluster)
        self.promises.quiet()
        ledger_equals_the_actors(self.ledger, self._cluster)
        pools_use_what_their_lots_hold(self._cluster)
        for job in self.ledger.deleted:
            if job not in self._cluster.cells("job"):
                nothing_is_left(self._cluster, job)
        history = self._cluster.clients.history
        answers_equal_the_journal(self.ledger, history)
        may_leave = self._cluster.setup.finished_jobs_max < FINISHED_JOBS_MAX
        operations = [*history, *_beside(self._cluster.clients)]
        scheduled = self.promises.schedules.jobs
        wrong = faults(operations, may_leave=may_leave, scheduled=scheduled)
        wrong += pool_faults(self._cluster.clients.requests)
        if wrong:
            raise Contradiction(f"clients saw: {wrong[:3]}")


def _beside(clients: Clients) -> list[Operation]:
    """Return the stops outside of the history; they explain what others see of a job."""
    noted = {id(operation): None for operation in clients.history}
    found = []
    for request in clients.requests:
        operation = request.operation
        if isinstance(request.message, StopJob) and id(operation) not in noted:
            stop = Operation(
                operation.client, Asked.STOP_SOME, job=operation.job, begun_s=operation.begun_s
            )
            if operation.ended_s is not None:
                stop.end(operation.answer, operation.ended_s)
            found.append(stop)
    return found


def quiet(view: ClusterView) -> None:
    """Check that all ledgers agree, and nobody waits for free resources. Raises `Contradiction`."""
    root_has_what_hosts_have(view)
    lots_equal_the_tasks(view)
    tallies_equal_the_tasks(view)
    hosts_keep_their_capacity(view)
    hosts_keep_their_slack(view)
    ledgers_equal_the_machines(view)
    every_process_is_intended(view)
    nobody_waits_who_fits(view)


# ---- single checks ----


def contents(index: Any) -> Any:
    """Return the contents of an index, in a form that can be compared."""
    if isinstance(index, Tree):
        sums = {
            pool: (index.use(pool), index.demand(pool), index.members(pool))
            for pool in sorted(index.pools)
        }
        queues = {pool: [*queue.in_order()] for pool, queue in index.queues.items() if queue}
        children = {pool: dict(below) for pool, below in index.children.items() if below}
        return index.pools, index.lots, children, sums, queues
    assert isinstance(index, Hosts)
    return index.hosts, index.capacity


def held_by(host: Host) -> Resources:
    """Return the resources of all runs that hold any, and the room of volumes."""
    used = Resources()
    for name in sorted(host.volumes):
        used = used + host.volumes[name].config.room
    for pod in sorted(host.runs):
        if host.runs[pod].phase in OCCUPYING:
            used = used + host.runs[pod].resources
    return used


def hosts_keep_their_capacity(view: ClusterView) -> None:
    """Check R9: the ledger of each host adds up, and is within its capacity."""
    for key, host in view.cells("host").items():
        _keeps_its_capacity(key, host)


def _hosts_of_a_shard(shard: ShardId, core: Shard) -> None:  # noqa: ARG001
    """Check R9 for the hosts of one shard, every few frames."""
    for key, state in core.population.cells.items():
        if isinstance(state, Host):
            _keeps_its_capacity(key, state)


def _keeps_its_capacity(key: Key, host: Host) -> None:
    used = held_by(host)
    if used != host.used:
        raise Contradiction(f"R9 {key}: its runs hold {used}, its sum is {host.used}")
    if not used.with_slack(0).within(host.capacity):
        raise Contradiction(f"R9 {key} is over its capacity: {used}")


def hosts_keep_their_slack(view: ClusterView) -> None:
    """Check R9: runs hold no more slack than there is, once others had to end for it."""
    for key, host in view.cells("host").items():
        if host.used.slack - host.capacity.slack >= EPSILON and key not in view.machines.cut_off:
            raise Contradiction(f"R9 {key}: {host.used.slack} of {host.capacity.slack} slack used")


def lots_equal_the_tasks(view: ClusterView) -> None:
    """Check R10, R11: lots have exactly the members whose tasks are admitted or queued."""
    crowds = view.crowds()
    admitted: dict[Key, int] = {}
    waiting: dict[Key, int] = {}
    for key, lot in view.cells("lot").items():
        for found, members in ((admitted, lot.admitted), (waiting, lot.waiting)):
            twice = found.get(lot.crowd, 0) & members.raw
            if twice:
                raise Contradiction(f"R10 {key}: {members_of(twice)} are in two lots")
            found[lot.crowd] = found.get(lot.crowd, 0) | members.raw
    for key in sorted({**admitted, **waiting, **crowds}):
        crowd = crowds.get(key)
        for name, found, admission in (
            ("admitted", admitted, Admission.ADMITTED),
            ("queued", waiting, Admission.QUEUED),
        ):
            there = _where(crowd, admission) if crowd is not None else 0
            leaked, missing = found.get(key, 0) & ~there, there & ~found.get(key, 0)
            if leaked or missing:
                text = f"{members_of(leaked)[:5]} {name} in a lot only"
                raise Contradiction(f"R11 {key}: {text}, {members_of(missing)[:5]} in no lot")


def _where(crowd: Any, admission: Admission) -> int:
    found: int = crowd.where(lambda state: state.admission == admission)
    return found


def tallies_equal_the_tasks(view: ClusterView) -> None:
    """Check that a job's tallies are the states of its tasks, for slices in memory."""
    jobs, crowds = view.cells("job"), view.crowds()
    for key, slice_ in view.cells("slice").items():
        job = jobs.get(slice_.job)
        if job is None or slice_.number not in job.reports:
            continue
        crowd = crowds.get(Key("task" + key[len("slice") :]))
        counts = dict(crowd.count(counted_state)) if crowd is not None else {}
        if slice_.homes is not None:  # its other members are free numbers
            some = crowd.split(slice_.homes.placed.raw) if crowd is not None else ()
            counts = dict(Counter(counted_state(task) for task, raw in some for _ in Bits(raw)))
        tally = dict(job.reports[slice_.number].tally.counts)
        if slice_.homes is None:
            waiting = len(slice_.waiting - slice_.unadded)
            counts = dict(+(Counter(counts) + Counter(INITIALIZED=waiting)))
        if tally != counts:
            raise Contradiction(f"R11 {key}: its job counts {tally}, its tasks are {counts}")


def ledgers_equal_the_machines(view: ClusterView) -> None:
    """Check R11: the runs in the ledgers of hosts are those that really run."""
    for key, host in view.cells("host").items():
        if key in view.machines.cut_off:
            continue
        occupying = sorted(pod for pod in host.runs if host.runs[pod].phase in OCCUPYING)
        real = sorted(run for run, at in view.machines.running.items() if at.host == key)
        if occupying != real:
            raise Contradiction(f"R11 {key}: the ledger holds {occupying}, the machine {real}")
        if host.runs and not occupying:
            raise Contradiction(f"R11 {key} keeps {sorted(host.runs)} that have ended")


def every_process_is_intended(view: ClusterView) -> None:
    """Check R8, R12: every process is an instance's current run, on the host of its task."""
    crowds = view.crowds()
    for run, process in view.machines.running.items():
        if process.host in view.machines.cut_off or run.startswith(FOREIGN_MARK):
            continue  # what a caller launched itself is in its host's ledger only
        job, number, member, count = parts_of(run)
        crowd = crowds.get(crowd_key(job, number))
        task = crowd.state_of(member) if crowd is not None else None
        if crowd is None or task is None or task.run != count or task.state not in ON_HOST:
            raise Contradiction(f"R12 {run} runs on {process.host}, not intended: {task}")
        host = crowd.columns.read("host", member)
        if host != process.host:
            raise Contradiction(f"R9 {run} runs on {process.host}, its task is on {host}")


def nobody_waits_who_fits(view: ClusterView) -> None:
    """Check R15: a pool admits every lot that fits, and an admitted task gets a host that fits."""
    tree = Tree()
    for key, pool in view.cells("respool").items():
        tree.put(key, old=None, new=pool)
    for key, lot in view.cells("lot").items():
        tree.put(key, old=None, new=lot)
    for admission in admissions(tree, now=None):
        raise Contradiction(f"R15 {admission.lot}: {admission.members} fit, and are not admitted")
    slices = view.cells("slice")
    free = {key: host.free for key, host in view.cells("host").items() if _takes(host)}
    for key, crowd in view.crowds().items():
        raw = crowd.where(_waits_for_a_host)
        slice_ = slices.get(slice_of_crowd(key))
        if slice_ is None:
            continue
        for spec, members in crowd.columns.groups("spec", raw):
            row = slice_.specs[spec or 0]
            depends = shape_depends_on_tasks(row.shape) or row.shape.constraint or row.config.ports
            if depends or row.config.volume is not None:
                continue  # only a placer can tell whether it fits; or it may wait for its home
            fits = [key for key, amount in free.items() if row.run.resources.within(amount)]
            if fits:
                text = f"{members_of(members)[:5]} wait for a host, and fit on {fits[:3]}"
                raise Contradiction(f"R15 {key}: {text}")


def _takes(host: Host) -> bool:
    return host.state == HostStates.UP and not host.removed


def _waits_for_a_host(task: Task) -> bool:
    # One that is parked is proposed a host as well, and asks for admission again.
    return task.state == TaskStates.WAITING and task.admission in (
        Admission.ADMITTED,
        Admission.PARKED,
    )


def parts_of(run: str) -> tuple[str, int, int, int]:
    """Return job, slice, member and number of a run, from its id."""
    job, rest = run[:36], run[37:]
    instance, _, count = rest.rpartition("-")
    number, member = divmod(int(instance), SLICE_SIZE)
    return job, number, member, int(count)


def pools_use_what_their_lots_hold(cluster: SimulatedCluster) -> None:
    """Check R10: the use of a pool without children, in its tree, is what its lots hold."""
    occupying = held_by_lots(cluster)
    for core in cluster.world.shards().values():
        for index in core.population.indexes.values():
            if not isinstance(index, Tree):
                continue
            for pool in index.pools:
                used = index.use(pool)
                if not index.children.get(pool) and used != occupying.get(pool, Resources()):
                    raise Contradiction(
                        f"R10 {pool} uses {used}, its lots hold {occupying.get(pool)}"
                    )


def nothing_is_left(cluster: SimulatedCluster, job: Key) -> None:
    """Check R11: a deleted job is found in the journal only."""
    left = [*traces(cluster, job)]
    if left:
        raise Contradiction(f"R11 {job} is deleted: {left[:3]}")


def outcomes_are_true(cluster: SimulatedCluster) -> None:
    """Check R7, R8b: a job counts its instances, each ended as its last run did.

    Jobs are asked as clients do, also those that have left memory. Nothing else may be going on.
    """
    history, stopped = cluster.clients.history, stopped_jobs(cluster)
    for job in dict.fromkeys(each.job for each in history if each.what is Asked.CREATE):
        shown = _answer(cluster, job, query=GetJob())
        if not isinstance(shown, JobView):
            continue
        if job not in stopped:
            ended_by_itself(job, shown)
        views: list[InstanceView] = []
        for number in range(shown.slices):
            every = ListInstances(0, shown.reach)
            part = _answer(cluster, slice_key(job.partition("/")[2], number), query=every)
            views += part if isinstance(part, tuple) else ()
        states = Counter(view.state for view in views)
        if dict(shown.summary.counts) != dict(states):
            text = f"it counts {shown.summary.counts}, its instances are {dict(states)}"
            raise Contradiction(f"R11 {job}: {text}")
        for view in views:
            killed_for_its_time(shown, view, stopped=job in stopped)
            _ended_in_truth(cluster, job, view=view)


def _answer(cluster: SimulatedCluster, to: Key, *, query: Query) -> Any:
    operation = cluster.clients.command("checks", to, message=query)
    cluster.world.run_until(lambda: operation.known, within_s=ANSWER_S_MAX)
    return operation.answer


def _ended_in_truth(cluster: SimulatedCluster, job: Key, *, view: InstanceView) -> None:
    if view.state not in ("SUCCEEDED", "FAILED"):
        return
    run = f"{job.partition('/')[2]}-{view.instance}-{view.run}"
    shown = view.outcome.end.name if view.outcome is not None else view.state
    result = cluster.machines.results.get(run)
    if view.outcome is not None and cluster.machines.has_ended_as(run, view.outcome):
        return
    if view.outcome is not None and view.outcome.reason == UNHEALTHY:
        result = cluster.machines.truth(run)
    if result is None or result.end.name != shown:
        raise Contradiction(f"R8b {run} is shown as {shown}, it ended as {result}")
