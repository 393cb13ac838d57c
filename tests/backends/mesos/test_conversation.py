"""What is said at the master's and at the hosts': connection, hosts, launches and kills."""

from __future__ import annotations

import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.machine_messages import RemoveVolumes, VolumesRemoved
from peloton.actors.host.run_spec import Container, Port, RunSpec
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.messages import End
from peloton.backends.mesos.announcing import APPEAR_AGAIN_S
from peloton.backends.mesos.conversation import LEFT, NOT_SUBSCRIBED
from peloton.backends.mesos.offer_book import HOLD_S
from peloton.backends.mesos.offering import OFFER_WAIT_S, REFUSE_S
from peloton.backends.mesos.reconciliation import EVERY_S
from peloton.placement.messages import Label
from peloton.runtime.vocabulary import Key
from tests.backends.mesos.bench import BACKEND, HOST, OTHER, Talk, name, start
from tests.backends.mesos.words import agent, offer, reconciled, scalar, status

# ---- subscription and hosts ----


def test_before_the_subscription_nothing_can_be_ordered() -> None:
    talk = Talk()
    talk.order(m.PingBackend(HOST), m.ListRuns(HOST, 1), m.StartRuns(HOST, 1, (start(0),)))
    assert [each.text for each in talk.told(m.BackendDown)] == [NOT_SUBSCRIBED] * 3
    assert talk.calls == [] and talk.it.wake_at is None


def test_once_subscribed_all_tasks_are_asked_for_and_hosts_appear() -> None:
    talk = Talk()
    talk.subscribe(agent("S0", "h0"), agent("S1", "h1"))
    assert talk.asked() == [[]]
    labels, ports = (Label("mesos.cluster", "east"),), (31000, 32001)
    capacity = Resources(4 * UNIT, 4096 * UNIT)
    appeared = m.HostAppeared(capacity, labels, BACKEND, ports)
    assert talk.reports == [(HOST, appeared), (OTHER, appeared)]


def test_hosts_are_announced_again_until_they_give_an_order() -> None:
    talk = Talk()
    talk.subscribe(agent("S0", "h0"), agent("S1", "h1"))
    talk.clear().order(m.ListRuns(OTHER, 1))
    talk.until(2.5 * APPEAR_AGAIN_S)
    assert len(talk.told(m.HostAppeared)) == 2 and talk.told(m.HostAppeared, OTHER) == []
    talk.order(m.ListRuns(HOST, 1))
    talk.clear().until(100.0)
    assert talk.reports == [] and talk.it.wake_at == EVERY_S


def test_a_host_is_not_announced_while_we_are_away_and_is_afterwards() -> None:
    talk = Talk()
    talk.subscribe(agent())
    talk.disconnect()
    talk.clear().until(3 * APPEAR_AGAIN_S)
    assert talk.reports == []
    talk.subscribe(agent())
    talk.clear().until(5 * APPEAR_AGAIN_S)
    assert talk.told(m.HostAppeared)


def test_a_change_of_capacity_is_announced_until_it_is_heard() -> None:
    talk = Talk.begun()
    talk.agents(agent())
    assert talk.reports == []
    talk.agents(agent(total_resources=[scalar("cpus", 9.0)]))
    talk.agents(agent(total_resources=[scalar("cpus", 8.0)]))
    assert [each.capacity.cpu for each in talk.told(m.HostAppeared)] == [9 * UNIT, 8 * UNIT]
    talk.clear().until(APPEAR_AGAIN_S)
    assert len(talk.told(m.HostAppeared)) == 1, "announced twice, and repeated once"


def test_a_ping_is_answered_and_so_is_the_removal_of_volumes() -> None:
    talk = Talk.begun()
    volumes = ("v1",)
    talk.order(m.PingBackend(HOST), RemoveVolumes(HOST, 1, volumes))
    assert talk.reports == [(HOST, m.BackendUp()), (HOST, VolumesRemoved(volumes))]


def test_a_host_that_nobody_knows_is_told_that_it_left_and_takes_no_memory() -> None:
    talk = Talk.begun()
    stranger = Key("host/east.h9")
    talk.order(m.StartRuns(stranger, 1, (start(0),)), m.ForgetRuns(stranger, (name(0),)))
    assert talk.reports == [(stranger, m.BackendDown(LEFT))]
    assert stranger not in talk.it.agents.by_host


def test_an_event_of_another_kind_says_nothing() -> None:
    talk = Talk.begun()
    talk.it.heard({"type": "HEARTBEAT"}, 0.0)
    talk.it.heard({"type": "FAILURE", "failure": {"agent_id": {"value": "S0"}}}, 0.0)
    talk.it.heard({}, 0.0)
    assert talk.it.take() == ([], [])


# ---- launches ----


def test_a_launch_on_an_offer_at_hand() -> None:
    talk = Talk.begun()
    talk.offer(offer("O1"), offer("O2", cpus=1.0))
    talk.start(start(0, cpus=5.0))
    (accept,) = talk.called("ACCEPT")
    assert accept["offer_ids"] == [{"value": "O1"}, {"value": "O2"}]
    assert accept["filters"] == {"refuse_seconds": 0.0}
    assert talk.kinds == ["ACCEPT"] and talk.launched() == [[name(0)]]
    talk.update(status(name(0), "STARTING", uuid="u0"))
    assert talk.reports == []
    talk.update(status(name(0), "RUNNING", uuid="u1", timestamp=7.5))
    assert talk.reports == [(HOST, m.RunsStarted((name(0),), (7.5,)))]
    assert talk.acknowledged() == [(name(0), "u0"), (name(0), "u1")]


def test_orders_wait_for_an_offer_that_is_asked_for_once() -> None:
    talk = Talk.begun()
    talk.start(start(0), start(1))
    talk.start(start(2))
    assert talk.kinds == ["REVIVE"]
    talk.offer()
    assert talk.launched() == [[name(0), name(1), name(2)]] and talk.kinds == ["REVIVE", "ACCEPT"]


def test_a_run_that_waits_is_not_launched_once_its_end_is_journaled() -> None:
    """The link that was subscribed before found no offer for it, and was slow to say so."""
    talk = Talk.begun()
    talk.start(start(0), start(1))
    talk.order(m.ForgetRuns(HOST, (name(0),)))
    talk.offer()
    assert talk.launched() == [[name(1)]]
    talk.until(2 * OFFER_WAIT_S)
    assert talk.ends() == []


def test_offers_of_others_change_nothing_and_the_next_order_asks_again() -> None:
    talk = Talk.begun(agent("S0", "h0"), agent("S1", "h1"))
    talk.start(start(0))
    talk.offer(offer("O1", "S1"), offer("O2", "unknown"))
    assert talk.kinds == ["REVIVE"]
    talk.start(start(1))
    assert talk.kinds == ["REVIVE", "REVIVE"]


def test_what_fits_is_launched_and_the_others_wait() -> None:
    talk = Talk.begun()
    talk.start(start(0, cpus=3.0), start(1, cpus=3.0), start(2))
    talk.offer()
    assert talk.launched() == [[name(0), name(2)]]
    assert talk.kinds == ["REVIVE", "ACCEPT", "REVIVE"]
    talk.offer(offer("O2"))
    assert talk.launched()[1] == [name(1)]


def test_nothing_is_launched_on_an_offer_that_was_rescinded() -> None:
    talk = Talk.begun()
    talk.offer()
    talk.hear("RESCIND", offer_id={"value": "O1"})
    talk.start(start(0))
    assert talk.kinds == ["REVIVE"]


def test_an_offer_that_is_rescinded_too_late_is_a_loss_of_the_cluster() -> None:
    talk = Talk.begun()
    talk.offer()
    talk.start(start(0))
    talk.hear("RESCIND", offer_id={"value": "O1"})
    invalid = {"source": "SOURCE_MASTER", "reason": "REASON_INVALID_OFFERS"}
    talk.update(status(name(0), "DROPPED", **invalid))
    (end,) = talk.ends()
    assert (end.outcome.end, end.outcome.system) == (End.LOST, True)
    talk.order(m.ForgetRuns(HOST, (name(0),)))
    assert talk.acknowledged() == [], "the master's own have no id to acknowledge"


def test_offers_that_nobody_wants_are_declined_after_a_moment() -> None:
    talk = Talk.begun(agent("S0", "h0"), agent("S1", "h1"))
    talk.offer(offer("O1", "S0"), offer("O2", "S1"))
    talk.until(HOLD_S - 0.01)
    assert talk.calls == []
    talk.until(HOLD_S)
    (decline,) = talk.called("DECLINE")
    assert decline["offer_ids"] == [{"value": "O1"}, {"value": "O2"}]
    assert decline["filters"] == {"refuse_seconds": REFUSE_S}
    talk.start(start(0))
    assert talk.launched() == [] and talk.kinds == ["DECLINE", "REVIVE"]


def test_what_was_declined_after_we_had_asked_is_asked_for_again() -> None:
    talk = Talk.begun(agent("S0", "h0"), agent("S1", "h1"))
    talk.offer(offer("O1", "S1"))
    talk.start(start(0))
    talk.until(HOLD_S)
    talk.start(start(1), host=OTHER)
    assert talk.kinds == ["REVIVE", "DECLINE", "REVIVE"]


def test_a_run_that_finds_no_offer_is_lost_without_its_fault() -> None:
    talk = Talk.begun()
    talk.start(start(0))
    talk.until(10.0)
    talk.start(start(1))
    talk.clear().until(OFFER_WAIT_S - 0.01)
    assert talk.reports == []
    talk.until(OFFER_WAIT_S)
    (end,) = talk.ends()
    assert (end.run, end.outcome.end, end.outcome.system) == (name(0), End.LOST, True)
    assert end.outcome.message == "no offer of its host within 30 s"
    talk.clear().until(10.0 + OFFER_WAIT_S)
    assert [each.run for each in talk.ends()] == [name(1)]
    talk.offer()
    assert talk.launched() == []


def test_a_run_that_was_launched_in_time_is_not_lost() -> None:
    talk = Talk.begun()
    talk.start(start(0))
    talk.offer()
    talk.clear().until(2 * OFFER_WAIT_S)
    assert talk.reports == []


def test_an_invalid_order_ends_its_run_and_no_other() -> None:
    talk = Talk.begun()
    broken = m.StartRun(name(0), RunSpec(Resources(UNIT), "true", ports=(Port("http"),)), ())
    talk.offer()
    talk.start(broken, start(1))
    assert talk.launched() == [[name(1)]]
    (end,) = talk.ends()
    assert (end.run, end.outcome.end, end.outcome.system) == (name(0), End.FAILED, False)
    assert end.outcome.reason == "bad order" and "ValueError" in end.outcome.message


def test_what_mesos_cannot_do_ends_the_run() -> None:
    talk = Talk.begun()
    talk.offer()
    talk.start(start(0, containers=(Container("a", "true", init=True),)))
    (end,) = talk.ends()
    assert end.outcome.message.startswith(
        "cannot be ordered: not possible on a host of Mesos: init containers: "
    )
    assert "init containers" in end.outcome.message
    assert talk.calls == []


def test_a_run_that_is_known_is_not_launched_again_but_reported() -> None:
    talk = Talk.begun().running(0)
    talk.start(start(0))
    assert talk.reports == [(HOST, m.RunsStarted((name(0),), (50.0,)))] and talk.calls == []
    talk.update(status(name(0), "FAILED", uuid="e", message="Command exited with status 3"))
    (end,) = talk.clear().ends() or [talk.it.agents.by_host[HOST].runs.runs[name(0)].end]
    talk.start(start(0))
    assert talk.ends() == [end] and talk.calls == []


def test_a_run_that_waits_or_is_on_its_way_is_not_ordered_twice() -> None:
    talk = Talk.begun()
    talk.start(start(0))
    talk.start(start(0))
    talk.offer()
    talk.start(start(0))
    talk.offer(offer("O2"))
    assert talk.launched() == [[name(0)]] and talk.reports == []


def test_the_refusal_of_a_repeated_launch_is_no_end_and_is_looked_into() -> None:
    talk = Talk.begun()
    talk.offer()
    talk.start(start(0))
    refusal = {"source": "SOURCE_MASTER", "reason": "REASON_TASK_INVALID"}
    text = f"Task has duplicate ID: {name(0)}"
    talk.clear().update(status(name(0), "ERROR", message=text, **refusal))
    assert talk.reports == [] and talk.asked() == [[name(0)]]
    talk.update(reconciled(name(0), "RUNNING", timestamp=9.0))
    assert talk.reports == [(HOST, m.RunsStarted((name(0),), (9.0,)))]


def test_a_run_that_waits_and_is_found_running_is_not_launched_again() -> None:
    talk = Talk.begun()
    talk.start(start(0))
    talk.update(reconciled(name(0), "RUNNING", timestamp=9.0))
    assert talk.told(m.RunsStarted)
    talk.offer()
    talk.until(2 * OFFER_WAIT_S)
    assert talk.launched() == [] and talk.ends() == []


# ---- ends ----


def test_an_end_is_acknowledged_once_its_host_has_journaled_it_and_not_before() -> None:
    talk = Talk.begun().running(0)
    talk.update(
        status(
            name(0), "FINISHED", uuid="e", timestamp=60.0, message="Command exited with status 0"
        )
    )
    (end,) = talk.ends()
    assert (end.outcome.end, end.outcome.exit_code) == (End.SUCCEEDED, 0)
    assert (end.at, end.started_at) == (60.0, 50.0)
    assert talk.calls == []
    forget = m.ForgetRuns(HOST, (name(0), name(9)))
    talk.order(forget, forget)
    assert talk.acknowledged() == [(name(0), "e")]
    assert talk.it.agents.by_host[HOST].runs.runs == {}


def test_an_end_that_is_repeated_is_reported_again_and_is_the_same() -> None:
    talk = Talk.begun().running(0)
    over = status(name(0), "FAILED", uuid="e", message="Command exited with status 3")
    talk.update(over, over, reconciled(name(0), "FAILED"), reconciled(name(0), "GONE"))
    assert len(talk.ends()) == 4 and len({*talk.ends()}) == 1
    talk.order(m.ForgetRuns(HOST, (name(0),)))
    assert talk.acknowledged() == [(name(0), "e")]


def test_an_end_that_was_forgotten_and_comes_again_is_acknowledged_again() -> None:
    """Its acknowledgement and the repeat have crossed."""
    talk = Talk.begun().running(0)
    over = status(name(0), "FINISHED", uuid="e")
    talk.update(over)
    talk.order(m.ForgetRuns(HOST, (name(0),)))
    talk.update(over)
    assert [each.run for each in talk.ends()] == [name(0), name(0)]
    talk.order(m.ForgetRuns(HOST, (name(0),)))
    assert talk.acknowledged() == [(name(0), "e")] * 2
    assert talk.it.agents.by_host[HOST].runs.runs == {}


def test_a_run_that_goes_on_cannot_be_forgotten() -> None:
    talk = Talk.begun().running(0)
    talk.order(m.ForgetRuns(HOST, (name(0),)))
    assert name(0) in talk.it.agents.by_host[HOST].runs.runs and talk.calls == []


@pytest.mark.parametrize("state", ["RUNNING", "STARTING"])
def test_what_goes_on_after_the_master_has_given_it_up_is_killed(state: str) -> None:
    talk = Talk.begun().running(0)
    talk.update(reconciled(name(0), "GONE"))
    assert [each.outcome.end for each in talk.ends()] == [End.LOST]
    talk.clear().update(status(name(0), state, uuid="u2"))
    assert talk.reports == [] and talk.killed() == [(name(0), 0.0)]
    assert talk.acknowledged() == [(name(0), "u2")]
    talk.clear().update(status(name(0), "KILLING", uuid="u3"))
    assert talk.killed() == []
    talk.update(status(name(0), "KILLED", uuid="e"))
    assert [each.outcome.end for each in talk.ends()] == [End.LOST], "a result at most once"
    talk.order(m.ForgetRuns(HOST, (name(0),)))
    assert talk.acknowledged() == [(name(0), "u3"), (name(0), "e")]


def test_what_goes_on_after_its_end_was_forgotten_is_reported_for_its_host_to_kill() -> None:
    talk = Talk.begun().running(0)
    talk.update(reconciled(name(0), "GONE"))
    talk.order(m.ForgetRuns(HOST, (name(0),)))
    talk.clear().update(status(name(0), "RUNNING", uuid="u2", timestamp=50.0))
    assert talk.reports == [(HOST, m.RunsStarted((name(0),), (50.0,)))]
    talk.order(m.StopRuns(HOST, 1, (name(0),), 5.0))
    assert talk.killed() == [(name(0), 5.0)]


def test_an_old_word_of_the_master_after_the_end_kills_nothing() -> None:
    talk = Talk.begun().running(0)
    talk.update(status(name(0), "FINISHED", uuid="e"))
    talk.clear().update(reconciled(name(0), "RUNNING"))
    assert talk.calls == [] and talk.reports == []


def test_a_run_out_of_reach_has_not_ended_and_goes_on_afterwards() -> None:
    talk = Talk.begun().running(0)
    talk.update(status(name(0), "UNREACHABLE", source="SOURCE_MASTER"))
    back = {"source": "SOURCE_MASTER", "reason": "REASON_AGENT_REREGISTERED"}
    talk.update(status(name(0), "RUNNING", timestamp=99.0, **back))
    assert talk.reports == [] and talk.calls == []
    talk.update(status(name(0), "FINISHED", uuid="e"))
    assert [each.started_at for each in talk.ends()] == [50.0]


@pytest.mark.parametrize("state", ["UNREACHABLE", "OF_A_LATER_MESOS"])
def test_of_what_nobody_knows_no_run_is_made(state: str) -> None:
    talk = Talk.begun()
    talk.update(status(name(0), state, uuid="u"))
    assert talk.acknowledged() == [(name(0), "u")] and talk.reports == []
    assert talk.it.agents.by_host[HOST].runs.runs == {}


# ---- kills ----


def test_a_run_that_waits_is_killed_before_it_begins() -> None:
    talk = Talk.begun()
    talk.start(start(0))
    stop = m.StopRuns(HOST, 1, (name(0),), 5.0)
    talk.order(stop, stop)
    assert talk.ends() == [] and talk.asked() == [[name(0)]], "an owner before may have launched it"
    talk.update(reconciled(name(0), "UNKNOWN"))
    assert [each.outcome.end for each in talk.ends()] == [End.KILLED]
    talk.offer()
    assert talk.launched() == []
    talk.order(m.ForgetRuns(HOST, (name(0),)))
    assert talk.acknowledged() == []


def test_a_run_that_an_owner_before_has_launched_is_killed_there() -> None:
    talk = Talk.begun()
    talk.start(start(0))
    talk.clear().order(m.StopRuns(HOST, 1, (name(0),), 5.0))
    talk.update(reconciled(name(0), "RUNNING"))
    assert talk.killed() == [(name(0), 5.0)] and talk.ends() == []
    talk.update(status(name(0), "FINISHED", uuid="u"))
    assert [each.outcome.end for each in talk.ends()] == [End.SUCCEEDED]


def test_a_run_is_killed_with_the_grace_of_its_order() -> None:
    talk = Talk.begun().running(0)
    talk.order(m.StopRuns(HOST, 1, (name(0),), 2.5))
    talk.order(m.StopRuns(HOST, 1, (name(0),), 0.0))
    assert talk.killed() == [(name(0), 2.5), (name(0), 0.0)]
    (call, _) = talk.called("KILL")
    assert call["agent_id"] == {"value": "S0"}
    text = "Command terminated with signal Killed"
    talk.update(status(name(0), "KILLED", uuid="e", message=text))
    (end,) = talk.ends()
    assert (end.outcome.end, end.outcome.signal) == (End.KILLED, "SIGKILL")
    talk.order(m.StopRuns(HOST, 1, (name(0),), 2.5))
    assert talk.ends() == [end, end] and len(talk.killed()) == 2


def test_a_kill_that_overtakes_the_launch_is_repeated_once_it_runs() -> None:
    talk = Talk.begun()
    talk.offer()
    talk.start(start(0))
    talk.order(m.StopRuns(HOST, 1, (name(0),), 5.0))
    talk.update(status(name(0), "RUNNING", uuid="u"), reconciled(name(0), "RUNNING"))
    assert talk.killed() == [(name(0), 5.0)] * 2


def test_for_a_kill_of_an_unknown_run_the_host_is_asked_to_compare() -> None:
    talk = Talk.begun().running(0)
    talk.order(m.StopRuns(HOST, 1, (name(5), name(0)), 5.0))
    assert talk.reports == [(HOST, m.BackendUp())] and talk.killed() == [(name(0), 5.0)]


# ---- epochs ----


def test_orders_of_an_older_epoch_are_neither_obeyed_nor_answered() -> None:
    talk = Talk.begun(agent("S0", "h0"), agent("S1", "h1")).running(0)
    talk.order(m.ListRuns(HOST, 3))
    talk.clear()
    talk.start(start(1), epoch=2)
    talk.order(m.StopRuns(HOST, 2, (name(0),), 0.0), m.ListRuns(HOST, 2, 5.0))
    assert talk.calls == [] and talk.reports == []
    talk.start(start(2), epoch=1, host=OTHER)
    talk.start(start(3), epoch=3)
    talk.offer(offer("O1"), offer("O2", "S1"))
    assert talk.launched() == [[name(3)], [name(2)]]


def test_an_epoch_is_that_of_the_host_also_under_a_new_id_of_its_agent() -> None:
    talk = Talk.begun()
    talk.order(m.ListRuns(HOST, 3))
    talk.agents(agent("S7", "h0"))
    talk.start(start(0), epoch=2)
    talk.offer(offer("O1", "S7"))
    assert talk.launched() == []


def test_a_run_whose_executor_goes_before_it_began_is_lost() -> None:
    talk = Talk.begun().running(1)
    talk.start(start(0))
    talk.offer()
    gone = {"source": "SOURCE_AGENT", "reason": "REASON_EXECUTOR_TERMINATED"}
    for number in (0, 1):
        talk.update(status(name(number), "FAILED", uuid=f"e-{number}", **gone))
    assert [end.outcome.end for end in talk.ends()] == [End.LOST, End.FAILED]
