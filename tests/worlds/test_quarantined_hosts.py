"""A host that fails whatever runs on it is left out, and the storms' check of that can fail.

Must not wait for chance: storms rarely have work left once a quarantine is known everywhere.
"""

from __future__ import annotations

import msgspec
import pytest

from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.cluster import ClusterSetup, job_spec
from peloton.chaos.cluster.machines import Fate
from peloton.chaos.cluster.quarantining import HOSTS_MIN, QUARANTINED_AFTER, TOLD_S_MAX
from peloton.placement.quarantines import Quarantines
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import Key
from tests.worlds.planted import Planted, planted


def quarantined() -> tuple[CheckedCluster, Key]:
    """A cluster that has known for a while that one of its hosts fails everything."""
    setup = ClusterSetup(fates=lambda run: Fate(1.0), level=2, quarantine_after=QUARANTINED_AFTER)
    cluster = CheckedCluster(hosts=HOSTS_MIN, setup=setup)
    host = cluster.hosts[0]
    cluster.machines.spoiled[host] = None
    for number in range(4):
        on_each(cluster, f"a{number}")
    assert cluster.checks is not None
    assert [*cluster.checks.promises.quarantines.known] == [host]
    cluster.machines.spoiled.clear()
    cluster.run_for(TOLD_S_MAX + 5.0)
    return cluster, host


def on_each(cluster: CheckedCluster, name: str) -> None:
    spread = msgspec.structs.replace(job_spec(HOSTS_MIN), spread=True)
    cluster.create_job(spread, name)
    cluster.run_until(cluster.over)


def test_a_host_that_fails_everything_is_left_out() -> None:
    cluster, _ = quarantined()
    on_each(cluster, "b")
    cluster.check_quiet()


def test_one_that_is_not_left_out_is_noticed() -> None:
    with planted(Planted(Quarantines, "judge", lambda _: lambda found, up: [])):
        cluster, host = quarantined()
        with pytest.raises(Contradiction, match=f"^R27 {host} is in quarantine"):
            on_each(cluster, "b")
