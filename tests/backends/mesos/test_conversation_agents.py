"""What runs at agents that come back, and at those that are not the host of their machine."""

from __future__ import annotations

from peloton.actors.host import messages as m
from peloton.backends.mesos.agents import NAMES_MAX, FormerRuns
from peloton.backends.mesos.early_updates import KEPT_MAX
from peloton.backends.mesos.lists import LIST_WAIT_S
from peloton.backends.mesos.master_list import AGAIN_S, PAUSE_S, AskTimes, MasterList
from peloton.backends.mesos.reconciliation import SOON_S
from peloton.backends.mesos.runs.keeper_tasks import KeeperProgram
from tests.backends.known_sets import known_sets
from tests.backends.mesos.bench import HOST, OTHER, Talk, name, start
from tests.backends.mesos.words import agent, offer, reconciled, status

ASK = m.ListRuns(HOST, 1, 7.0, known_sets(name(0)))
"""The host believes in the first run."""
NOTHING = m.ListRuns(HOST, 1, 7.0)


# ---- an agent comes back ----


def test_what_goes_on_at_an_agent_that_comes_back_is_listed() -> None:
    """It was away for less than the master gives it, so this says nothing; its host may have given
    the run up."""
    talk = Talk.begun().running(0)
    talk.agents(agent(active=False))
    talk.agents(agent())
    talk.clear().order(NOTHING)
    assert talk.asked() == [[name(0)]] and talk.reports == []
    talk.update(reconciled(name(0), "RUNNING", timestamp=70.0))
    (found,) = talk.told(m.RunsListed)
    assert found.running == (name(0),)
    talk.order(m.StopRuns(HOST, 1, (name(0),), 0.0))
    assert talk.killed() == [(name(0), 0.0)]


def test_what_has_ended_at_an_agent_that_comes_back_is_not_asked_for() -> None:
    talk = Talk.begun().running(0, 1)
    talk.update(status(name(0), "FINISHED", uuid="e"))
    talk.start(start(2))
    talk.agents()
    talk.agents(agent())
    talk.clear().order(NOTHING)
    assert talk.asked() == [[name(1)]], "nor what waited for an offer"
    talk.update(reconciled(name(1), "GONE"))
    (found,) = talk.told(m.RunsListed)
    assert [end.run for end in found.ends] == [name(1)] and found.running == ()


def test_a_run_that_was_launched_at_an_agent_that_comes_back_is_not_launched_again() -> None:
    """It takes the room that it would wait for."""
    talk = Talk.begun()
    talk.offer()
    talk.start(start(0))
    talk.agents()
    talk.agents(agent())
    talk.clear().start(start(0))
    assert talk.calls == []


def test_a_run_that_was_launched_is_not_launched_at_the_next_agent_of_its_host() -> None:
    """The one before may come back, or its executors may not have noticed yet."""
    talk = Talk.begun()
    talk.offer()
    talk.start(start(0))
    talk.agents()
    talk.start(start(1))
    talk.agents(agent("S7"))
    talk.order(NOTHING)
    talk.clear().start(start(0), start(1))
    talk.offer(offer("O7", "S7"))
    assert talk.launched() == [[name(1)]]
    talk.clear().update(reconciled(name(0), "GONE", "S7"))
    (found,) = talk.told(m.RunsListed)
    assert [end.run for end in found.ends] == [name(0)]


def test_of_what_went_on_at_agents_that_left_only_so_much_is_kept() -> None:
    former = FormerRuns()
    former.keep(OTHER, "a", agent_id="S1")
    for number in range(NAMES_MAX - 1):
        former.keep(HOST, f"b{number}", agent_id="S0")
    former.keep(HOST, "b0", agent_id="S2")
    assert former.hosts == [OTHER, HOST]
    former.keep(HOST, "one more", agent_id="S0")
    assert former.hosts == [HOST] and former.take(OTHER) == {}
    assert len(kept := former.take(HOST)) == NAMES_MAX and kept["b0"] == "S2"
    former.keep(OTHER, "c", agent_id="S1")
    assert former.take(OTHER) == {"c": "S1"} and former.hosts == []


def test_agents_that_do_not_come_take_no_room_of_those_that_do() -> None:
    talk = Talk.begun(agent("S0", "h0"), agent("S1", "h1"))
    talk.agents(agent("S1", "h1"))
    talk.update(*(status(name(one), "UNREACHABLE", "S0") for one in range(KEPT_MAX + 1)))
    talk.clear().update(status(name(0, 2), "FINISHED", "S2", uuid="e"))
    talk.agents(agent("S1", "h1"), agent("S2", "h0"))
    assert [end.run for end in talk.ends()] == [name(0, 2)] and talk.asked() == []


# ---- several agents on one machine ----


def test_a_run_at_an_agent_that_is_not_the_host_is_listed_and_can_be_killed() -> None:
    """It began when that agent was the host, as the daemon before us had it."""
    talk = Talk.begun(agent("S1"), agent("S0"))
    talk.order(ASK)
    assert talk.asked() == [[name(0)]]
    talk.update(reconciled(name(0), "RUNNING", "S0", timestamp=70.0))
    (found,) = talk.told(m.RunsListed)
    assert found.running == (name(0),)
    talk.clear().order(m.StopRuns(HOST, 1, (name(0),), 2.0))
    assert [each["agent_id"] for each in talk.called("KILL")] == [{"value": "S0"}]
    talk.update(status(name(0), "KILLED", "S0", uuid="e"))
    assert [end.run for end in talk.ends()] == [name(0)]
    talk.order(m.ForgetRuns(HOST, (name(0),)))
    (told,) = talk.called("ACKNOWLEDGE")
    assert (told["agent_id"], told["uuid"]) == ({"value": "S0"}, "e")


def test_what_an_agent_said_before_it_was_known_beside_the_host_is_heard() -> None:
    talk = Talk.begun(agent("S1"))
    talk.update(status(name(0), "RUNNING", "S0", uuid="u", timestamp=70.0))
    assert talk.reports == [] and talk.calls == []
    talk.agents(agent("S1"), agent("S0"))
    assert talk.told(m.RunsStarted) == [m.RunsStarted((name(0),), (70.0,))]
    (told,) = talk.called("ACKNOWLEDGE")
    assert told["agent_id"] == {"value": "S0"}


def test_another_agent_becomes_the_host_and_the_runs_of_the_one_before_go_on() -> None:
    """That one is disconnected, and comes back: meanwhile nothing is launched twice."""
    talk = Talk.begun(agent("S0"), agent("S1")).running(0)
    talk.offer()
    talk.start(start(1))
    talk.agents(agent("S0", active=False), agent("S1"))
    assert talk.it.agents.by_host[HOST].agent_id == "S1"
    talk.clear().order(ASK)
    talk.start(start(1))
    assert talk.asked() == [[name(0), name(1)]] and talk.kinds == ["RECONCILE"]
    talk.update(reconciled(name(0), "RUNNING", "S0"), reconciled(name(1), "STAGING", "S0"))
    assert talk.told(m.RunsListed)[0].running == (name(0), name(1))
    talk.agents(agent("S0"), agent("S1"))
    talk.clear().update(status(name(1), "RUNNING", "S0", uuid="u"))
    assert [each.runs for each in talk.told(m.RunsStarted)] == [(name(1),)]


def test_where_an_agent_beside_the_host_leaves_the_host_compares() -> None:
    talk = Talk.begun(agent("S0"), agent("S1")).running(0)
    talk.agents(agent("S0", active=False), agent("S1"))
    talk.clear().agents(agent("S0", active=False), agent("S1"))
    assert talk.reports == []
    talk.agents(agent("S1"))
    assert [type(each) for _, each in talk.reports] == [m.HostAppeared]
    talk.order(ASK)
    talk.update(reconciled(name(0), "GONE", "S1"))
    assert [end.run for end in talk.told(m.RunsListed)[0].ends] == [name(0)]
    talk.clear().agents(agent("S0"), agent("S1"))
    talk.update(status(name(0), "RUNNING", "S0", source="SOURCE_MASTER"))
    assert talk.killed() == [(name(0), 0.0)], "its result is known already"
    assert [each["agent_id"] for each in talk.called("KILL")] == [{"value": "S0"}]


def test_offers_and_executors_of_agents_that_are_not_the_host_are_of_no_use() -> None:
    talk = Talk(KeeperProgram("run it"))
    talk.subscribe(agent("S0"), agent("S1"))
    talk.start(start(0))
    talk.clear().offer(offer("O1", "S1"))
    assert talk.calls == []
    talk.offer(offer("O2", "S0"))
    assert talk.launched() == [[name(0)]]
    (keeper,) = (one.keeper for one in talk.it.agents.by_host.values())
    assert keeper is not None and keeper.executor_id
    short = "required by task and its executor is more than available"
    more = {"reason": "REASON_TASK_INVALID", "message": short, "source": "SOURCE_MASTER"}
    talk.update(status(name(1), "ERROR", "S1", **more))
    assert keeper.executor_id
    talk.update(status(name(2), "ERROR", "S0", **more))
    assert not keeper.executor_id


def test_an_agent_beside_no_host_is_a_stranger() -> None:
    talk = Talk.begun(agent("S0"), agent("S1", "h1", active=False))
    assert talk.it.agents.at("S1") is talk.it.agents.at("S9") is None
    assert talk.it.agents.at("S0") is talk.it.agents.by_host[HOST]
    assert OTHER not in talk.it.agents.by_host


def test_the_address_is_that_of_the_last_list() -> None:
    talk = Talk.begun(agent(pid="slave(1)@10.0.0.1:5051"))
    talk.agents(agent(pid="slave(1)@10.0.0.2:5051"))
    assert talk.it.agents.machine_of(HOST) == ("h0", "10.0.0.2")


# ---- when the master is asked ----


def test_a_list_that_was_asked_for_earlier_than_the_one_before_is_not_told() -> None:
    """Two threads ask; what is told last may be older, and without an agent that came meanwhile."""
    talk = Talk.begun()
    talk.it.told_agents(MasterList((agent(), agent("S1", "h1")), number=2), 0.0)
    talk.it.told_agents(MasterList((agent(),), number=1), 0.0)
    assert OTHER in talk.it.agents.by_host
    talk.it.told_agents(MasterList((agent(),), number=3), 0.0)
    assert OTHER not in talk.it.agents.by_host


def test_questions_are_numbered_and_what_a_pause_forbids_is_asked_after_it() -> None:
    times = AskTimes()
    assert times.is_due(100.0) and times.next_at == 100.0 + AGAIN_S
    assert (times.asked(100.0), times.asked(101.0)) == (1, 2)
    assert not times.may_ask(101.5)
    assert times.next_at == 101.0 + PAUSE_S
    assert not times.is_due(101.9) and times.is_due(102.0)


def test_what_the_master_is_about_to_answer_it_is_not_asked_again_for_a_while() -> None:
    """A host asks every few seconds; a master with much to say would only get more to say."""
    talk = Talk.begun()
    both = m.ListRuns(HOST, 1, 9.0, known_sets(name(0), name(1)))
    talk.order(ASK)
    talk.until(0.5 * LIST_WAIT_S)
    talk.order(both)
    assert talk.asked() == [[name(0)], [name(1)]]
    talk.update(reconciled(name(0), "RUNNING"))
    assert talk.told(m.RunsListed) == []
    talk.update(reconciled(name(1), "RUNNING"))
    (found,) = talk.told(m.RunsListed)
    assert found.running == (name(0), name(1)) and found.asked_at == 9.0
    talk.clear().order(ASK)
    talk.until(LIST_WAIT_S)
    talk.order(ASK)
    talk.until(1.5 * LIST_WAIT_S)
    talk.order(ASK)
    talk.until(2.2 * LIST_WAIT_S)
    assert talk.asked() == [[name(0), name(1)]] * 2, "once more after a while"


def test_an_end_that_the_master_told_before_an_outage_waits_anew_for_its_executor() -> None:
    talk = Talk.begun().running(0)
    talk.update(reconciled(name(0), "FAILED"))
    talk.disconnect()
    talk.now = 1000.0  # nobody looks at times while away
    talk.subscribe(agent())
    talk.clear().update(reconciled(name(0), "FAILED"))
    talk.until(1001.0)
    assert talk.ends() == []
    talk.update(status(name(0), "FAILED", uuid="e", message="Command exited with status 3"))
    assert [end.outcome.exit_code for end in talk.ends()] == [3]


def test_some_time_after_agents_have_come_all_is_asked_for() -> None:
    """A master that has failed over says nothing of what runs there, which no host may believe in
    any more."""
    talk = Talk.begun(agent("S0"))
    talk.until(10.0)
    talk.agents(agent("S0"), agent("S1"))
    talk.until(20.0)
    talk.agents(agent("S0"), agent("S1"), agent("S2", "h2"))
    assert talk.asked() == []
    talk.until(10.0 + SOON_S)
    assert talk.asked() == [[]]
    talk.update(reconciled(name(0), "RUNNING", "S1", timestamp=70.0))
    assert talk.told(m.RunsStarted) == [m.RunsStarted((name(0),), (70.0,))]
    talk.agents(agent("S1"))
    talk.until(20.0 + 2 * SOON_S)
    assert talk.asked() == [[]], "nobody has come since"


def test_agents_of_the_first_list_of_a_subscription_are_asked_for_with_it() -> None:
    talk = Talk.begun(agent("S0"))
    talk.disconnect()
    talk.subscribe(agent("S0"), agent("S1"))
    talk.clear().until(2 * SOON_S)
    assert talk.asked() == []
    talk.disconnect()
    talk.agents(agent("S2"))
    talk.clear().until(4 * SOON_S)
    assert talk.calls == [], "nobody is there to answer"
