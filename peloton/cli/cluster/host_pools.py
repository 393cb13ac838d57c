"""`peloton hostmgr hostpool`: host pools, with the texts of the original.

A host changes its pool at once, and what runs there stays, so the commands do not wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from peloton.cli.shared.dry_run import dry_run_option, would
from peloton.cli.shared.lazy import LazyCommand, LazyGroup
from peloton.cli.shared.options import PelotonCommand
from peloton.cli.shared.output import OutputForms, show
from peloton.cli.shared.session import connected
from peloton.sdk.errors import Conflict, NotFound

if TYPE_CHECKING:
    from peloton.sdk.client import Client

HEADER = ("Pool name", "Number of hosts")

hostpool = LazyGroup(
    name="hostpool",
    help="Manage pools of hosts.",
    table={
        "list": LazyCommand(f"{__name__}:list_", "List the pools of hosts."),
        "list-hosts": LazyCommand(f"{__name__}:list_hosts", "Print the hosts of a pool."),
        "create": LazyCommand(f"{__name__}:create", "Make a pool of hosts."),
        "delete": LazyCommand(f"{__name__}:delete", "Give a pool's hosts back to the default one."),
        "change": LazyCommand(f"{__name__}:change", "Move a host to another pool."),
    },
)


@click.command("list", cls=PelotonCommand)
def list_() -> None:
    """List the pools of hosts, and how many hosts each has."""
    with connected() as peloton:
        answer = peloton.hosts.pools()
    show(
        OutputForms(
            answer,
            header=HEADER,
            rows=lambda: ((one.name, len(one.hosts)) for one in answer.pools),
            names=lambda: [one.name for one in answer.pools],
        )
    )


@click.command("list-hosts", cls=PelotonCommand)
@click.argument("name")
def list_hosts(name: str) -> None:
    """Print the hosts of the pool NAME, one in a line."""
    with connected() as peloton:
        pool = known_pool(peloton, name)
    lines = sorted(pool.hosts)
    show(OutputForms(pool, lines=lines or ("No hosts found",), names=lambda: lines))


@click.command(cls=PelotonCommand)
@click.argument("name")
@dry_run_option
def create(name: str, dry_run: bool) -> None:
    """Make a pool of hosts with the name NAME, with no host in it.

    Hosts of pools other than default, shared and batch_reserved accept only tasks whose constraint
    names the host's label host_pool.

    \b
    peloton hostmgr hostpool create gpu-team
    """
    with connected() as peloton:
        if dry_run:
            if name in (one.name for one in peloton.hosts.pools().pools):
                raise Conflict("host pool already exists")
            would(f"would create the host pool {name}", names=(name,))
            return
        answer = peloton.hosts.create_pool(name)
    show(OutputForms(answer, text=f'Created host pool "{name}".', names=lambda: [name]))


@click.command(cls=PelotonCommand)
@click.argument("name")
@dry_run_option
def delete(name: str, dry_run: bool) -> None:
    """Delete the pool of hosts NAME; its hosts are in the default pool then.

    \b
    peloton hostmgr hostpool delete gpu-team
    """
    with connected() as peloton:
        if dry_run:
            pool = known_pool(peloton, name)
            text = f"its {len(pool.hosts)} hosts would be in default"
            would(f"would delete the host pool {name}; {text}", names=(name,))
            return
        answer = peloton.hosts.delete_pool(name)
    show(OutputForms(answer, text=f'Deleted host pool "{name}".', names=lambda: [name]))


@click.command(cls=PelotonCommand)
@click.argument("hostname")
@click.argument("dest")
@click.option(
    "-s",
    "--source",
    default="",
    help="Move it from this pool only. [default: whatever pool it is in]",
)
@dry_run_option
def change(hostname: str, dest: str, source: str, dry_run: bool) -> None:
    """Move the host HOSTNAME to the pool DEST. What runs there stays.

    \b
    peloton hostmgr hostpool change rack7-12 gpu-team
    """
    with connected() as peloton:
        if dry_run:
            known_pool(peloton, dest)
            source = source or pool_of(peloton, hostname)
            would(f"would move host {hostname} from {source} to {dest}", names=(hostname,))
            return
        source = source or pool_of(peloton, hostname)
        answer = peloton.hosts.change_pool(hostname, source=source, destination=dest)
    text = f'Pool for host "{hostname}" changed to "{dest}".'
    show(OutputForms(answer, text=text, names=lambda: [hostname]))


def pool_of(peloton: Client, hostname: str) -> str:
    for pool in peloton.hosts.pools().pools:
        if hostname in pool.hosts:
            return str(pool.name)
    raise NotFound(f"no host pool has a host {hostname!r}")


def known_pool(peloton: Client, name: str) -> Any:
    pools = peloton.hosts.pools().pools
    pool = next((one for one in pools if one.name == name), None)
    if pool is None:
        known = ", ".join(sorted(one.name for one in pools))
        raise NotFound(f"no host pool {name!r}; there is {known or 'none'}")
    return pool
