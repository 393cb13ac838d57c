"""`peloton hostmgr`, `resmgr` and `jobmgr`: what the daemons know, with the original's columns."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from peloton.cli.shared.lazy import LazyCommand, LazyGroup
from peloton.cli.shared.options import PelotonCommand
from peloton.cli.shared.output import OutputForms, as_yaml, plain, show
from peloton.cli.shared.session import connected, refusal_texts
from peloton.cli.shared.unimplemented import entries

HOST_HEADER = ("Hostname", "CPU", "GPU", "MEM", "Disk", "State", "Task Hold", "Task Running")
CACHE_HEADER = ("Hostname", "CPU", "GPU", "MEM", "Disk", "Status")
ACTIVE_HEADER = ("TaskID", "State", "Hostname", "Reason", "Last Update Time")
ORPHAN_HEADER = ("TaskID", "Hostname", "CPU", "GPU", "MemoryMB", "DiskMB", "FD")
MESOS_KINDS = ("cpus", "gpus", "mem", "disk")
KINDS = ("cpu", "gpu", "memory", "disk")

hostmgr = LazyGroup(
    name="hostmgr",
    help="Show what hosts have free.",
    table={
        "offers": LazyCommand(f"{__name__}:offers", "Print what each host has free, as an offer."),
        "hosts": LazyCommand(f"{__name__}:hosts", "List hosts by what they have free."),
        "hostcache": LazyCommand(f"{__name__}:hostcache", "List hosts: allocated and capacity."),
    }
    | {
        "events-mesos-update": LazyCommand(
            f"{__name__}:run_events", "Print starts and ends of runs."
        ),
        "events-host-summary": LazyCommand(
            f"{__name__}:host_events", "Print each host as it changes."
        ),
    }
    | {"hostpool": LazyCommand("peloton.cli.cluster.host_pools:hostpool", "Manage pools of hosts.")}
    | entries("disable-kill-tasks"),
)
hostcache = LazyGroup(
    name="hostcache",
    help="Show the hosts as the daemon keeps them.",
    table={"dump": LazyCommand(f"{__name__}:dump", "Print every host.")},
)
resmgr = LazyGroup(
    name="resmgr",
    help="Show tasks as the resource manager has them.",
    table={"tasks": LazyCommand(f"{__name__}:tasks", "List active, pending and orphan tasks.")},
)
tasks = LazyGroup(
    name="tasks",
    help="Show tasks as the resource manager has them.",
    table={
        "active": LazyCommand(f"{__name__}:active", "List tasks that have not ended, by state."),
        "pending": LazyCommand(f"{__name__}:pending", "List who waits in a pool, in order."),
        "orphan": LazyCommand(f"{__name__}:orphan", "List tasks that hold resources twice."),
    },
)
jobmgr = LazyGroup(
    name="jobmgr",
    help="Show jobs as the job manager has them.",
    table={
        "query-job-cache": LazyCommand(
            f"{__name__}:job_cache", ("List jobs by exact name and labels.")
        ),
        "throttled-pods": LazyCommand(
            f"{__name__}:throttled_pods", ("List pods that fail too often.")
        ),
        "instance-availability": LazyCommand(
            f"{__name__}:instance_availability", "List instances that run as they should."
        ),
    },
)


@click.command(cls=PelotonCommand)
def offers() -> None:
    """Print what each host has free as JSON."""
    with connected() as peloton, refusal_texts({"noOffers": "{m}"}):
        answer = peloton.internals.offers()
    names = [offer.hostname for offer in answer.offers]
    show(OutputForms(answer, default="json", names=lambda: names))


@click.command(cls=PelotonCommand)
@click.option("-c", "--cpu", type=float, default=0.0, help="Require this many free cpus.")
@click.option("-g", "--gpu", type=float, default=0.0, help="Require this many free gpus.")
@click.option(
    "--mem", "mem_mb", type=float, default=0.0, help="Require this many MB of free memory."
)
@click.option(
    "--disk", "disk_mb", type=float, default=0.0, help="Require this many MB of free disk."
)
@click.option("-l", "--less", is_flag=True, help="List hosts with at most that much free.")
@click.option("--hosts", "names", default="", help="List only these, separated by commas.")
@click.option("-r", "--includeRevocable", "_revocable", is_flag=True, help="Ignored.")
def hosts(
    cpu: float,
    gpu: float,
    mem_mb: float,
    disk_mb: float,
    less: bool,
    names: str,
    _revocable: bool,
) -> None:
    """List the hosts that have this much free, and how many tasks run on each."""
    from peloton.sdk.internals import FreeAmounts

    free = FreeAmounts(cpu, mem_mb, disk_mb, gpu)
    named = [one.strip() for one in names.split(",") if one.strip()]
    with connected() as peloton:
        answer = peloton.internals.hosts_by_free(free, less=less, names=named)
    show(
        OutputForms(
            answer,
            header=HOST_HEADER,
            rows=lambda: map(host_row, answer.hosts),
            names=lambda: [one.hostname for one in answer.hosts],
            nothing="No hosts found satisfies the requirement",
        )
    )


def host_row(host: Any) -> Sequence[object]:
    free = {one.name: one.scalar.value for one in host.resources}
    amounts = (f"{free.get(kind, 0.0):.2f}" for kind in MESOS_KINDS)
    return (host.hostname, *amounts, host.status, len(host.held_tasks), len(host.tasks))


@click.command("events-mesos-update", cls=PelotonCommand)
def run_events() -> None:
    """Print the starts and ends of runs from now on, a YAML document each, until interrupted."""
    with connected() as peloton:
        print_each(peloton.internals.run_events(), "mesos_task_update")


@click.command("events-host-summary", cls=PelotonCommand)
def host_events() -> None:
    """Print each host that changes from now on, a YAML document each, until interrupted."""
    with connected() as peloton:
        print_each(peloton.internals.host_events(), "hostSummaryEvent")


def print_each(messages: Iterator[Any], field: str) -> None:
    for message in messages:
        if message.HasField(field):
            click.echo("---")
            click.echo(as_yaml(plain(getattr(message, field))), nl=False)
            sys.stdout.flush()


@click.command(cls=PelotonCommand)
def dump() -> None:
    """List every host: what is allocated of what there is, and its status."""
    with connected() as peloton:
        answer = peloton.internals.host_cache()
    show(
        OutputForms(
            answer,
            header=CACHE_HEADER,
            rows=lambda: map(cache_row, answer.summaries),
            names=lambda: [one.hostname for one in answer.summaries],
            nothing="HostCache empty.",
        )
    )


def cache_row(host: Any) -> Sequence[object]:
    used = {one.kind: one.capacity for one in host.allocation}
    total = {one.kind: one.capacity for one in host.capacity}
    shares = (f"{used.get(kind, 0.0):.2f}/{total.get(kind, 0.0):.2f}" for kind in KINDS)
    return (host.hostname, *shares, host.status)


@click.command(cls=PelotonCommand)
@click.option("--job", default="", help="List only tasks of this job.")
@click.option("--respool", default="", help="List only tasks of jobs in the pool with this id.")
@click.option("--states", default="", help="List only tasks in these states, separated by commas.")
def active(job: str, respool: str, states: str) -> None:
    """List the tasks that have not ended."""
    wanted = [one.strip().upper() for one in states.split(",") if one.strip()]
    with connected() as peloton:
        answer = peloton.internals.active_tasks(job=job, pool_id=respool, states=wanted)
    found = [
        one for state in sorted(answer.tasksByState) for one in answer.tasksByState[state].taskEntry
    ]
    show(
        OutputForms(
            answer,
            header=ACTIVE_HEADER,
            rows=lambda: [
                (one.taskID, one.taskState, one.hostname, one.reason, one.lastUpdateTime)
                for one in found
            ],
            names=lambda: [one.taskID for one in found],
        )
    )


@click.command(cls=PelotonCommand)
@click.argument("respool")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=100, help="Print at most this many."
)
def pending(respool: str, limit: int) -> None:
    """Print who waits in the queue of the pool with the id or path RESPOOL."""
    with connected() as peloton:
        pool_id = peloton.pools.lookup(respool) if respool.startswith("/") else respool
        answer = peloton.internals.pending_tasks(pool_id, limit=limit)
    show(OutputForms(answer, default="yaml", names=lambda: waiting_names(answer)))


def waiting_names(answer: Any) -> Iterator[str]:
    for queue in answer.pendingGangsByQueue.values():
        for gang in queue.pendingGangs:
            yield from gang.taskIDs


@click.command(cls=PelotonCommand)
@click.option("--respool", default="", help="List only tasks of the pool with this id.")
def orphan(respool: str) -> None:
    """List the tasks that hold resources under an earlier run; in this implementation none can."""
    with connected() as peloton:
        answer = peloton.internals.orphan_tasks(respool)
    show(OutputForms(answer, header=ORPHAN_HEADER, rows=lambda: (), names=lambda: ()))


@click.command("query-job-cache", cls=PelotonCommand)
@click.option(
    "-l",
    "--labels",
    default="",
    help="List jobs with these labels: key=value, separated by commas.",
)
@click.option("-n", "--name", default="", help="The exact name.")
def job_cache(labels: str, name: str) -> None:
    """Print the ids and names of jobs."""
    pairs = [one.partition("=") for one in labels.split(",") if one.strip()]
    for key, equals, _ in pairs:
        if not equals or not key.strip():
            raise click.UsageError(f"--labels: {key!r} is not key=value")
    with connected() as peloton:
        wanted = {key.strip(): value.strip() for key, _, value in pairs}
        answer = peloton.internals.job_cache(name=name, labels=wanted)
    if not answer.result:
        show(OutputForms(answer, text="No result"))
        return
    show(OutputForms(answer, default="yaml", names=lambda: [o.job_id.value for o in answer.result]))


@click.command("throttled-pods", cls=PelotonCommand)
def throttled_pods() -> None:
    """Print the pods of services that fail too often to be started again at once."""
    with connected() as peloton:
        answer = peloton.internals.throttled_pods()
    names = [one.value for one in answer.throttled_pods]
    show(OutputForms(answer, default="yaml", names=lambda: names))


@click.command("instance-availability", cls=PelotonCommand)
@click.argument("job")
@click.option("-i", "--instances", default="", help="List only these, separated by commas.")
def instance_availability(job: str, instances: str) -> None:
    """Print which instances of the job JOB run as they should."""
    words = [one.strip() for one in instances.split(",") if one.strip()]
    for word in words:
        if not (word.isascii() and word.isdigit() and int(word) < 1 << 32):
            raise click.UsageError(f"--instances: {word!r} is not an instance number")
    with connected() as peloton:
        answer = peloton.internals.availability(job, [*map(int, words)])
    found = answer.instance_availability_map
    show(OutputForms(answer, default="yaml", names=lambda: [str(one) for one in sorted(found)]))
