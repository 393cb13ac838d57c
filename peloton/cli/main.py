"""The root of the command line: which nouns there are, and how the program ends.

No noun is imported here, so that the program starts quickly: the table names them, and the first
argument loads one.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence

import click

from peloton import __version__
from peloton.cli.shared import exits
from peloton.cli.shared.lazy import LazyCommand, LazyGroup
from peloton.cli.shared.options import PROGRAM, CliSettings, program
from peloton.printable import escaped, shortened
from peloton.sdk.addresses import PORT, with_port
from peloton.sdk.errors import NO_CONNECTION, PelotonError

NOUNS: dict[str, LazyCommand] = {
    "run": LazyCommand(
        "peloton.cli.jobs.run:run", "Run a command as a job: its output, its exit code."
    ),
    "map": LazyCommand(
        "peloton.cli.jobs.map_:map_", "Run many commands as one job, with progress."
    ),
    "cron": LazyCommand("peloton.cli.jobs.cron:cron", "Run jobs on a schedule."),
    "ps": LazyCommand(
        "peloton.cli.jobs.job_query:query", "List the jobs that match, as `job query`."
    ),
    "logs": LazyCommand(
        "peloton.cli.jobs.job_watch:logs", ("Print what a job writes, as `job logs`.")
    ),
    "kill": LazyCommand("peloton.cli.jobs.job_stop:stop", "Stop a job, as `job stop`."),
    "ls": LazyCommand("peloton.cli.jobs.job_query:query", "As `ps`.", hidden=True),
    "cancel": LazyCommand("peloton.cli.jobs.job_stop:stop", "As `kill`.", hidden=True),
    "version": LazyCommand(
        "peloton.cli.main:version", "Print the version, as --version.", hidden=True
    ),
    "respool": LazyCommand(
        "peloton.cli.cluster.respool:respool", "Manage resource pools: create, update, delete."
    ),
    "pool": LazyCommand("peloton.cli.cluster.pool:pool", "Show pools: entitled, used, waiting."),
    "job": LazyCommand(
        "peloton.cli.jobs.job:job", "Manage jobs: create, get, query, stop, delete."
    ),
    "task": LazyCommand(
        "peloton.cli.jobs.task:task", "Manage instances: list, get, query, logs, stop."
    ),
    "pod": LazyCommand(
        "peloton.cli.services.pod:pod", "Manage single instances: get, restart, events."
    ),
    "update": LazyCommand(
        "peloton.cli.services.update:update",
        "Update services by configs of v0, batch by batch.",
    ),
    "rollback": LazyCommand(
        "peloton.cli.services.stateless_replace:rollback",
        "Give a service its spec before the last update.",
    ),
    "diff": LazyCommand(
        "peloton.cli.services.diff:diff", "Show which instances a spec would change, and how."
    ),
    "host": LazyCommand(
        "peloton.cli.cluster.host:host", "Manage machines: their state, and what is free."
    ),
    "why": LazyCommand(
        "peloton.cli.jobs.ops:why", "Explain why a job or instance is in its state."
    ),
    "plan": LazyCommand(
        "peloton.cli.cluster.plan:plan", ("Show what a job or pool would bring about.")
    ),
    "wait": LazyCommand("peloton.cli.jobs.ops:wait", "Wait for a job to end; exits with its code."),
    "story": LazyCommand("peloton.cli.jobs.ops:story", "Show what an actor did lately, and why."),
    "follow": LazyCommand(
        "peloton.cli.jobs.follow:follow", "Print what happens to a job or pool, live."
    ),
    "watch": LazyCommand(
        "peloton.cli.services.watch:watch", "Print services and their pods as they change."
    ),
    "service": LazyCommand(
        "peloton.cli.services.service:service", "Show where the instances of a service are."
    ),
    "volume": LazyCommand(
        "peloton.cli.jobs.volume:volume", "Manage the volumes of services: list, get, delete."
    ),
    "top": LazyCommand("peloton.cli.cluster.top:top", "Show pools, hosts and jobs, live."),
    "completion": LazyCommand(
        "peloton.cli.completion:completion", "Complete commands in bash, zsh or fish."
    ),
    "admin": LazyCommand("peloton.cli.cluster.admin:admin", "Manage dead letters and lockdowns."),
    "hostmgr": LazyCommand(
        "peloton.cli.cluster.internals:hostmgr", "Show what hosts have free, by resources."
    ),
    "resmgr": LazyCommand(
        "peloton.cli.cluster.internals:resmgr", "List tasks that are active, or wait."
    ),
    "jobmgr": LazyCommand(
        "peloton.cli.cluster.internals:jobmgr", ("List jobs by exact name and labels.")
    ),
}

VERSION_TEXT = "%(prog)s %(version)s"
# How a shell asks what could come next: eval "$(_PELOTON_COMPLETE=bash_source peloton)"
COMPLETE = "_PELOTON_COMPLETE"
EPILOG = """\b
Examples:
  peloton run -- python train.py --seed 1
  peloton map 'python train.py --seed {}' ::: 1 2 3
  peloton job create /default job.yaml
  peloton job query --states RUNNING
  peloton task list JOB
  peloton job stateless create /default service.yaml 0
  peloton why JOB
"""


MEANT = {
    "submit": "job create", "apply": "job create", "sbatch": "job create", "qsub": "job create",
    "describe": "job get", "get": "job get", "show": "job get", "status": "job status",
    "list": "ps", "jobs": "ps", "squeue": "ps", "qstat": "ps", "queue": "ps",
    "stop": "kill", "scancel": "kill", "qdel": "kill", "delete": "job delete", "rm": "job delete",
    "srun": "run", "exec": "run", "queues": "pool", "pools": "pool", "quota": "pool",
    "nodes": "host", "hosts": "host", "sinfo": "host", "node": "host", "drain": "host maintenance",
    "events": "story", "schedule": "cron",
    "scale": "job stateless replace", "tail": "logs", "log": "logs", "explain": "why",
}  # fmt: skip
"""What others call our commands: a word of Slurm, Kubernetes, Nomad or a person."""


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(VERSION_TEXT % {"prog": PROGRAM, "version": __version__})


def root(processes: Mapping[str, LazyCommand]) -> click.Group:
    """Return the whole program; `processes` are the commands that are not calls to a cluster."""
    group = LazyGroup(
        name=PROGRAM,
        table=dict(processes) | NOUNS,
        meant=MEANT,
        help="One scheduler for batch jobs and services.",
        epilog=EPILOG,
        context_settings={
            "help_option_names": ["-h", "--help"],
            "obj": CliSettings(job_ids=job_ids, active_names=active_names),
        },
        no_args_is_help=True,
    )
    return click.version_option(__version__, message=VERSION_TEXT)(group)


def active_names(beginning: str) -> list[str]:
    """Return names of active jobs with this beginning."""
    from peloton.cli.shared import names

    return names.active_names(beginning)


def job_ids(typed: Sequence[str], *, changes: bool, latest: bool) -> tuple[str, ...]:
    """Return the ids of the jobs that were typed.

    The modules for it are loaded only when a command names a job.
    """
    from peloton.cli.shared import names

    return names.job_ids(typed, changes=changes, latest=latest)


def run_cli(group: click.Group, args: Sequence[str] | None = None) -> int:
    """Run one command line; return the exit code.

    Failures are printed on stderr, each in one line.
    """
    settings: CliSettings = group.context_settings["obj"]
    settings.own_failure = None
    try:
        code = invoke(group, sys.argv[1:] if args is None else list(args))
        if sys.stdout is not None:  # a program may be started without one
            sys.stdout.flush()
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return exits.INTERRUPTED
    except BrokenPipeError:
        # The reader had enough (`| head`). What Python still wants to flush would fail as well.
        discard_stdout()
        return exits.OK
    except FAILURES as error:
        code = failure(group, error)
        return code if settings.own_failure is None else settings.own_failure
    return code if isinstance(code, int) else exits.OK


FAILURES = (click.ClickException, PelotonError, OSError, RecursionError, UnicodeEncodeError)
"""What `failure` has a line for; all else is a bug, and a traceback."""


def failure(group: click.Group, error: Exception) -> int:
    """Print a failure in one line; return the exit code."""
    if isinstance(error, click.ClickException):
        error.show()
        return exits.USAGE if isinstance(error, click.UsageError) else exits.SERVER_ERROR
    if isinstance(error, PelotonError):
        click.echo(escaped(shortened(str(error))), err=True)
        if error.kind == NO_CONNECTION:
            click.echo(whether_it_runs(group), err=True)
        return exits.of_error(error)
    if isinstance(error, OSError):
        # A full disk behind `>`, a file that vanished: the world's fault, in one line.
        discard_stdout()
        where = f"{error.filename}: " if error.filename is not None else ""
        click.echo(escaped(f"{PROGRAM}: {where}{error.strerror or error}"), err=True)
        return exits.SERVER_ERROR
    if isinstance(error, UnicodeEncodeError):
        # An argument that is not UTF-8: Python keeps its bytes, but they cannot be sent.
        click.echo(f"{PROGRAM}: {error.object!a} is not valid UTF-8", err=True)
        return exits.USAGE
    if isinstance(error, RecursionError):
        click.echo(f"{PROGRAM}: the input is nested too deep", err=True)
        return exits.BAD_SPEC
    raise error


def discard_stdout() -> None:
    """Redirect stdout to /dev/null: Python's flush at exit would fail as well."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def whether_it_runs(group: click.Group) -> str:
    """Return the hint for a refused connection, for a fleet or for a minicluster."""
    settings: CliSettings = group.context_settings["obj"]
    api = settings.values.get("api") or ""
    if settings.values.get("zk_servers") or settings.values.get("cluster_name") or "," in api:
        return "are the daemons running? each prints `ready: grpc` when it serves"
    typed = settings.typed.get("--api", "")
    if typed:
        with contextlib.suppress(ValueError):
            typed = with_port(typed.strip(), PORT)
    address = ["--grpc", typed] if typed else []
    return (
        f"is it running? `{shlex.join([*program(), 'minicluster', *address])}` starts one here, "
        f"`{shlex.join([*program(), 'daemon', '--config', 'FILE'])}` one of your settings"
        f"{settings.without_cluster}"
    )


def invoke(group: click.Group, args: list[str]) -> object:
    """Do what click's own main does, without its handling of exits."""
    shell = os.environ.get(COMPLETE)
    if shell:
        from click.shell_completion import shell_complete

        return shell_complete(group, {}, PROGRAM, COMPLETE, shell)
    with group.make_context(PROGRAM, args) as context:
        return group.invoke(context)
