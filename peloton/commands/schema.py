"""`peloton schema`: the journal's tables on Cassandra, made by a person and never by a daemon.

Turns options into one run of the adapter's schema module. A table that exists is not changed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from peloton import missing_package

if TYPE_CHECKING:
    from peloton.runtime.adapters.cassandra_session import CassandraSettings

WRONG, CANNOT_REACH, USAGE = 1, 69, 64
PORT_DEFAULT = 9042
CONTACT = re.compile(r"(?:\[([0-9A-Fa-f:]+)\]|([^:\[\]]+))(?::([0-9]{1,5}))?")
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def of_the_store(command: Decorated) -> Decorated:
    """Add the options with the address of Cassandra."""
    for option in reversed(
        [
            click.option(
                "--cassandra", "contacts", multiple=True, default=["127.0.0.1"], show_default=True,
                envvar="PELOTON_CASSANDRA", metavar="HOST[:PORT]", help="A server; repeatable.",
            ),
            click.option("--keyspace", default="peloton", show_default=True, metavar="NAME"),
            click.option("--data-centre", metavar="NAME", help=(
                "Send requests to this data centre."
            )),
            click.option("--username", metavar="NAME", help="User name, with --password."),
            click.option("--password", envvar="PELOTON_CASSANDRA_PASSWORD", metavar="TEXT",
                         help="Password; prefer the variable PELOTON_CASSANDRA_PASSWORD."),
            click.option("--ca-file", type=FILE, metavar="FILE",
                         help="Speak TLS to servers whose certificates this authority signed."),
        ]
    ):  # fmt: skip
        command = option(command)
    return command


def store_settings(name: str, options: dict[str, Any]) -> CassandraSettings:
    """Return the options of the command of this name as settings. Raises click.UsageError."""
    # The driver takes a fifth of a second to load: not for a --help.
    try:
        from peloton.runtime.adapters.cassandra_session import CassandraSettings
    except ImportError:
        fail(name, missing_package("cassandra-driver"), code=CANNOT_REACH)

    hosts, ports = [], []
    for contact in options["contacts"]:
        match = CONTACT.fullmatch(contact)
        if match is None:
            raise click.UsageError(f"--cassandra: {contact!r} is not HOST[:PORT]")
        hosts.append(match[1] or match[2])
        ports.append(int(match[3] or PORT_DEFAULT))
    if len(dict.fromkeys(ports)) > 1:
        raise click.UsageError("--cassandra: all servers of one cluster listen at the same port")
    return CassandraSettings(
        contacts=tuple(hosts),
        port=ports[0],
        keyspace=options["keyspace"],
        data_centre=options["data_centre"],
        username=options["username"],
        password=options["password"],
        ca_file=options["ca_file"],
    )


def fail(name: str, error: Exception | str, *, code: int) -> NoReturn:
    """Print one line for a person, and exit with a code for a script."""
    click.echo(f"peloton {name}: {error}", err=True)
    sys.exit(code)


def command() -> click.Group:
    return schema


@click.group()
def schema() -> None:
    """Manage the journal's tables on Cassandra."""


@schema.command()
def show() -> None:
    """Print the tables as CQL."""
    file = resources.files("peloton.runtime.adapters") / "schema.cql"
    click.echo(file.read_text(encoding="utf-8"), nl=False)


@schema.command()
@of_the_store
@click.option(
    "--replication", multiple=True, metavar="DATA-CENTRE:COPIES", required=True,
    help="How many copies of the journal a data centre keeps; for the keyspace, if it is new.",
)  # fmt: skip
def apply(replication: tuple[str, ...], **options: Any) -> None:
    """Make the keyspace and the tables that are missing.

    \b
    peloton schema apply --replication dc1:3
    peloton schema apply --cassandra 10.0.0.1 --cassandra 10.0.0.2 --replication east:3
    """
    settings = store_settings("schema apply", options)  # first: it reports a missing package
    from peloton.runtime.adapters import cassandra_schema, cassandra_session
    from peloton.runtime.ports import JournalRefused, Unreachable

    copies = dict(_copies(text) for text in replication)
    try:
        connected = cassandra_session.connect(settings, keyspace=False)
        try:
            done = cassandra_schema.apply(connected, settings.keyspace, replication=copies)
        finally:
            connected.close()
    except JournalRefused as error:
        fail("schema apply", error, code=WRONG)
    except Unreachable as error:
        fail("schema apply", error, code=CANNOT_REACH)
    else:
        _tell(done, settings.keyspace)


def _copies(text: str) -> tuple[str, int]:
    name, _, count = text.rpartition(":")
    if not name or not (count.isascii() and count.isdigit()):
        raise click.UsageError(f"--replication: {text!r} is not DATA-CENTRE:COPIES")
    return name, int(count)


def _tell(done: Any, keyspace: str) -> None:
    if done.made:
        click.echo(f"made in keyspace {keyspace}: {', '.join(done.made)}")
    if done.there:
        click.echo(f"there already, left as they are: {', '.join(done.there)}")
    for difference in done.differ:
        click.echo(f"wrong: {difference}", err=True)
    if done.differ:
        sys.exit(WRONG)
