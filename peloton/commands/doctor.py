"""`peloton doctor`: checks the requirements on the store, and on a Mesos cluster.

The store has to guarantee what the journal relies on, a Mesos cluster what its hosts rely on. Turns
findings into lines for a person and an exit code for a script: 0 when all guarantees hold, 1 when
one does not. Nothing is changed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peloton.commands.schema import (
    CANNOT_REACH,
    FILE,
    USAGE,
    WRONG,
    fail,
    of_the_store,
    store_settings,
)
from peloton.failures import CannotStart
from peloton.settings.config import BadSetting
from peloton.settings.mesos_master import printable

if TYPE_CHECKING:
    from peloton.backends.mesos.doctor import MesosWanted
    from peloton.backends.mesos.masters.leading_master import LeadingMaster


def command() -> click.Command:
    return doctor


@click.command()
@of_the_store
@click.option(
    "--mesos", "file", type=FILE, metavar="FILE",
    help="The YAML file of a daemon: look at its Mesos cluster, and not at Cassandra.",
)  # fmt: skip
def doctor(file: Path | None, **options: Any) -> None:
    """Check that Cassandra guarantees what the journal needs; list what is wrong.

    With --mesos, check that the Mesos cluster of a daemon is as its hosts need it: versions, clock,
    framework, role and quota, and agents.

    \b
    peloton doctor
    peloton doctor --cassandra 10.0.0.1 --keyspace peloton
    peloton doctor --mesos /etc/peloton.yaml

    \b
    wrong   a guarantee does not hold; the exit code is 1
    weak    all guarantees hold, but with less margin than recommended
    """
    if file is not None:
        look_at_mesos(file)
        return
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
    _tell(findings, f"keyspace {settings.keyspace}: all that the journal needs")


def look_at_mesos(file: Path) -> None:
    """Check the Mesos clusters of a daemon's file."""
    findings: list[Any] = []
    names = []
    for wanted, master in _clusters(file):
        findings += _look_at_one(wanted, master)
        names.append(printable(wanted.master))
    _tell(findings, f"{', '.join(names)}: all that hosts of Mesos need")


def _look_at_one(wanted: MesosWanted, master: LeadingMaster) -> Sequence[Any]:
    from peloton.backends.mesos import doctor as mesos

    try:
        cluster = mesos.read_cluster(master)
    except mesos.Unanswered as error:
        fail("doctor", error, code=CANNOT_REACH)
    click.echo(f"master  {cluster.master}, version {cluster.version}")
    click.echo(f"role    {mesos.role_text(cluster, wanted)}")
    for one in cluster.frameworks:
        info = one["framework_info"]
        if wanted.is_ours(info["id"]["value"]):
            able = ", ".join(each["type"] for each in info.get("capabilities", ()))
            click.echo(f"frame   {info['id']['value']}: {able}")
    click.echo(f"agents  {len(cluster.agents)}")
    return mesos.findings_of(cluster, wanted)


def _clusters(file: Path) -> list[tuple[MesosWanted, LeadingMaster]]:
    """Return the settings of each cluster in the file, and its master."""
    from peloton.assembly.mesos_access import leading_master
    from peloton.backends.mesos.doctor import MesosWanted
    from peloton.settings.daemon import read_settings

    try:
        clusters = read_settings(file).backend.clusters
        if not clusters:
            fail("doctor", f"{file} has no backend.mesos", code=USAGE)
        return [
            (
                MesosWanted(
                    found.master, found.name, found.role, found.framework, found.revocable,
                    found.principal,
                ),
                leading_master(found, field=field),
            )
            for field, found in clusters.items()
        ]  # fmt: skip
    except (BadSetting, CannotStart) as error:
        fail("doctor", error, code=USAGE)


def _tell(findings: Sequence[Any], well: str) -> None:
    """Print one line for each finding, and one for its remedy."""
    for finding in findings:
        click.echo(f"{'wrong' if finding.wrong else 'weak '}   {finding.text}")
        click.echo(f"        {finding.remedy}")
    if not findings:
        click.echo(f"ok      {well}")
    if any(finding.wrong for finding in findings):
        sys.exit(WRONG)
