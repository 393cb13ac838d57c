"""The actions of clients during a storm, by name: create, stop, delete, get, and invalid requests.

Turns a scenario's action into operations of clients. Sizes and choices come from the action's
numbers, so an action means the same whatever else the scenario contains. An answer is judged only
if a single one can be right.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from peloton.actors.job.messages import CreateJob, JobCreated, JobStopped, StopJob
from peloton.actors.job.slice.task_config import Command, Override, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.respool.messages import UpdatePool
from peloton.chaos.cluster.world.cluster import NEED, STORM_POOL, SimulatedCluster
from peloton.chaos.cluster.world.history import TIMED
from peloton.chaos.cluster.world.machines import FAILURE
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import MomentaryFault, Storm
from peloton.runtime.vocabulary import Key, Message, Refused

CLIENTS = ("c1", "c2", "c3")
SIZES = (1, 1, 2, 3, 5, 12)


def cluster_of(storm: Storm) -> SimulatedCluster:
    """Return the cluster that the storm is played on."""
    found = storm.about
    assert isinstance(found, SimulatedCluster)
    return found


def _job(storm: Storm, action: StormAction) -> Key | None:
    jobs = cluster_of(storm).jobs
    return jobs[action.which % len(jobs)] if jobs else None


def client_of(action: StormAction) -> str:
    """Return the client that acts."""
    return CLIENTS[action.other % len(CLIENTS)]


def create_job(cluster: SimulatedCluster, action: StormAction, *, message: CreateJob) -> None:
    """Let a client create a job."""
    cluster.clients.create(client_of(action), cluster.draw_job(), message=message)


def create(storm: Storm, action: StormAction) -> None:
    """Create a job of `count` instances; the action's numbers choose its form."""
    forms: tuple[dict[str, Any], ...] = (
        {},
        {},
        {"max_failures": 3},
        {"max_failures": 1, "kill_grace_s": 2.0},
        {"resources": NEED.times(2)},
    )
    form = forms[action.other % len(forms)]
    cluster_of(storm).create(max(1, action.count), client=client_of(action), **form)


def create_limited(storm: Storm, action: StormAction) -> None:
    """Create a job with a limit of running instances, and one instance with its own config."""
    cluster = cluster_of(storm)
    count = max(2, action.count)
    default = TaskConfig(command=Command("x"), resources=NEED)
    own = Override(count - 1, TaskConfig(command=Command("y"), resources=NEED.times(2)))
    spec = JobSpec(
        "limited",
        "me",
        STORM_POOL,
        count,
        default,
        maximum_running=1 + action.other % 2,
        own_configs=1,
    )
    create_job(cluster, action, message=CreateJob(spec, ((0, (own,)),)))


def create_timed(storm: Storm, action: StormAction) -> None:
    """Create a job whose runs may take a short time, and whose first instance is its controller."""
    cluster = cluster_of(storm)
    count = max(1, action.count)
    default, first = (
        TaskConfig(command=Command("x"), resources=NEED, max_failures=2, controller=controls)
        for controls in (False, True)
    )
    own = Override(0, first)
    spec = JobSpec(
        TIMED,
        "me",
        STORM_POOL,
        count,
        default,
        max_running_time_s=(0.3, 1.0)[action.other % 2],
        own_configs=1,
    )
    create_job(cluster, action, message=CreateJob(spec, ((0, (own,)),)))


def stop(storm: Storm, action: StormAction) -> None:
    """Stop all of a job."""
    job = _job(storm, action)
    if job is not None:
        cluster_of(storm).clients.stop(client_of(action), job)


def stop_some(storm: Storm, action: StormAction) -> None:
    """Stop some instances of a job."""
    job = _job(storm, action)
    if job is not None:
        some = ((0, 1 + action.other % 3),)
        cluster_of(storm).clients.stop_some(client_of(action), job, ranges=some)


def delete(storm: Storm, action: StormAction) -> None:
    """Delete a job, ended or not."""
    job = _job(storm, action)
    if job is not None:
        cluster_of(storm).clients.delete(client_of(action), job)


def look(storm: Storm, action: StormAction) -> None:
    """Get the state of a job."""
    job = _job(storm, action)
    if job is not None:
        cluster_of(storm).clients.get(client_of(action), job)


def list_jobs(storm: Storm, action: StormAction) -> None:
    cluster_of(storm).clients.list_jobs(client_of(action))


WORK: dict[str, Callable[[Storm, StormAction], None]] = {
    "create": create,
    "create limited": create_limited,
    "create timed": create_timed,
    "stop": stop,
    "stop some": stop_some,
    "delete": delete,
    "look": look,
    "list": list_jobs,
}
WEIGHTS = {
    "create": 8, "create limited": 1, "stop": 2, "stop some": 1, "delete": 2, "look": 4,
    "list": 1,
}  # fmt: skip


def drawn(chance: random.Random, *, actions: int, storm_s: float) -> list[StormAction]:
    """Return a workload; the first action always creates a job."""
    names = chance.choices([*WEIGHTS], [*WEIGHTS.values()], k=actions)
    return [
        StormAction(
            at_s=round(chance.uniform(0.0, storm_s if at else 2.0), 3),
            name=name if at else "create",
            which=chance.randrange(1000),
            other=chance.randrange(1000),
            count=chance.choice(SIZES),
        )
        for at, name in enumerate(names)
    ]


def timed(seed: int, *, storm_s: float) -> list[StormAction]:
    """Return jobs with a limit of time; drawn separately, so that older seeds keep their storms."""
    chance = random.Random(f"{seed} timed")
    return [
        StormAction(
            at_s=round(chance.uniform(0.0, storm_s), 3),
            name="create timed",
            which=0,
            other=chance.randrange(1000),
            count=chance.choice(SIZES),
        )
        for _ in range(chance.choice((0, 0, 1, 2)))
    ]


# ---- worse ----


def at_once(storm: Storm, action: StormAction) -> None:
    """Stop, delete and get one job at one instant, by three clients."""
    job = _job(storm, action)
    if job is not None:
        storm.strike(action.name, job)
        clients = cluster_of(storm).clients
        for at in range(3):
            do = (clients.stop, clients.delete, clients.get)[(at + action.other) % 3]
            do(CLIENTS[at], job)


def burst(storm: Storm, action: StormAction) -> None:
    """Create many jobs at one instant."""
    storm.strike(action.name)
    for at in range(action.count):
        cluster_of(storm).create(1, client=CLIENTS[at % 3])


def same_key(storm: Storm, action: StormAction) -> None:
    """Use a request key that created a job with another body, which must be refused."""
    cluster = cluster_of(storm)
    made = [
        each
        for each in cluster.clients.requests
        if isinstance(each.message, CreateJob) and isinstance(each.operation.answer, JobCreated)
    ]
    daemon = storm.daemon(action.other)
    if not made or daemon is None:
        return
    first = made[action.which % len(made)]
    assert first.request is not None
    name = first.request[0]
    storm.strike(action.name, name)

    def answered(future: Future[Any]) -> None:
        if isinstance(future.result(), JobStopped):
            storm.broken.append(f"request {name} created a job, then stopped one")
        elif isinstance(future.result(), Refused):
            storm.strike(f"{action.name}: refused")

    request = (name, b"other")
    future = daemon.region.ask(first.operation.job, StopJob(), request=request)
    future.add_done_callback(answered)


def bad_request(storm: Storm, action: StormAction) -> None:
    """Send a request that must be refused: a job without instances, or an unknown job."""
    clients = cluster_of(storm).clients
    storm.strike(action.name)
    if action.other % 2:
        clients.command("c3", cluster_of(storm).nobody, message=StopJob())
        return
    nothing = JobSpec("j", "me", STORM_POOL, 0, TaskConfig(command=Command("x"), resources=NEED))

    def answered(answer: Any) -> None:
        if not isinstance(answer, Refused):
            storm.broken.append(f"a job without instances was answered with {answer}")

    clients.command("c3", cluster_of(storm).nobody, message=CreateJob(nothing), answered=answered)


def poison(storm: Storm, action: StormAction) -> None:
    """Send a message at which every turn raises; only its actor's mailbox may suffer."""
    job = _job(storm, action)
    daemon = storm.daemon(action.other)
    if job is not None and daemon is not None:
        storm.strike(action.name, job)
        nonsense: Any = ((0,),)
        daemon.region.tell((Envelope(job, StopJob(nonsense)),))


def shrink_pool(storm: Storm, action: StormAction) -> None:
    """Lower the pool's limit while its jobs run, and raise it again later."""
    cluster = cluster_of(storm)
    storm.strike(action.name)
    update_pool(cluster, hosts=max(1, len(cluster.hosts) // 3))
    storm.later(action.for_s, lambda: update_pool(cluster, hosts=len(cluster.hosts)))


def update_pool(cluster: SimulatedCluster, *, hosts: int) -> None:
    """Set the pool's limit to the capacity of so many hosts."""
    config = cluster.pool_config(cluster.setup.host_capacity.times(hosts))
    message: Message = UpdatePool(config, force=True)
    cluster.clients.command("operator", STORM_POOL, message=message)


def crash_program(storm: Storm, action: StormAction) -> None:
    """Let a run fail now, whatever its fate was."""
    machines = cluster_of(storm).machines
    runs = sorted(machines.running)
    if runs:
        run = runs[action.which % len(runs)]
        storm.strike(action.name, run)
        machines.end(run, FAILURE, storm.world.now)


STROKES = (
    MomentaryFault("F44", "all at once", "stop, delete and get at one instant", at_once),
    MomentaryFault("F41", "burst", "many jobs at one instant", burst, 1, (1.0, 1.0), 12),
    MomentaryFault("F22", "same key, other body", "a request key with another body", same_key),
    MomentaryFault("F37", "bad request", "a request that must be refused", bad_request),
    MomentaryFault("F31", "poison", "a message at which every turn raises", poison, 1),
    MomentaryFault("F43", "pool shrinks", "a pool changes with jobs in flight", shrink_pool, 2),
    MomentaryFault("F1", "program crashes", "a run fails", crash_program),
)
