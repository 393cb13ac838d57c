"""Every lazy fact is lost once, with the owner that held it back, and comes again by itself.

Chance is not enough: storms lose such facts, too, but nobody can say which ones.
"""

from __future__ import annotations

import pytest

from peloton.actors.host import facts as hf
from peloton.actors.host.inventory.facts import HostTold
from peloton.actors.job import facts as jf
from peloton.actors.job.messages import CreateJob
from peloton.actors.job.slice.messages import slice_key
from peloton.actors.task import facts as tf
from peloton.assembly.kinds import kinds
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import ClusterSetup, job_id, job_spec
from peloton.chaos.cluster.world.machines import Fate
from peloton.runtime.core.turning.lazy_facts import LAZY_S_MAX
from peloton.runtime.vocabulary import Fact

SIZES = {"jobmgr": 3, "resmgr": 1, "hostmgr": 1}
STEPS_MAX = 20_000
HELD: dict[type[Fact], int] = {
    tf.AdmissionQueued: 10,  # more than there is room for
    tf.AdmissionGranted: 1,
    tf.LaunchAccepted: 1,
    tf.AdmissionReleased: 1,
    hf.RunsForgotten: 1,
    hf.SetForgotten: 4,
    jf.SliceConfirmed: 1001,
}
"""Each class, and how many instances a job has in whose life it is held."""


ELSEWHERE = {HostTold}  # no job has it: a host that changes its pool, in test_host_pools


def test_no_lazy_fact_is_missing_here() -> None:
    assert {*HELD} | ELSEWHERE == {fact for kind in kinds(SIZES).values() for fact in kind.lazy}


@pytest.mark.parametrize("fact", HELD)
def test_a_fact_that_is_lost_with_its_owner_comes_again(fact: type[Fact]) -> None:
    setup = ClusterSetup(fates=lambda run: Fate(1.0))
    if fact is jf.SliceConfirmed:
        setup = setup._replace(host_capacity=setup.host_capacity.times(1000))
    cluster = CheckedCluster(hosts=1, sizes=SIZES, setup=setup)
    for daemon in cluster.world.daemons.values():
        # As between daemons: within a round each frame would have other facts in it, too.
        daemon.hands_over = lambda: False
    cluster.machines.start_s = 3.0  # so long that launches are repeated
    known, job = apart(cluster)
    # Which epochs shards have seen of one another is never held: they have met before.
    cluster.create_job(job_spec(HELD[fact]), known)
    cluster.run_until(cluster.over)
    cluster.run_for(2 * LAZY_S_MAX)
    runs = len(cluster.machines.started)
    cluster.tell(job_id(job), CreateJob(job_spec(HELD[fact])))
    until_held(cluster, fact)
    before = cluster.written(fact)
    cluster.kill()
    cluster.run_until(cluster.over)
    cluster.run_for(2 * LAZY_S_MAX)
    assert cluster.counts(job_id(job)) == {"SUCCEEDED": HELD[fact]}
    if fact is not tf.LaunchAccepted:  # a recovery learns of the start instead
        assert cluster.written(fact) > before, "it was made again"
    cluster.check_quiet()
    assert len(cluster.machines.started) == runs + HELD[fact], "no run twice"


def apart(cluster: CheckedCluster) -> tuple[str, str]:
    """Names of two jobs whose first slices are in one shard, and the second ones in another."""
    found = []
    for name in map(str, range(100)):
        slices = [slice_key(job_id(name).partition("/")[2], number) for number in (0, 1)]
        if [cluster.world.sharding.shard_of(each).number for each in slices] == [0, 1]:
            found.append(name)
    return found[0], found[1]


def until_held(cluster: CheckedCluster, fact: type[Fact]) -> None:
    """Run until a shard holds such a fact back."""
    for _ in range(STEPS_MAX):
        for core in cluster.world.shards().values():
            facts = [each for line in core.turns.lines for each in line.facts]
            if core.lazy and any(type(each) is fact for each in facts):
                return
        cluster.world.step()
    raise AssertionError(f"{fact.__name__} is never held")
