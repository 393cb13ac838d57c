"""`peloton doctor`: does the store keep what the journal's promises rest on?

Turns the findings of the adapter into lines for a person and an exit code for a script: 0 when all
promises hold, 1 when one does not. It must not change anything.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from peloton.schema import CANNOT_REACH, WRONG, fail, of_the_store, store_settings


def command() -> click.Command:
    """`peloton doctor`."""
    return doctor


@click.command()
@of_the_store
def doctor(**options: Any) -> None:
    """Look whether Cassandra keeps what the journal needs, and name what is wrong.

    \b
    peloton doctor
    peloton doctor --cassandra 10.0.0.1 --keyspace peloton

    \b
    wrong   a promise does not hold; the exit code is 1
    weak    all promises hold, with less to spare than they might
    """
    settings = store_settings(options)  # first: it says what to install
    from peloton.runtime.adapters import cassandra_doctor, cassandra_session
    from peloton.runtime.ports import Unreachable

    try:
        connected = cassandra_session.connect(settings, keyspace=False)
    except Unreachable as error:
        fail("doctor", error, code=CANNOT_REACH)
        return
    try:
        looked = cassandra_doctor.read_cluster(connected, settings.keyspace)
    except Unreachable as error:
        fail("doctor", error, code=CANNOT_REACH)
        return
    finally:
        connected.close()
    for server in looked.servers:
        click.echo(f"server  {server.address}, {server.data_centre}, version {server.version}")
    findings = cassandra_doctor.findings_of(looked)
    for finding in findings:
        click.echo(f"{'wrong' if finding.wrong else 'weak '}   {finding.text}")
        click.echo(f"        {finding.remedy}")
    if not findings:
        click.echo(f"ok      keyspace {settings.keyspace}: all that the journal needs")
    if any(finding.wrong for finding in findings):
        sys.exit(WRONG)
