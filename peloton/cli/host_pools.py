"""`peloton hostmgr hostpool`: the pools of hosts, with the texts of the original.

Must not change a pool: there is one, with all hosts.
"""

from __future__ import annotations

import click

from peloton.cli.lazy import LazyCommand, LazyGroup
from peloton.cli.options import PelotonCommand
from peloton.cli.output import OutputForms, show
from peloton.cli.session import connected
from peloton.cli.unimplemented import entries
from peloton.sdk.errors import NotFound

HEADER = ("Pool name", "Number of hosts")

hostpool = LazyGroup(
    name="hostpool",
    help="Pools of hosts.",
    table={
        "list": LazyCommand(f"{__name__}:list_", "List the pools of hosts."),
        "list-hosts": LazyCommand(f"{__name__}:list_hosts", "Print the hosts of a pool."),
    }
    | entries("create", "delete", "change"),
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
        answer = peloton.hosts.pools()
    pool = next((one for one in answer.pools if one.name == name), None)
    if pool is None:
        known = ", ".join(sorted(one.name for one in answer.pools))
        raise NotFound(f"no host pool {name!r}; there is {known or 'none'}")
    lines = sorted(pool.hosts)
    show(OutputForms(pool, lines=lines or ("No hosts found",), names=lambda: lines))
