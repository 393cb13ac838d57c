"""The embedded cluster: one process, all roles, virtual hosts.

Turns options into the settings of a daemon that is alone, and runs it in the foreground. On SIGTERM
it stops taking turns, commits what is in flight and exits within ten seconds; tasks keep running,
unless it was asked to end them. It listens on loopback only: callers may be anybody on the machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from peloton.assembly.machine import this_machine
from peloton.settings import config
from peloton.settings.config import Address, BadSetting, HostSetting
from peloton.settings.daemon import DaemonSettings, parse
from peloton.settings.notify import LOOPBACK
from peloton.settings.start_options import SettingNames, StartOptions

SIZES = ("cpus", "memory_mb", "disk_mb")
HOST_OPTIONS = ("hosts", *(f"host_{name}" for name in SIZES))
TOY_HOSTS = 3
"""Where nothing real runs, the size of this machine means nothing."""
USAGE, FAILED, TASKS_LEFT = 64, 70, 1
CLUSTER, KEEPER = "minicluster", "keeper"
"""The cluster's name in its journal, and the keeper's folder in the data folder."""
PREEMPTION_AFTER = "30s"
"""A person at a terminal waits for less than a fleet does."""
NAMES = SettingNames(
    process="minicluster",
    grpc="--grpc",
    http="--http",
    data_folder="--data-dir",
    keeper_folder="--data-dir",
    backend="--backend",
    other_backend="Start it with --backend {known}, or name another --data-dir; --fresh begins "
    "anew, and ends all tasks of the old cluster",
    other_keeper="--fresh starts empty, and kills all tasks of the old cluster",
    other_ports="Stop it, or start a second one with --grpc, --http and --data-dir of its own",
    no_journal="Put the newest copy of it back; --fresh begins anew, and ends all tasks",
)


def command() -> click.Command:
    return minicluster


@click.command()
@click.option(
    "--hosts",
    type=click.IntRange(1, config.HOSTS_MAX),
    help="Make this many virtual hosts, whatever this machine has: of 4 cpus, 2048 MB of memory, "
    "20000 MB of disk each.  [default: one host, this machine; simulated: 3]",
)
@click.option("--host-cpus", type=float, help="CPUs per host.")
@click.option("--host-memory-mb", type=float, help="Memory per host.")
@click.option("--host-disk-mb", type=float, help="Disk per host.")
@click.option(
    "--cluster",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML file with `hosts`, their names, sizes and attributes, and with any other setting "
    "of a daemon that a minicluster shall have (examples/daemon.yaml).",
)
@click.option(
    "--backend",
    type=click.Choice(["process", "simulated"]),
    help="Run real processes, or only pretend.  [default: process]",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the journal and the sandboxes here.  [default: in the user's data folder]",
)
@click.option(
    "--fresh",
    is_flag=True,
    help="Delete all jobs and pools, kill the tasks that still run, and start empty.",
)
@click.option(
    "--adopt-copy",
    is_flag=True,
    help="Make a copied data folder another cluster; what runs there is with the original.",
)
@click.option(
    "--accept-rollback",
    is_flag=True,
    help="Go on with a journal that lacks what it had acknowledged: give up what is missing, kill "
    "unknown runs.",
)
@click.option("--grpc", metavar="ADDRESS", help=f"[default: {config.GRPC_DEFAULT}]")
@click.option("--http", metavar="ADDRESS", help=f"[default: {config.HTTP_DEFAULT}]")
@click.option(
    "--open-loopback",
    is_flag=True,
    help="Serve all users of this machine, also clients that know no token, such as the "
    "original's. Each of them can run commands as you.",
)
@click.option("--no-classic-ports", is_flag=True, help="Do not listen on 5391, 5392 and 5394.")
@click.option(
    "--stop-tasks-on-exit",
    is_flag=True,
    help="Kill all tasks at exit; they become KILLED, and `peloton why` shows the reason.",
)
@click.option("--check", is_flag=True, help="Only list everything that would prevent the start.")
def minicluster(check: bool, **options: Any) -> None:
    """Run a whole cluster in this process, in the foreground.

    Its first start makes the pool /default over all of it.

    \b
    peloton minicluster
    peloton minicluster --hosts 10 --host-cpus 8
    peloton minicluster --cluster examples/minicluster.yaml
    """
    try:
        settings, start = _settings(options), _start_options(options)
    except BadSetting as error:
        for text in error.texts:
            click.echo(f"peloton minicluster: {text}", err=True)
        sys.exit(USAGE)
    if check:
        sys.exit(_check(settings, start))
    sys.exit(_run(settings, start, again=lambda: _settings(options)))


def _settings(options: Mapping[str, Any]) -> DaemonSettings:
    """Return the settings of the daemon in options and file. Raises BadSetting with the
    problems."""
    file = options["cluster"]
    told = config.read_yaml(file, "--cluster") if file is not None else {}
    listen = _listen(options)
    folder = (options["data_dir"] or config.default_data_dir()).absolute()
    kind = "simulated" if "simulated" in _section(told, "backend") else "process"
    kind = options["backend"] or kind
    try:
        if isinstance(told, dict):
            told = _merged(_preset(options, told, kind=kind, folder=folder), told)
            told = _merged(told, {"listen": listen})
        settings = parse(told, folder if file is None else file.parent)
        for name in ("grpc", "http"):
            config.loopback(getattr(settings.listen, name), f"listen.{name}")
        return settings
    except BadSetting as error:
        texts = [text.replace(f"backend.{kind}.hosts", "hosts") for text in error.texts]
        for name in listen:
            texts = [text.replace(f"listen.{name}", f"--{name}") for text in texts]
        if file is not None:
            texts = [f"--cluster: {file}: {text}" for text in config.with_lines(file, texts)]
        raise BadSetting(*texts) from None


def _listen(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of `listen` that was typed."""
    doors = {name: options[name] for name in ("grpc", "http") if options[name] is not None}
    for name, address in doors.items():
        config.loopback(address, f"--{name}")
    return doors | ({"open_loopback": True} if options["open_loopback"] else {})


def _section(told: Any, name: str) -> dict[str, Any]:
    """Return a mapping of a file; empty if there is none."""
    found = told.get(name) if isinstance(told, dict) else None
    return found if isinstance(found, dict) else {}


def _preset(
    options: Mapping[str, Any], told: dict[str, Any], *, kind: str, folder: Path
) -> dict[str, Any]:
    """Return the defaults of a minicluster; `hosts` is taken out of the file."""
    if "journal" in told:
        raise BadSetting("journal: a minicluster keeps it in --data-dir")
    typed = [name for name in HOST_OPTIONS if options[name] is not None]
    if typed and ("hosts" in told or "hosts" in _section(_section(told, "backend"), kind)):
        flag = typed[0].replace("_", "-")
        raise BadSetting(f"hosts: not together with --{flag}")
    backend = {
        "hosts": told.pop("hosts") if "hosts" in told else _hosts(options, kind, folder=folder)
    }
    return {
        "cluster": CLUSTER,
        "journal": {"sqlite": {"folder": str(folder)}},
        "preemption": {"after": PREEMPTION_AFTER},
        "notify": {"allow": [LOOPBACK]},
        "backend": {
            kind: backend | ({"folder": str(folder / KEEPER)} if kind == "process" else {})
        },
    }


def _merged(base: Any, over: Any) -> Any:
    """Return the second, with what only the first has in its mappings."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return base | {name: _merged(base.get(name), value) for name, value in over.items()}


def _hosts(options: Mapping[str, Any], kind: str, *, folder: Path) -> Any:
    """Return the hosts of the options, in the form of a file."""
    size, count = HostSetting(name="size"), options["hosts"] or TOY_HOSTS
    if options["hosts"] is None and kind == "process":
        size, count = this_machine(folder), 1
    given = {name: options[f"host_{name}"] for name in SIZES}
    typed = {name: amount for name, amount in given.items() if amount is not None}
    return config.hosts_alike(count, size, **typed)


def _start_options(options: Mapping[str, Any]) -> StartOptions:
    classic: list[Address] = []
    if not options["no_classic_ports"]:
        classic = [Address("127.0.0.1", port) for port in config.CLASSIC_PORTS.values()]
    return StartOptions(
        adopt_copy=options["adopt_copy"],
        fresh=options["fresh"],
        all_or_nothing=True,
        stop_tasks=options["stop_tasks_on_exit"],
        accept_rollback=options["accept_rollback"],
        classic=classic,
        names=NAMES,
        default_pool=True,
    )


def _check(settings: DaemonSettings, start: StartOptions) -> int:
    """Print everything that would prevent the start; return the exit code."""
    from peloton.assembly.task_limits import machine_text
    from peloton.processes.foreground import CANNOT_START
    from peloton.processes.preflight import of_daemon, soon_over

    found = of_daemon(settings, start)
    for text in found:
        click.echo(f"peloton minicluster: {text}", err=True)
    for text in soon_over(settings):
        click.echo(f"peloton minicluster: warning: {text}", err=True)
    if found:
        return CANNOT_START
    click.echo(f"{_hosts_text(settings)}, data in {_data_folder(settings)}")
    if settings.backend.process is not None:
        click.echo(machine_text())
    return 0


def _hosts_text(settings: DaemonSettings) -> str:
    """Return how many hosts there are, and the size of the first."""
    hosts = settings.backend.hosts
    count = "1 host" if len(hosts) == 1 else f"{len(hosts)} hosts"
    one = hosts[0]
    gpus = f", {one.gpus:g} gpus" if one.gpus else ""
    like = (
        ""
        if all(host.cpus == one.cpus and host.memory_mb == one.memory_mb for host in hosts)
        else "the first "
    )
    return f"{count} ({like}{one.cpus:g} cpus, {one.memory_mb:g} MB of memory{gpus})"


def _data_folder(settings: DaemonSettings) -> Path:
    assert settings.journal.sqlite is not None
    return settings.journal.sqlite.folder


def _run(
    settings: DaemonSettings, start: StartOptions, *, again: Callable[[], DaemonSettings]
) -> int:
    """Start, print the addresses, wait for a signal, stop; return the exit code."""
    # Heavy imports wait until the options are known to be right.
    from peloton.assembly.daemon import Daemon
    from peloton.processes.foreground import ProcessTexts, run_process

    def greet(cluster: Daemon) -> None:
        click.echo(f"data: {_data_folder(settings)}", err=True)
        click.echo(f"hosts: {_hosts_text(settings)}", err=True)
        click.echo(f"ready: http {cluster.http}", err=True)
        click.echo(cluster.ready_text)

    manner = ProcessTexts("peloton minicluster", "stopping", failed=FAILED, left=TASKS_LEFT)
    return run_process(
        lambda failed: Daemon(settings, failed=failed, options=start),
        greet=greet,
        texts=manner,
        reload=lambda cluster: cluster.reload(again),
    )
