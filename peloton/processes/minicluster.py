"""The embedded cluster: one process, all roles, virtual hosts.

Turns options into the settings of a daemon that is alone, and runs it in the foreground. On SIGTERM
it stops taking turns, commits what is in flight and exits within ten seconds; tasks keep running,
unless it was asked to end them. It must never listen on anything but loopback.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
from click.core import ParameterSource

from peloton.assembly.machine import this_machine
from peloton.processes import archive_options as kept
from peloton.processes.gpu_option import auto_gpus, gpu_option, sizes_given, with_model
from peloton.processes.host_part_options import host_part_options
from peloton.processes.notify_options import notify_of, notify_options
from peloton.processes.sandbox_options import TypedSandboxes, sandbox_options, sandboxes_of
from peloton.processes.secret_options import secrets_key_option, secrets_of
from peloton.settings import config
from peloton.settings.access import AccessSetting
from peloton.settings.backend import (
    IMAGES_MODES,
    LIMITS_MODES,
    TASK_PIDS,
    TASK_PIDS_MAX,
    BackendSetting,
    ProcessBackendSettings,
    SimulatedBackendSettings,
)
from peloton.settings.config import Address, BadSetting, HostSetting
from peloton.settings.daemon import DaemonSettings, JournalSetting, Listen, Sqlite
from peloton.settings.permissions_file import read_access
from peloton.settings.start_options import SettingNames, StartOptions

SIZES = ("cpus", "memory_mb", "disk_mb", "gpus", "revocable_cpus")
SIZE_OPTIONS = ("hosts", *(f"host_{name}" for name in SIZES))
TOY_HOSTS = 3
"""Where nothing real runs, the size of this machine means nothing."""
USAGE, FAILED, TASKS_LEFT = 64, 70, 1
DURATION_S_MAX = 1e9
CLUSTER, KEEPER = "minicluster", "keeper"
"""The cluster's name in its journal, and the keeper's folder in the data folder."""
NAMES = SettingNames(
    process="minicluster",
    grpc="--grpc",
    http="--http",
    data_folder="--data-dir",
    keeper_folder="--data-dir",
    task_user="--task-user",
    limits="--limits",
    images="--images",
    backend="--backend",
    other_backend="Start it with --backend {known}, or name another --data-dir; --fresh begins "
    "anew, and ends all tasks of the old cluster",
    other_keeper="--fresh starts empty, and kills all tasks of the old cluster",
    other_ports="Stop it, or start a second one with --grpc, --http and --data-dir of its own",
    no_journal="Put the newest copy of it back; --fresh begins anew, and ends all tasks",
)
Made = TypeVar("Made")


def command() -> click.Command:
    """`peloton minicluster`."""
    return minicluster


@click.command()
@click.option(
    "--hosts",
    type=int,
    help="Make this many virtual hosts, whatever this machine has: of 4 cpus, 2048 MB of memory, "
    "20000 MB of disk, no gpu each.  [default: one host, this machine; simulated: 3]",
)
@click.option("--host-cpus", type=float, help="CPUs per host.")
@click.option("--host-memory-mb", type=float, help="Memory per host.")
@click.option("--host-disk-mb", type=float, help="Disk per host.")
@gpu_option
@host_part_options
@click.option(
    "--cluster",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML file with names, sizes and attributes of the hosts, instead of the above.",
)
@click.option(
    "--backend", type=click.Choice(["process", "simulated"]), default="process", show_default=True
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
@sandbox_options
@kept.archive_options
@kept.quarantine_option
@kept.within_option
@click.option(
    "--task-user",
    default="",
    metavar="NAME",
    help="If this runs as root, run tasks that name no account as this one, not as root.",
)
@click.option(
    "--limits",
    type=click.Choice(LIMITS_MODES),
    default="try",
    show_default=True,
    help="Limit memory, CPU and processes with cgroups: required, if available, or off",
)
@click.option("--cpu-quota", is_flag=True, help="Cap a task at its cpus, even if others idle.")
@click.option(
    "--task-pids",
    type=int,
    default=TASK_PIDS,
    show_default=True,
    help="Limit the processes and threads of a task; 0: no limit.",
)
@click.option(
    "--images",
    type=click.Choice(IMAGES_MODES),
    default="ignore",
    show_default=True,
    help="Run a task with an image without it, as a container (podman, docker), or let it fail.",
)
@click.option(
    "--accept-rollback",
    is_flag=True,
    help="Go on with a journal that lacks what it had acknowledged: give up what is missing, kill "
    "unknown runs.",
)
@click.option(
    "--access",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML file of permissions per pool (docs/access.md); without one everybody may do all.",
)
@notify_options
@secrets_key_option
@click.option("--grpc", "grpc_", default=config.GRPC_DEFAULT, show_default=True, metavar="ADDRESS")
@click.option("--http", default=config.HTTP_DEFAULT, show_default=True, metavar="ADDRESS")
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
@click.option(
    "--simulated-duration-s",
    type=float,
    default=1.0,
    show_default=True,
    help=("Seconds that a simulated run takes."),
)
@click.option("--simulated-seed", type=int, default=0, show_default=True)
@click.option("--check", is_flag=True, help="Only list everything that would prevent the start.")
def minicluster(**options: object) -> None:
    """Run a whole cluster in this process, in the foreground.

    Its first start makes the pool /default over all of it.

    \b
    peloton minicluster
    peloton minicluster --hosts 10 --host-cpus 8
    peloton minicluster --cluster examples/minicluster.yaml
    """
    check = bool(options.pop("check"))
    try:
        settings, start = _settings(options), _start_options(options)
    except BadSetting as error:
        for text in error.texts:
            click.echo(f"peloton minicluster: {text}", err=True)
        sys.exit(USAGE)
    if check:
        sys.exit(_check(settings, start))
    sys.exit(_run(settings, start, again=lambda: _settings(options)))


def _settings(options: dict[str, object]) -> DaemonSettings:
    """The daemon that the options ask for. Raises BadSetting with all problems."""
    texts: list[str] = []

    def tried(make: Callable[[], Made], instead: Made) -> Made:
        try:
            return make()
        except BadSetting as error:
            texts.extend(error.texts)
            return instead

    nowhere = Address("", 0)
    hosts: list[HostSetting] = tried(lambda: _hosts(options), [])
    grpc = tried(lambda: config.loopback(str(options["grpc_"]), "--grpc"), nowhere)
    http = tried(lambda: config.loopback(str(options["http"]), "--http"), nowhere)
    access: Path | None = tried(lambda: _access(options), None)
    if config.same_port(grpc, http):
        texts.append(f"--http: {http} is --grpc as well")
    duration_s = _number(options, "simulated_duration_s")
    if not 0 <= duration_s < DURATION_S_MAX:
        texts.append(f"--simulated-duration-s: must be ≥ 0, got {duration_s}")
    pids = int(_number(options, "task_pids"))
    if not 0 <= pids <= TASK_PIDS_MAX:
        texts.append(f"--task-pids: {pids} is not between 0 and {TASK_PIDS_MAX}")
    sandboxes = sandboxes_of(options, texts)
    archive, limits = kept.archive_of(options, texts), kept.limits_of(options, texts)
    notify, secrets = notify_of(options, texts), secrets_of(options, texts)
    if texts:
        raise BadSetting(*texts)
    folder = _folder(options)
    return DaemonSettings(
        cluster=CLUSTER,
        journal=JournalSetting(sqlite=Sqlite(folder=folder)),
        listen=Listen(grpc=str(grpc), http=str(http), open_loopback=bool(options["open_loopback"])),
        access=AccessSetting(file=access),
        archive=archive,
        preemption=kept.preemption_of(options),
        limits=limits,
        notify=notify,
        secrets=secrets,
        backend=_backend(options, hosts, folder=folder, sandboxes=sandboxes),
    )


def _backend(
    options: dict[str, object],
    hosts: list[HostSetting],
    *,
    folder: Path,
    sandboxes: TypedSandboxes,
) -> BackendSetting:
    if options["backend"] == "process":
        process = ProcessBackendSettings(
            folder=folder / KEEPER,
            hosts=hosts,
            **sandboxes._asdict(),
            task_user=str(options["task_user"]),
            limits=str(options["limits"]),
            cpu_quota=bool(options["cpu_quota"]),
            task_pids=int(_number(options, "task_pids")),
            images=str(options["images"]),
            measured_slack=bool(options["measured_slack"]),
        )
        return BackendSetting(process=process)
    duration_s = _number(options, "simulated_duration_s")
    seed = int(_number(options, "simulated_seed"))
    simulated = SimulatedBackendSettings(hosts=hosts, duration_s=duration_s, seed=seed)
    return BackendSetting(simulated=simulated)


def _start_options(options: dict[str, object]) -> StartOptions:
    classic: list[Address] = []
    if not options["no_classic_ports"]:
        classic = [Address("127.0.0.1", port) for port in config.CLASSIC_PORTS.values()]
    return StartOptions(
        adopt_copy=bool(options["adopt_copy"]),
        fresh=bool(options["fresh"]),
        all_or_nothing=True,
        stop_tasks=bool(options["stop_tasks_on_exit"]),
        accept_rollback=bool(options["accept_rollback"]),
        classic=classic,
        names=NAMES,
        default_pool=True,
    )


def _folder(options: dict[str, object]) -> Path:
    folder = options["data_dir"]
    return folder if isinstance(folder, Path) else config.default_data_dir()


def _access(options: dict[str, object]) -> Path | None:
    """The file of permissions; it is read here to say now what is wrong with it."""
    file = options["access"]
    if not isinstance(file, Path):
        return None
    read_access(file, "--access")
    return file


def _hosts(options: dict[str, object]) -> list[HostSetting]:
    cluster = options["cluster"]
    if isinstance(cluster, Path):
        _refuse_both()
        return config.less_reserved(config.read_cluster(cluster), _reserved(options))
    count = options["hosts"]
    size, number = HostSetting(name="size"), TOY_HOSTS if count is None else _whole(count)
    if count is None and options["backend"] == "process":
        size, number = this_machine(_folder(options)), 1
    given = sizes_given(options, SIZES) | auto_gpus(options, hosts=number)
    hosts = config.hosts_alike(number, with_model(config.sized(size, given), options))
    config.check_hosts(hosts)
    return config.less_reserved(hosts, _reserved(options))


def _reserved(options: dict[str, object]) -> config.HostReserved:
    """What of each host no task gets."""
    return config.HostReserved(
        cpus=_number(options, "host_reserved_cpus"),
        memory_mb=_number(options, "host_reserved_memory_mb"),
    )


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value


def _number(options: dict[str, object], name: str) -> float:
    value = options[name]
    assert isinstance(value, (int, float))
    return float(value)


def _check(settings: DaemonSettings, start: StartOptions) -> int:
    """Print everything that would prevent the start; the exit code."""
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
    """How many hosts, and the size of the first."""
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


def _refuse_both() -> None:
    """A file of hosts and a size of hosts: one of them would be passed over in silence."""
    context = click.get_current_context()
    for name in SIZE_OPTIONS:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = "--" + name.replace("_", "-")
            raise BadSetting(f"{flag}: not together with --cluster, whose file lists the hosts")


def _run(
    settings: DaemonSettings, start: StartOptions, *, again: Callable[[], DaemonSettings]
) -> int:
    """Start, print the addresses, wait for a signal, stop; the exit code. `again` looks at the
    options and their files once more."""
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
