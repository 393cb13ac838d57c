"""`peloton host query` and `peloton host maintenance`, with the texts of the original.

The commands do not wait: a host may take long to drain; `host query` shows how far it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from peloton.cli.cluster.host_names import host_typed, hosts_beside
from peloton.cli.shared.dry_run import dry_run_option, host_named, would
from peloton.cli.shared.lazy import LazyCommand, LazyGroup
from peloton.cli.shared.options import PelotonCommand
from peloton.cli.shared.output import OutputForms, hint, show
from peloton.cli.shared.session import connected
from peloton.sdk.errors import Conflict, NotFound
from peloton.sdk.hosts import state_text

if TYPE_CHECKING:
    from peloton.sdk.client import Client

HEADER = ("Hostname", "IP", "State", "HostPool")
NO_HOST = "host is not a Peloton agent"
NOT_DOWN = "not DOWN"
UNKNOWN = "UNKNOWN"

maintenance = LazyGroup(
    name="maintenance",
    help="Take a host down for maintenance, and use it again.",
    table={
        "start": LazyCommand(
            f"{__name__}:start", ("Move the runs away from a host and take it down.")
        ),
        "complete": LazyCommand(f"{__name__}:complete", "Put a host that is down back into use."),
    },
)


@click.command(cls=PelotonCommand)
@click.option("-s", "--states", help="List only hosts in these states, separated by commas.")
def query(states: str | None) -> None:
    """List the hosts with their state: up, draining, drained or down for maintenance.

    unknown is a host whose backend does not answer. Behind it stands what `peloton host list` calls
    that, such as UNREACHABLE or LOST.

    \b
    peloton host query --states draining,down
    """
    wanted = [one for one in (states or "").split(",") if one.strip()]
    with connected() as peloton:
        answer = peloton.hosts.query(wanted)
        infos = answer.host_infos
        more = states_beside(peloton, infos)
    show(
        OutputForms(
            answer,
            header=HEADER,
            rows=lambda: (
                (
                    one.hostname,
                    one.ip,
                    more.get(one.hostname, state_text(one.state)),
                    one.current_pool,
                )
                for one in infos
            ),
            names=lambda: [one.hostname for one in infos],
            nothing="No hosts found",
        )
    )


def states_beside(peloton: Client, infos: Iterable[Any]) -> dict[str, str]:
    """Return the states of `peloton host list` for hosts that are unknown in the contract's
    words."""
    unknown = {one.hostname for one in infos if state_text(one.state) == UNKNOWN}
    known = hosts_beside(peloton) if unknown else ()
    return {one.name: f"{UNKNOWN} ({one.state})" for one in known if one.name in unknown}


@click.command(cls=PelotonCommand)
@click.argument("hostname")
@dry_run_option
def start(hostname: str, dry_run: bool) -> None:
    """Take the host HOSTNAME down for maintenance.

    Nothing is placed there from now on. Its runs are ended, which uses up none of their retries,
    and their instances run again on other hosts. When the last has ended the host is down.

    \b
    peloton host maintenance start rack7-12
    """
    with connected() as peloton, host_typed(peloton, hostname):
        if dry_run:
            would_start(peloton, hostname)
            return
        try:
            answer = peloton.hosts.start_maintenance(hostname)
        except (Conflict, NotFound) as error:
            if NO_HOST in error.message:  # the original's server calls that aborted
                raise NotFound(f"{hostname}: {error.message}") from error
            raise
    text = f"Host successfully submitted for maintenance: {hostname}"
    show(OutputForms(answer, text=text, names=lambda: [hostname]))


@click.command(cls=PelotonCommand)
@click.argument("hostname")
@dry_run_option
def complete(hostname: str, dry_run: bool) -> None:
    """Put the host HOSTNAME, which is down for maintenance, back into use.

    \b
    peloton host maintenance complete rack7-12
    """
    with connected() as peloton, host_typed(peloton, hostname):
        if dry_run:
            would_complete(peloton, hostname)
            return
        try:
            answer = peloton.hosts.complete_maintenance(hostname)
        except NotFound as error:
            if NOT_DOWN in error.message:  # the original's server calls that not found
                raise Conflict(f"{hostname}: {error.message}") from error
            raise
        on_mesos = is_of_mesos(peloton, hostname)
    text = f"Host successfully submitted for maintenance completion: {hostname}"
    show(OutputForms(answer, text=text, names=lambda: [hostname]))
    if on_mesos:
        hint("next: start its Mesos agent; then the host is UP")


def is_of_mesos(peloton: Client, hostname: str) -> bool:
    from peloton.sdk import defaults

    hosts = hosts_beside(peloton)
    return any(one.name == hostname and defaults.is_of_mesos(one) for one in hosts)


def would_start(peloton: Client, hostname: str) -> None:
    """Say what is taken down, and how many runs have to move."""
    host = host_named(peloton, hostname)
    text = f"would take down host {hostname}, which is {host.state}"
    would(f"{text}; its {host.runs} runs would run again elsewhere", names=[hostname])


def would_complete(peloton: Client, hostname: str) -> None:
    """Say whether the host is down for maintenance."""
    host_named(peloton, hostname)
    states = {one.hostname: state_text(one.state) for one in peloton.hosts.query().host_infos}
    state = states.get(hostname, "unknown")
    if state != "DOWN":
        raise Conflict(f"host {hostname} is {state}, not down for maintenance")
    would(f"would use host {hostname} again, which is DOWN", names=[hostname])
