"""`peloton host`: the machines of the cluster.

Draining a host is in `host_maintenance`. Only an operator removes a host: during a rolling restart
the configs of daemons differ, so a missing host may not be gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from peloton.cli.cluster.host_names import host_typed
from peloton.cli.shared import table
from peloton.cli.shared.dry_run import dry_run_option, host_named, would
from peloton.cli.shared.lazy import LazyCommand, LazyGroup
from peloton.cli.shared.options import CliSettings, OwnCommand
from peloton.cli.shared.output import OutputForms, command, hint, pick, show
from peloton.cli.shared.session import connected, refusal_texts
from peloton.cli.shared.times import moment_text
from peloton.cli.shared.unimplemented import entries
from peloton.cli.shared.watching import watched
from peloton.sdk.errors import Conflict

if TYPE_CHECKING:
    from peloton.sdk.client import Client

HEADER = (
    "Host", "State", "Runs", "CPU Free", "Memory Free MB", "Disk Free MB", "GPU Free",
    "Slack Free", "Why",
)  # fmt: skip

NO_HOSTS = (
    "see the daemon's /health for the reason (at the address it prints after `ready: http`), for "
    "hosts of Mesos also `peloton doctor --mesos FILE`"
)
RUN_HEADER = ("Pod", "Phase", "Since", "CPU", "Slack", "Memory MB", "Disk MB", "GPUs", "Ports")

MAINTENANCE = "peloton.cli.cluster.host_maintenance"

host = LazyGroup(
    name="host",
    help="Manage the machines of the cluster.",
    table={
        "list": LazyCommand(f"{__name__}:list_", "List hosts: state, free of total, what runs."),
        "show": LazyCommand(f"{__name__}:show_", "Show one host: its runs, and what they hold."),
        "query": LazyCommand(f"{MAINTENANCE}:query", "List hosts by state: up, draining, down."),
        "maintenance": LazyCommand(
            f"{MAINTENANCE}:maintenance", "Take a host down, and use it again."
        ),
        "forget": LazyCommand(f"{__name__}:forget", "Remove a host from the cluster."),
    }
    | entries("pool"),
)


@click.command("list", cls=OwnCommand)
@watched
def list_() -> None:
    """List the hosts: their state, how much of what they have is free, and how many runs they hold.

    `2.5 of 4` means 2.5 free of 4 in all. Slack is cpu for revocable jobs.
    """
    with connected() as peloton:
        answer = peloton.ops.hosts()
    show(
        OutputForms(
            answer,
            header=HEADER,
            rows=lambda: map(row, answer.hosts),
            names=lambda: [one.name for one in answer.hosts],
            nothing="No hosts.",
            compact=True,
        )
    )
    settings = click.get_current_context().ensure_object(CliSettings)
    if not answer.hosts and settings.output in (None, "", "table", "wide"):
        hint(NO_HOSTS)


def row(one: Any) -> Sequence[object]:
    free, total = one.free, one.capacity
    return (
        one.name, one.state, one.runs, share(free.cpu, total.cpu),
        share(free.memory_mb, total.memory_mb), share(free.disk_mb, total.disk_mb),
        share(free.gpu, total.gpu) if total.gpu else "",
        share(free.slack, total.slack) if total.slack or free.slack else "", one.text,
    )  # fmt: skip


def share(free: float, total: float) -> str:
    return f"{free:.10g} of {total:.10g}"


@click.command("show", cls=OwnCommand)
@click.argument("name")
@click.option(
    "--limit", type=click.IntRange(1, 1_000), help="Show at most this many runs. Default 1,000."
)
@watched
def show_(name: str, limit: int | None) -> None:
    """Show the host NAME: its state, what is free, its labels, and each run with what it holds.

    Gpus are the indices of the devices that are the run's own.

    \b
    peloton host show rack7-12
    """
    with connected() as peloton, host_typed(peloton, name):
        answer = peloton.ops.host(name, limit=limit or 0)
    show(
        OutputForms(
            answer,
            lines=tuple(host_lines(answer)),
            names=lambda: [run.pod for run in answer.runs],
        )
    )


def host_lines(answer: Any) -> Iterator[str]:
    """Yield the description of a host, and a table of its runs."""
    for title, cell in zip(HEADER, row(answer.host), strict=True):
        if cell:
            yield f"{title}: {cell}"
    labels = [f"{key}={value}" for key, value in sorted(answer.host.attributes.items())]
    if labels:
        yield f"Labels: {', '.join(labels)}"
    if answer.runs:
        rows = [run_row(run) for run in answer.runs]
        used = [at for at in range(len(RUN_HEADER)) if any(str(one[at]) for one in rows)]
        yield ""
        # A line break within a line would be printed as its escape.
        yield from table.render(pick(RUN_HEADER, used), [pick(one, used) for one in rows]).split(
            "\n"
        )
    if answer.more:
        yield f"and {answer.more} more runs"


def run_row(run: Any) -> Sequence[object]:
    given = run.resources
    return (
        run.pod, run.phase, moment_text(run.since), f"{given.cpu:.10g}",
        f"{given.slack:.10g}" if given.slack else "", f"{given.memory_mb:.10g}",
        f"{given.disk_mb:.10g}", " ".join(map(str, run.gpus)), " ".join(map(str, run.ports)),
    )  # fmt: skip


@click.command(cls=OwnCommand)
@click.argument("name")
@click.option(
    "--lose-runs", is_flag=True, help="Remove it even if it still has runs: they become LOST."
)
@dry_run_option
def forget(name: str, lose_runs: bool, dry_run: bool) -> None:
    """Remove the host NAME from the cluster.

    Nothing is placed there from now on. With --lose-runs the runs there become LOST, and are
    retried on other hosts if their jobs allow it. First remove the host from the configs of all
    daemons: the next daemon that starts with it in its config restores it.

    \b
    peloton host forget rack7-12
    """
    texts = {"FAILED_PRECONDITION": "{m}: `{again}` gives them up"}
    with (
        connected() as peloton,
        host_typed(peloton, name),
        refusal_texts(texts, again=command("host", "forget", name, "--lose-runs")),
    ):
        if dry_run:
            would_forget(peloton, name, lose_runs=lose_runs)
            return
        answer = peloton.ops.forget_host(name, lose_runs=lose_runs)
    text = f"removed host {name}"
    if answer.runs_lost:
        text += f"; its {answer.runs_lost} runs are LOST"
    show(OutputForms(answer, text=text, names=lambda: [name]))
    hint("a daemon that starts with it in its config restores it")


def would_forget(peloton: Client, name: str, *, lose_runs: bool) -> None:
    """Say whether the host would be removed, and what would be lost."""
    known = host_named(peloton, name)
    if known.runs and not lose_runs:
        raise Conflict(f"host {name} holds {known.runs} runs", kind="FAILED_PRECONDITION")
    lost = f"; its {known.runs} runs would be LOST" if known.runs else ""
    would(f"would remove host {name}, which is {known.state}{lost}", names=[name])
