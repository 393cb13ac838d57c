"""R35: every matching host that is ready runs one instance of each daemon job; and such jobs.

Turns scenario actions into daemon jobs, hosts that get and lose the label by which some of these
choose, and maintenance of hosts; and a cluster in a calm into one in which each such job was seen
on every host that is for it, or a `Contradiction`: two on one host, or one on a host that is not
for it. The jobs are stopped then: a storm ends only when nothing runs. The code by which
inventories and slices decide is not used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from peloton.actors.host.messages import CompleteMaintenance, ConfigureHost, StartMaintenance
from peloton.actors.host.stages import Maintenance
from peloton.actors.host.state import Host
from peloton.actors.job.messages import CreateJob, StartInstances, StartJob
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import DAEMON, JobSpec
from peloton.actors.job.state import Job
from peloton.actors.task.messages import SLICE_SIZE
from peloton.chaos.cluster.rules.liveness import reach
from peloton.chaos.cluster.work import lending
from peloton.chaos.cluster.work.drawing import ActionDraw, by_weight
from peloton.chaos.cluster.work.servicing import OPERATOR
from peloton.chaos.cluster.work.workload import client_of, cluster_of, create_job
from peloton.chaos.cluster.world.cluster import NEED, STORM_POOL, SimulatedCluster
from peloton.placement.messages import Constraint, Label
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Storm
from peloton.runtime.vocabulary import Key, Message

SHARE = 0.15
ACTIONS = (2, 8)
PARTS = 2
"""Slices of a daemon job for each inventory."""
MARK = Label("daemons", "yes")
ON_MARKED = Constraint("label", "host", MARK, "greater", 0)
AGAIN_S = 1.0
MAINTAIN = "maintain host"
SETTLED_S = 5.0
"""So long after all are where they should be nothing else is anywhere."""


def daemon_spec(inventories: int, *, marked: bool, first: bool = False) -> JobSpec:
    """Return the spec of a daemon job of a storm."""
    constraint = ON_MARKED if marked else None
    default = TaskConfig(command=Command("x"), resources=NEED, constraint=constraint)
    count = PARTS * inventories * SLICE_SIZE
    return JobSpec(
        "daemon", "me", STORM_POOL, count, default,
        job_type=DAEMON, inventories=inventories, room_first=first,
    )  # fmt: skip


def create_daemons(storm: Storm, action: StormAction) -> None:
    """Create a daemon job, on all hosts or on those with the label."""
    storm.strike(action.name)
    cluster = cluster_of(storm)
    inventories = cluster.world.sizes["hostmgr"]
    spec = daemon_spec(inventories, marked=action.other % 2 == 1, first=action.other % 3 == 0)
    create_job(cluster, action, message=CreateJob(spec))


def change_daemons(storm: Storm, action: StormAction) -> None:
    """Stop a daemon job, start it, or restart it."""
    job, clients = daemon_job_of(storm, action), cluster_of(storm).clients
    if job is None:
        return
    storm.strike(action.name, job)
    if action.other % 3 == 0:
        clients.stop(client_of(action), job)
    else:
        message = StartJob() if action.other % 3 == 1 else StartInstances(again=True)
        clients.change(client_of(action), job, message=message)


def mark_host(storm: Storm, action: StormAction) -> None:
    """Give a host the label, or take it."""
    labels = (MARK,) if action.other % 2 else ()
    cluster = cluster_of(storm)
    setup = cluster.setup
    timeout = setup.unreachable_timeout_s
    message = ConfigureHost(
        setup.host_capacity, labels, cluster.backend.address, unreachable_timeout_s=timeout
    )
    _tell(storm, action, message=message)


def maintain_host(storm: Storm, action: StormAction) -> None:
    """Begin or end the maintenance of a host; never of all.

    There is none in storms whose pools are as large as all hosts: they could not be created
    meanwhile.
    """
    if any(other.name in lending.WORK for other in storm.scenario.actions):
        return
    message = StartMaintenance() if action.other % 2 else CompleteMaintenance()
    _tell(storm, action, message=message, spared=1)


def _tell(storm: Storm, action: StormAction, *, message: Message, spared: int = 0) -> None:
    cluster = cluster_of(storm)
    hosts = cluster.hosts[spared:]
    if not hosts:
        return
    host = hosts[action.which % len(hosts)]
    storm.strike(action.name, host)
    for daemon in cluster.world.living()[:1]:
        daemon.region.tell([Envelope(host, message)])


def daemon_job_of(storm: Storm, action: StormAction) -> Key | None:
    """Return one of the daemon jobs that clients wanted."""
    wanted = dict.fromkeys(_asked_for(cluster_of(storm)))
    return [*wanted][action.which % len(wanted)] if wanted else None


def _asked_for(cluster: SimulatedCluster) -> list[Key]:
    return [
        each.operation.job
        for each in cluster.clients.requests
        if isinstance(each.message, CreateJob) and each.message.spec.is_daemon
    ]


class DaemonsRun:
    """The hosts on which instances of daemon jobs were seen to run since this was made."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._seen: set[tuple[str, Key]] = set()

    def all_seen(self) -> bool:
        """Return whether each job was seen on every host that is for it; called after every step.

        A host in quarantine gets none: its instances wait for longer than a calm takes. Nor does
        one whose instance a client has stopped alone.
        """
        self._seen.update(self._running())
        hosts = self._cluster.cells("host")
        return all(
            (job.key.partition("/")[2], host) in self._seen or self._is_stopped(job, host)
            for job in wanted_jobs(self._cluster)
            for host, state in hosts.items()
            if is_for(job, state) and state.quarantine is None
        )

    def check(self) -> None:
        """Check that no host has two of one job, and none is on a host that is not for it."""
        cluster = self._cluster
        hosts, jobs = cluster.cells("host"), {each.key: each for each in wanted_jobs(cluster)}
        for (name, host), count in Counter(self._running()).items():
            job = jobs.get(Key(f"job/{name}"))
            if job is None:
                continue
            if count > 1:
                raise Contradiction(f"R35 {host} runs {count} instances of {job.key}")
            if not is_for(job, hosts[host]):
                raise Contradiction(f"R35 {host} runs one of {job.key}, and is not for it")

    def _is_stopped(self, job: Job, host: Key) -> bool:
        """Return whether the instance of a job on this host was stopped, and not the job."""
        prefix = f"slice/{job.key.partition('/')[2]}/"
        slices = self._cluster.cells("slice").items()
        found = (
            (one.homes.members.get(host), one.stopped)
            for key, one in slices
            if key.startswith(prefix) and one.homes is not None
        )
        return any(member is not None and member in stopped for member, stopped in found)

    def _running(self) -> list[tuple[str, Key]]:
        running = self._cluster.machines.running.items()
        return [(run.rsplit("-", 2)[0], process.host) for run, process in running]


def is_for(job: Job, host: Host) -> bool:
    """Return whether a daemon job is to have an instance on a host, whatever state that is in."""
    assert job.spec is not None
    marked = job.spec.default.constraint is None or MARK in host.labels
    return marked and not host.removed and host.pool in ("", "default")


def wanted_jobs(cluster: SimulatedCluster) -> list[Job]:
    """Return the daemon jobs that nobody stopped or deleted, as they are at their owners."""
    jobs: list[Job] = [*cluster.cells("job").values()]
    return [each for each in jobs if each.spec and each.spec.is_daemon and not each.is_stopped]


def end_all(cluster: SimulatedCluster, *, within_s: float) -> None:
    """Check R35, in a calm, once every host is up; then an operator stops the daemon jobs."""
    clients, seen = cluster.clients, DaemonsRun(cluster)

    def all_up() -> bool:
        hosts = cluster.cells("host").values()
        up = all(host.maintenance == Maintenance.NONE for host in hosts)
        return up and cluster.world.whole()

    def all_run() -> bool:
        return seen.all_seen() and not clients.waiting and cluster.world.whole()

    reach(cluster, all_up, within_s=within_s)
    if not _asked_for(cluster):
        return
    reach(cluster, all_run, within_s=within_s)
    cluster.world.run_for(SETTLED_S)
    seen.check()
    for job in wanted_jobs(cluster):
        clients.stop(OPERATOR, job.key)


def end_maintenance(cluster: SimulatedCluster, until: float) -> None:
    """Bring every host up again, until then: some drain, and orders of the storm may come late."""
    down = [
        host
        for host, state in cluster.cells("host").items()
        if state.maintenance != Maintenance.NONE
    ]
    for daemon in cluster.world.living()[:1] if down else ():
        daemon.region.tell([Envelope(host, CompleteMaintenance()) for host in down])
    again = cluster.world.now + AGAIN_S
    if again < until:
        cluster.world.later.at(again, lambda: end_maintenance(cluster, until))


WORK: dict[str, Callable[[Storm, StormAction], None]] = {
    "create daemons": create_daemons,
    "change daemons": change_daemons,
    "mark host": mark_host,
    MAINTAIN: maintain_host,
}
WEIGHTS = {"create daemons": 3, "change daemons": 2, "mark host": 4, MAINTAIN: 2}

DRAWN = ActionDraw("daemon jobs", SHARE, ACTIONS, by_weight(WEIGHTS))
