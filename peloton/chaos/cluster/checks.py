"""What must be so in a cluster: always, by the committed facts; and once all is quiet.

Turns a cluster into a `Contradiction` or nothing. The questions of a quiet point are asked of
anything that has cells, crowds and machines (`ClusterView`), so the world of single cores uses
them too. They must not change the cluster, nor take an actor's word for what its children can tell.

    checks = Checks(cluster)      before the first step
    checks.quiet()                when no fault strikes and nothing more is to happen
"""

from __future__ import annotations

from typing import Any

from peloton.actors.host.inventory.state import Hosts
from peloton.actors.host.ledger import HOLDING
from peloton.actors.host.state import Host, HostStates
from peloton.actors.job.kind import FINISHED_JOBS_MAX
from peloton.actors.job.messages import JobCreated, StopJob
from peloton.actors.job.slice.tally import client_state
from peloton.actors.resources import Resources
from peloton.actors.respool.admission import admissions
from peloton.actors.respool.tree import Tree
from peloton.actors.task.messages import SLICE_SIZE, crowd_key, slice_of_crowd
from peloton.actors.task.state import ON_HOST, Admission, Task, TaskStates
from peloton.chaos.cluster.clients import Clients
from peloton.chaos.cluster.cluster import SimulatedCluster
from peloton.chaos.cluster.history import Asked, Operation, faults
from peloton.chaos.cluster.shadow_ledger import ShadowLedger
from peloton.chaos.cluster.view import ClusterView
from peloton.runtime.simulation.checkers import Checkers
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import Key, members_of


class ClusterChecks:
    """All checks of one cluster; the cheap ones run after each step from now on."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.core = Checkers(cluster.world, contents=contents)
        self.ledger = ShadowLedger(cluster.machines)
        self._cluster = cluster
        self.core.hearers.append(self.ledger.hear)
        self._open: list[tuple[int, Operation]] = []
        self._noted = 0
        cluster.world.checks.append(self.step)

    def step(self) -> None:
        """What one step may have broken."""
        self.ledger.step()
        self._nothing_is_said_too_early()

    def _nothing_is_said_too_early(self) -> None:
        """R1: whoever hears "done" is in the journal by then, not soon."""
        history = self._cluster.clients.history
        if self._noted == len(history) and not self._open:
            return
        self._open += enumerate(history[self._noted :], start=self._noted + 1)
        self._noted = len(history)
        still: list[tuple[int, Operation]] = []
        for number, operation in self._open:
            if not operation.known:
                still.append((number, operation))
            elif isinstance(operation.answer, JobCreated):
                _stands(self.ledger, number, operation=operation)
        self._open = still

    def quiet(self) -> None:
        """All of it, at a quiet point."""
        self.core.quiet()
        quiet(self._cluster)
        books_equal_the_actors(self.ledger, self._cluster)
        history = self._cluster.clients.history
        acknowledged_stands(self.ledger, history)
        may_leave = self._cluster.setup.finished_jobs_max < FINISHED_JOBS_MAX
        said = [*history, *_beside(self._cluster.clients)]
        wrong = faults(said, may_leave=may_leave)
        if wrong:
            raise Contradiction(f"clients saw: {wrong[:3]}")


def _beside(clients: Clients) -> list[Operation]:
    """Stops that were said beside the history: what others see of a job follows from them, too."""
    noted = {id(operation): None for operation in clients.history}
    found = []
    for said in clients.said:
        if isinstance(said.message, StopJob) and id(said.operation) not in noted:
            stop = Operation(
                said.operation.client,
                Asked.STOP_SOME,
                job=said.operation.job,
                begun_s=said.operation.begun_s,
            )
            if said.operation.ended_s is not None:
                stop.end(said.operation.answer, said.operation.ended_s)
            found.append(stop)
    return found


def quiet(view: ClusterView) -> None:
    """All books agree with each other, and nobody waits who need not."""
    lots_equal_the_tasks(view)
    tallies_equal_the_tasks(view)
    hosts_keep_their_room(view)
    ledgers_equal_the_machines(view)
    every_process_is_intended(view)
    nobody_waits_who_fits(view)


# ---- single questions ----


def contents(index: Any) -> Any:
    """What an index says, in a form that can be compared."""
    if isinstance(index, Tree):
        sums = {pool: (index.use(pool), index.demand(pool)) for pool in sorted(index.pools)}
        queues = {pool: [*queue.in_order()] for pool, queue in index.queues.items() if queue}
        children = {pool: dict(below) for pool, below in index.children.items() if below}
        return index.pools, index.lots, children, sums, queues
    assert isinstance(index, Hosts)
    return index.hosts, index.capacity


def held_by(host: Host) -> Resources:
    """The room of all runs that hold any."""
    used = Resources()
    for pod in sorted(host.runs):
        if host.runs[pod].phase in HOLDING:
            used = used + host.runs[pod].resources
    return used


def hosts_keep_their_room(view: ClusterView) -> None:
    """R9: each ledger adds up, and fits the machine."""
    for key, host in view.cells("host").items():
        used = held_by(host)
        if used != host.used:
            raise Contradiction(f"R9 {key}: the ledger holds {used}, it says {host.used}")
        if not used.within(host.capacity):
            raise Contradiction(f"R9 {key} is over its room: {used}")


def lots_equal_the_tasks(view: ClusterView) -> None:
    """R10, R11: room is held by whom it was admitted to, waited for by who asked, and no other."""
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
        for name, found, room in (
            ("holds room", admitted, Admission.ADMITTED),
            ("waits", waiting, Admission.QUEUED),
        ):
            there = _where_room(crowd, room) if crowd is not None else 0
            leaked, missing = found.get(key, 0) & ~there, there & ~found.get(key, 0)
            if leaked or missing:
                text = f"{members_of(leaked)[:5]} {name} for nobody"
                raise Contradiction(f"R11 {key}: {text}, {members_of(missing)[:5]} in vain")


def _where_room(crowd: Any, room: Admission) -> int:
    found: int = crowd.where(lambda state: state.admission == room)
    return found


def tallies_equal_the_tasks(view: ClusterView) -> None:
    """What a job says of its slices is what they are (of slices that are in memory)."""
    jobs, crowds = view.cells("job"), view.crowds()
    for key, slice_ in view.cells("slice").items():
        job = jobs.get(slice_.job)
        if job is None or slice_.number not in job.reports:
            continue
        crowd = crowds.get(Key("task" + key[len("slice") :]))
        counts = dict(crowd.count(client_state)) if crowd is not None else {}
        if slice_.waiting:
            counts["INITIALIZED"] = counts.get("INITIALIZED", 0) + len(slice_.waiting)
        said = dict(job.reports[slice_.number].tally.counts)
        if said != counts:
            raise Contradiction(f"R11 {key}: its job heard {said}, its tasks are {counts}")


def ledgers_equal_the_machines(view: ClusterView) -> None:
    """R11: what ledgers hold is what runs."""
    for key, host in view.cells("host").items():
        if key in view.machines.cut_off:
            continue
        held = sorted(pod for pod in host.runs if host.runs[pod].phase in HOLDING)
        real = sorted(run for run, at in view.machines.running.items() if at.host == key)
        if held != real:
            raise Contradiction(f"R11 {key}: the ledger holds {held}, the machine {real}")
        if host.runs and not held:
            raise Contradiction(f"R11 {key} keeps {sorted(host.runs)} that nobody knows")


def every_process_is_intended(view: ClusterView) -> None:
    """R8, R12: whatever runs is the current run of an instance that is on that host."""
    crowds = view.crowds()
    for run, process in view.machines.running.items():
        if process.host in view.machines.cut_off:
            continue
        job, number, member, count = parts_of(run)
        crowd = crowds.get(crowd_key(job, number))
        task = crowd.state_of(member) if crowd is not None else None
        if crowd is None or task is None or task.run != count or task.state not in ON_HOST:
            raise Contradiction(f"R12 {run} runs on {process.host}, and nobody wants it: {task}")
        host = crowd.columns.read("host", member)
        if host != process.host:
            raise Contradiction(f"R9 {run} runs on {process.host}, its task is on {host}")


def nobody_waits_who_fits(view: ClusterView) -> None:
    """R15: a pool admits whom it has room for; who is admitted is not left beside an idle host."""
    tree = Tree()
    for key, pool in view.cells("respool").items():
        tree.put(key, old=None, new=pool)
    for key, lot in view.cells("lot").items():
        tree.put(key, old=None, new=lot)
    for admission in admissions(tree):
        raise Contradiction(f"R15 {admission.lot} has room for {admission.members}, not admitted")
    slices = view.cells("slice")
    free = {key: host.free for key, host in view.cells("host").items() if _takes(host)}
    for key, crowd in view.crowds().items():
        raw = crowd.where(_waits_for_a_host)
        slice_ = slices.get(slice_of_crowd(key))
        if slice_ is None:
            continue
        for spec, members in crowd.columns.groups("spec", raw):
            row = slice_.specs[spec or 0]
            if row.shape.constraint is not None or row.shape.ports or row.config.ports:
                continue  # only a placer can tell whether it fits
            fits = [host for host, room in free.items() if row.run.resources.within(room)]
            if fits:
                text = f"{members_of(members)[:5]} wait for a host, and {fits[:3]} have room"
                raise Contradiction(f"R15 {key}: {text}")


def _takes(host: Host) -> bool:
    return host.state == HostStates.UP and not host.removed


def _waits_for_a_host(task: Task) -> bool:
    return task.state == TaskStates.WAITING and task.admission == Admission.ADMITTED


def parts_of(run: str) -> tuple[str, int, int, int]:
    """Job, slice, member and number of a run by its name."""
    job, rest = run[:36], run[37:]
    instance, _, count = rest.rpartition("-")
    number, member = divmod(int(instance), SLICE_SIZE)
    return job, number, member, int(count)


# ---- with the books ----


def books_equal_the_actors(ledger: ShadowLedger, view: ClusterView) -> None:
    """R10: what was written down in all and what is in memory are the same sums."""
    held: dict[Key, Resources] = {}
    for lot in view.cells("lot").values():
        pool, need = lot.shape.pool, lot.shape.resources
        held[pool] = held.get(pool, Resources()) + need.times(len(lot.admitted))
    for pool in sorted({**held, **ledger.use}):
        said, written = held.get(pool, Resources()), ledger.use.get(pool, Resources())
        if said != written:
            raise Contradiction(f"R10 {pool}: its lots hold {said}, its journal says {written}")
    for key, host in view.cells("host").items():
        if host.used != ledger.hosts[key].used:
            raise Contradiction(f"R9 {key} uses {host.used}, not {ledger.hosts[key].used}")


def acknowledged_stands(ledger: ShadowLedger, history: list[Operation]) -> None:
    """R1, R2: who was told "done" finds it in the journal, who was refused does not.

    What a deleted job was asked is forgotten with it, so there a late repeat may be refused.
    """
    for number, operation in enumerate(history, start=1):
        if not operation.known or operation.what in (Asked.GET, Asked.LIST):
            continue
        _stands(ledger, number, operation=operation)


def _stands(ledger: ShadowLedger, number: int, *, operation: Operation) -> None:
    """Clients name the request of an operation by its number in the history."""
    stands = (operation.job, f"{operation.client}-{number}") in ledger.requests_ever
    if isinstance(operation.answer, JobCreated) and not stands:
        raise Contradiction(f"R1 acknowledged, and in no journal: {operation}")
    if operation.refused and stands and operation.job not in ledger.forgotten:
        raise Contradiction(f"R2 refused, and in the journal: {operation}")
