"""`peloton doctor`: does the store guarantee what the journal relies on?

Turns the findings of the adapter into lines for a person and an exit code for a script: 0 when all
guarantees hold, 1 when one does not. It must not change anything.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from peloton.commands.schema import CANNOT_REACH, WRONG, fail, of_the_store, store_settings


def command() -> click.Command:
    """`peloton doctor`."""
    return doctor


@click.command()
@of_the_store
def doctor(**options: Any) -> None:
    """Check that Cassandra guarantees what the journal needs; list what is wrong.

    \b
    peloton doctor
    peloton doctor --cassandra 10.0.0.1 --keyspace peloton

    \b
    wrong   a guarantee does not hold; the exit code is 1
    weak    all guarantees hold, but with less margin than recommended
    """
    settings = store_settings("doctor", options)  # first: it reports a missing package
    from peloton.runtime.adapters import cassandra_doctor, cassandra_session
    from peloton.runtime.ports import Unreachable

    try:
        connected = cassandra_session.connect(settings, keyspace=False)
    except Unreachable as error:
        fail("doctor", error, code=CANNOT_REACH)
        return
    try:
        cluster = cassandra_doctor.read_cluster(connected, settings.keyspace)
    except Unreachable as error:
        fail("doctor", error, code=CANNOT_REACH)
        return
    finally:
        connected.close()
    for server in cluster.servers:
        click.echo(f"server  {server.address}, {server.data_centre}, version {server.version}")
    findings = cassandra_doctor.findings_of(cluster)
    for finding in findings:
        click.echo(f"{'wrong' if finding.wrong else 'weak '}   {finding.text}")
        click.echo(f"        {finding.remedy}")
    if not findings:
        click.echo(f"ok      keyspace {settings.keyspace}: all that the journal needs")
    if any(finding.wrong for finding in findings):
        sys.exit(WRONG)
