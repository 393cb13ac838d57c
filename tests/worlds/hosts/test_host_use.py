"""A maintenance whose words with the backend are lost, or whose daemon dies at one of them.

In the end the machine is what the host says, and a host that is DOWN has a machine that is out of
use.
"""

from __future__ import annotations

import pytest

from peloton.actors.host.machine_messages import HostUse
from peloton.actors.host.messages import CompleteMaintenance, StartMaintenance
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.nemeses import Missed, Nemesis, Occurrences, Stopped, every_other, first
from peloton.chaos.cluster.world.cluster import job_spec
from peloton.runtime.vocabulary import Key
from tests.worlds.jobs.test_daemon_jobs import cluster_of, drained

WORDS = [("backend", "SetUse"), ("host", "UseSet")]
WITHIN_S = 120.0


def told(cluster: CheckedCluster, host: Key, use: HostUse) -> bool:
    """Whether the backend knows that the host is for this, and the host knows that it does."""
    state = cluster.cells("host").get(host)
    known = state is not None and state.use.wanted == use and not state.use.open
    return bool(known and cluster.machines.uses[host] == use)


def maintained(nemesis: Nemesis) -> None:
    """A host with runs goes down, and comes back."""
    cluster = cluster_of(daemons=2)
    nemesis.attach(cluster)
    job = cluster.create_job(job_spec(5), "a")
    cluster.run_until(lambda: cluster.counts(job) == {"RUNNING": 5}, within_s=WITHIN_S)
    host = next(iter(cluster.machines.running.values())).host
    cluster.ask(host, StartMaintenance())
    cluster.run_until(lambda: host in cluster.cells("host") and drained(cluster, host),
                      within_s=WITHIN_S)  # fmt: skip
    assert cluster.machines.uses[host] == HostUse.OUT_OF_USE
    cluster.run_until(lambda: told(cluster, host, HostUse.OUT_OF_USE), within_s=WITHIN_S)
    cluster.ask(host, CompleteMaintenance())
    cluster.run_until(lambda: told(cluster, host, HostUse.IN_USE), within_s=WITHIN_S)


@pytest.mark.parametrize("which", [first, every_other], ids=lambda each: each.__name__)
@pytest.mark.parametrize("name", WORDS, ids=".".join)
def test_each_word_may_be_lost(name: tuple[str, str], which: Occurrences) -> None:
    missed = Missed(*name, which=which)
    maintained(missed)
    assert missed.struck


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("name", WORDS, ids=".".join)
def test_the_daemon_may_die_at_each_word(name: tuple[str, str], behind: bool) -> None:
    stopped = Stopped(*name, which=first, behind=behind)
    maintained(stopped)
    assert stopped.struck
