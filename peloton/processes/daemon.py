"""One daemon of a cluster, in the foreground: `peloton daemon --config FILE`.

Turns a file into a running daemon. Wiring is the affair of `assembly`, signals are that of
`foreground`; here is only what a person at a terminal, or a supervisor of processes, sees. On
SIGTERM the daemon hands its shards over and exits 0; on SIGHUP it reads its files anew; a daemon
that fails exits 1 and prints the reason. It is restarted by its supervisor, never by itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from peloton.settings.config import BadSetting
from peloton.settings.daemon import DaemonSettings, read_settings
from peloton.settings.start_options import StartOptions

USAGE, FAILED = 64, 1


def command() -> click.Command:
    return daemon


@click.command()
@click.option(
    "--config",
    "config_",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML file with all settings; examples/daemon.yaml shows each of them.",
)
@click.option(
    "--roles",
    metavar="ROLE,…",
    help="Run these roles instead of those in the file: jobmgr, resmgr, hostmgr, placement, api.",
)
@click.option(
    "--adopt-keeper",
    is_flag=True,
    help="Take the keeper folder from the cluster that it served, and end all that runs there.",
)
@click.option(
    "--adopt-copy",
    is_flag=True,
    help="Make a copied journal.sqlite.folder another cluster; its running tasks become LOST.",
)
@click.option(
    "--accept-rollback",
    is_flag=True,
    help="Go on with a SQLite journal that lacks what it had acknowledged, such as an older copy. "
    "What is missing is given up, and runs that the journal does not know are killed.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Only list everything that would prevent the start: settings, ports, files, servers. "
    "What a running daemon holds on the same data folder is no finding.",
)
def daemon(config_: Path, roles: str | None, *, check: bool, **orders: bool) -> None:
    """Run one daemon of a cluster in the foreground.

    SIGTERM ends it, SIGHUP makes it read users, tokens, certificates and rules anew.

    \b
    peloton daemon --config /etc/peloton.yaml
    peloton daemon --config /etc/peloton.yaml --roles placement,api
    """
    try:
        settings = read_settings(config_, roles)
    except BadSetting as error:
        for text in error.texts:
            click.echo(f"peloton daemon: {text}", err=True)
        sys.exit(USAGE)
    options = StartOptions(**orders)
    if options.adopt_copy and settings.journal.sqlite is None:
        click.echo("peloton daemon: --adopt-copy: the journal is not in a folder", err=True)
        sys.exit(USAGE)
    if check:
        sys.exit(_check(config_, settings, options=options))
    sys.exit(_run(settings, options, again=lambda: read_settings(config_, roles)))


def _check(file: Path, settings: DaemonSettings, *, options: StartOptions) -> int:
    """Print everything that would prevent the start; return the exit code."""
    from peloton.assembly.task_limits import machine_text
    from peloton.processes.foreground import CANNOT_START
    from peloton.processes.preflight import of_daemon, running_daemon, soon_over

    running = running_daemon(settings)
    found = of_daemon(settings, options, running=running)
    for text in found:
        click.echo(f"peloton daemon: {file}: {text}", err=True)
    for text in soon_over(settings):
        click.echo(f"peloton daemon: {file}: warning: {text}", err=True)
    if found:
        return CANNOT_START
    click.echo(f"{file}: cluster {settings.cluster}, roles {','.join(settings.roles)}")
    if running:
        click.echo(f"a daemon runs with its data folder (pid {running}): this is for a restart")
    if settings.backend.process is not None and "hostmgr" in settings.roles:
        click.echo(machine_text())
    return 0


def _run(
    settings: DaemonSettings, options: StartOptions, *, again: Callable[[], DaemonSettings]
) -> int:
    """Start, print the addresses, wait for a signal, stop; return the exit code."""
    # Heavy imports wait until the settings are known to be right.
    from peloton.assembly.daemon import Daemon
    from peloton.assembly.process_log import log_line
    from peloton.cli.main import discard_stdout
    from peloton.processes.foreground import ProcessTexts, run_process

    def greet(running: Daemon) -> None:
        # No daemon can serve before pools and hosts have owners, which may start later.
        click.echo(f"joining: cluster {settings.cluster}, http {running.http}", err=True)
        running.greeted.add_done_callback(lambda done: ready(running))

    def ready(running: Daemon) -> None:
        log_line(f"ready: http {running.http}")
        if "api" not in settings.roles:
            return
        try:
            click.echo(running.ready_text)
        except OSError:  # stdout is closed; the daemon serves nevertheless
            discard_stdout()

    manner = ProcessTexts(
        name="peloton daemon",
        leaving="leaving",
        failed=FAILED,
        left=0,
        left_text="warning: not all was handed over; the end of the session does it",
    )
    return run_process(
        lambda failed: Daemon(settings, failed=failed, options=options),
        greet=greet,
        texts=manner,
        reload=lambda running: running.reload(again),
    )
