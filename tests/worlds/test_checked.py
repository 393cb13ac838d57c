"""The cluster that tests play on: its calls, its faults, and what its checks find.

A check that finds nothing is worth as much as one that is not there, so each is shown one thing
that is wrong.
"""

from __future__ import annotations

import msgspec
import pytest

from peloton.actors.host import facts as hf
from peloton.actors.job.messages import DeleteJob
from peloton.actors.job.slice.task_config import Override, TaskConfig
from peloton.actors.resources import Resources
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.checks import (
    nothing_is_left,
    outcomes_are_true,
    pools_use_what_their_lots_hold,
)
from peloton.chaos.cluster.faults import SINGLE
from peloton.chaos.cluster.rules.processes import ProcessCheck
from peloton.chaos.cluster.storm import draw, play
from peloton.chaos.cluster.world.cluster import NEED, ClusterSetup, job_spec
from peloton.chaos.cluster.world.machines import FAILURE, Fate, MachineProcess, Machines
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.ports import ShardId
from peloton.runtime.simulation.checkers import DecodedFrame
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.simulation.scenario import changed
from peloton.runtime.simulation.sends import SendFaults
from peloton.runtime.simulation.world import NotReached, World
from peloton.runtime.vocabulary import Bits, key
from tests.toy import messages as toy
from tests.toy.kinds import KINDS

FOR_EVER = ClusterSetup(fates=lambda run: Fate(None))

# ---- the cluster ----


def test_a_condition_may_ask_and_time_passes_all_the_same() -> None:
    cluster = CheckedCluster(hosts=1)
    job = cluster.create_job(job_spec(3))
    took_s = cluster.run_until(lambda: cluster.counts(job) == {"SUCCEEDED": 3}, within_s=5.0)
    assert 1.0 <= took_s < 2.0
    with pytest.raises(NotReached, match="TaskStarted"):
        cluster.run_until(lambda: cluster.counts(job) == {"FAILED": 3}, within_s=5.0)


def test_a_command_is_repeated_until_it_is_answered() -> None:
    cluster = CheckedCluster(setup=FOR_EVER)
    job = cluster.create_job(job_spec(2), overrides=(Override(1, TaskConfig(resources=NEED)),))
    cluster.run_for(1.0)
    cluster.kill()
    order = cluster.order(job, DeleteJob(force=True))
    assert not order.known
    cluster.run_until(cluster.over, within_s=60.0)
    assert order.known and order.tries > 1
    cluster.run_for(20.0)
    cluster.check_gone(job)
    cluster.check_quiet()


def test_a_shard_that_is_dropped_is_recovered_by_its_owner() -> None:
    cluster = CheckedCluster(setup=FOR_EVER)
    job = cluster.create_job(job_spec(2))
    shards = cluster.world.shards()
    shard = cluster.world.sharding.shard_of(job)
    cluster.crash_shard(job)
    now = cluster.world.shards()
    assert [each for each in shards if now.get(each) is not shards[each]] == [shard]
    assert now[shard].epoch == shards[shard].epoch + 1
    cluster.run_until(lambda: cluster.counts(job) == {"RUNNING": 2}, within_s=5.0)


# ---- faults of single messages ----


def toys() -> tuple[World, list[tuple[Envelope, ...]]]:
    """A daemon with notes, and all that really leaves it."""
    world = World(KINDS, seed=1, sizes={"house": 1, "city": 1})
    daemon = world.start("d1", roles=("house", "city"))
    sent: list[tuple[Envelope, ...]] = []
    world.run_until(world.whole, within_s=60)
    tell = daemon.region.tell

    def told(envelopes: list[Envelope], stamp: object = None) -> None:
        sent.append(tuple(envelopes))
        tell(envelopes, stamp)

    daemon.region.tell = told  # type: ignore[method-assign,assignment]
    return world, sent


def mail(count: int) -> list[Envelope]:
    note = key("note", "x")
    return [Envelope(note, toy.Add(each), sender=key("note", "y")) for each in range(count)]


def passed(world: World, envelopes: list[Envelope]) -> list[Envelope]:
    return [*world.daemons["d1"].outlet(envelopes, None)]


def test_messages_are_lost_or_come_twice() -> None:
    world, _ = toys()
    world.sends.faults = SendFaults(drop=1.0)
    assert passed(world, mail(3)) == []
    world.sends.faults = SendFaults(repeat=1.0)
    assert passed(world, mail(2)) == [mail(2)[at] for at in (0, 0, 1, 1)]
    assert (world.sends.struck["drop"], world.sends.struck["repeat"]) == (3, 2)
    world.sends.spared = ("note",)
    world.sends.faults = SendFaults(drop=1.0)
    assert passed(world, mail(3)) == mail(3)


def test_late_messages_of_one_sender_do_not_overtake_each_other() -> None:
    world, sent = toys()
    world.sends.faults = SendFaults(delay_s=5.0)
    assert passed(world, mail(10)) == []
    world.sends.faults = SendFaults()
    assert passed(world, [Envelope(key("note", "x"), toy.Add(10), sender=key("note", "y"))]) == []
    others = [Envelope(key("note", "x"), toy.Add(10), sender=key("note", "z"))]
    assert passed(world, others) == others, "those of others may"
    world.run_for(6.0)
    assert [envelope.message for (envelope,) in sent] == [toy.Add(each) for each in range(11)]
    assert passed(world, mail(1)) == mail(1), "nothing is under way any more"


def test_late_messages_end_with_their_sender() -> None:
    world, sent = toys()
    world.sends.faults = SendFaults(delay_s=5.0)
    assert passed(world, mail(10)) == []
    world.kill(world.daemons["d1"])
    world.run_for(20.0)
    assert sent == []


@pytest.mark.parametrize("name", SINGLE)
def test_a_storm_with_this_fault_alone_is_struck_by_it(name: str) -> None:
    scenario = changed(draw(4), faults={name: 1.0})
    assert play(scenario).struck[name] > 0


# ---- checks ----


def fact(host: str, each: object) -> DecodedFrame:
    entry = Entry(key("host", host), (each,))  # type: ignore[arg-type]
    return DecodedFrame(ShardId("hostmgr", 0), 1, 0.0, [entry])


def test_two_processes_of_an_instance_on_hosts_that_are_up() -> None:
    machines = Machines(lambda run: Fate(None))
    check = ProcessCheck(machines)
    for number, host in enumerate(("a", "b"), 1):
        run = f"{'j':0>36}-0-{number}"
        machines.running[run] = MachineProcess(key("host", host), NEED)
        machines.started[run] = key("host", host)
    check.apply(fact("a", hf.HostReconciled()))
    check.step()  # host b has given its run up, and is not up again
    check.apply(fact("b", hf.HostReachable("")))
    check.step()
    check.apply(fact("b", hf.HostReconciled()))
    with pytest.raises(Contradiction, match=r"R8c .*-0-2 runs beside .*-0-1"):
        check.step()


def test_what_is_left_of_a_deleted_job() -> None:
    cluster = CheckedCluster()
    job = cluster.create_job(job_spec(2))
    cluster.run_until(cluster.over)
    with pytest.raises(Contradiction, match="R11 .* is left in"):
        nothing_is_left(cluster, job)
    cluster.ask(job, DeleteJob())
    cluster.run_for(30.0)
    cluster.check_gone(job)
    name = job.partition("/")[2]
    cluster.machines.running[f"{name}-0-1"] = MachineProcess(cluster.hosts[0], NEED)
    with pytest.raises(Contradiction, match="R11 .* still runs"):
        nothing_is_left(cluster, job)


def test_the_final_state_of_a_deleted_job() -> None:
    cluster = CheckedCluster()
    job = cluster.create_job(job_spec(2))
    cluster.run_until(cluster.over)
    cluster.run_for(20.0)
    ended = [each for each in cluster.world.store.cells.rows if each.table == "ended"]
    assert ended, "the slice has left memory"
    kept = {where: dict(cluster.world.store.cells.rows[where]) for where in ended}
    cluster.ask(job, DeleteJob())
    cluster.run_for(30.0)
    cluster.check_gone(job)
    cluster.world.store.cells.rows.update(kept)
    with pytest.raises(Contradiction, match="R11 .* has the final state"):
        nothing_is_left(cluster, job)


def test_an_outcome_that_is_shown_and_not_true() -> None:
    cluster = CheckedCluster()
    job = cluster.create_job(job_spec(2))
    cluster.run_until(cluster.over)
    cluster.run_for(20.0)
    outcomes_are_true(cluster)
    cluster.machines.results[f"{job.partition('/')[2]}-1-1"] = FAILURE
    with pytest.raises(Contradiction, match="R8b .* is shown as SUCCEEDED"):
        outcomes_are_true(cluster)


def test_a_pool_that_uses_what_no_lot_holds() -> None:
    cluster = CheckedCluster(setup=FOR_EVER)
    cluster.create_job(job_spec(2))
    cluster.run_for(1.0)
    pools_use_what_their_lots_hold(cluster)
    ((lot, state),) = cluster.cells("lot").items()
    core = cluster.world.shards()[cluster.world.sharding.shard_of(lot)]
    core.population.cells[lot] = msgspec.structs.replace(state, admitted=Bits.of(0))
    with pytest.raises(Contradiction, match="R10 respool/p uses"):
        pools_use_what_their_lots_hold(cluster)


def test_a_host_whose_sum_is_wrong_is_found_within_a_few_frames() -> None:
    cluster = CheckedCluster(hosts=1, setup=ClusterSetup(fates=lambda run: Fate(0.2)))
    (host,) = cluster.hosts
    core = cluster.world.shards()[cluster.world.sharding.shard_of(host)]
    wrong = msgspec.structs.replace(core.population.cells[host], used=Resources(1))
    core.population.cells[host] = wrong
    with pytest.raises(Contradiction, match=f"R9 {host}: its runs hold"):
        cluster.create_job(job_spec(12))
        cluster.run_until(cluster.over, within_s=20.0)
