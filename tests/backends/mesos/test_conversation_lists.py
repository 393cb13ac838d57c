"""Lists, and what becomes of runs and hosts while the connection or an agent is away."""

from __future__ import annotations

import math

from peloton.actors.host import messages as m
from peloton.actors.host.live.live_messages import KnownSet
from peloton.actors.task.messages import End
from peloton.actors.task.run_messages import HealthCheck
from peloton.backends.mesos.conversation import HEARSAY_WAIT_S, LEFT
from peloton.backends.mesos.early_updates import KEPT_MAX, EarlyUpdates
from peloton.backends.mesos.lists import LIST_WAIT_S
from peloton.backends.mesos.offering import OFFER_WAIT_S
from peloton.backends.mesos.reconciliation import EVERY_S
from peloton.runtime.vocabulary import Bits, Key
from tests.backends.known_sets import known_sets
from tests.backends.mesos.bench import HOST, JOB, OTHER, Talk, name, start
from tests.backends.mesos.words import agent, offer, reconciled, status

CODE = "Command exited with status 3"


def ask(*known: int, asked_at: float = 7.0) -> m.ListRuns:
    return m.ListRuns(HOST, 1, asked_at, known_sets(*(name(one) for one in known)))


def listed(talk: Talk) -> tuple[list[str], list[str], float]:
    """What runs and what has ended by the one list that was given."""
    (found,) = talk.told(m.RunsListed)
    return sorted(found.running), sorted(end.run for end in found.ends), found.asked_at


# ---- lists ----


def test_a_list_of_nothing_is_given_at_once() -> None:
    talk = Talk.begun()
    talk.order(ask())
    assert listed(talk) == ([], [], 7.0) and talk.calls == []


def test_a_list_is_given_when_each_run_was_answered_for() -> None:
    talk = Talk.begun()
    talk.order(ask(0, 1, 2))
    assert talk.asked() == [[name(0), name(1), name(2)]] and talk.reports == []
    talk.update(reconciled(name(0), "RUNNING", timestamp=9.0), reconciled(name(1), "GONE"))
    talk.update(reconciled(name(0), "RUNNING", timestamp=9.5), status(name(2), "UNREACHABLE"))
    assert talk.told(m.RunsListed) == []
    talk.update(reconciled(name(2), "STAGING", timestamp=9.0))
    assert listed(talk) == ([name(0), name(2)], [name(1)], 7.0)
    (found,) = talk.told(m.RunsListed)
    assert dict(zip(found.running, found.started, strict=True)) == {name(0): 9.0, name(2): 0.0}
    assert found.ends[0].outcome.end is End.LOST
    talk.clear().until(2 * LIST_WAIT_S)
    assert talk.reports == []


def test_what_is_known_as_sets_is_asked_for_too() -> None:
    talk = Talk.begun()
    some = KnownSet(Key(f"task/{JOB}/0"), 1, Bits.of(0, 2), 0.0)
    talk.order(m.ListRuns(HOST, 1, 7.0, (some,)))
    assert talk.asked() == [[name(0), name(2)]]


def test_ends_and_what_waits_are_known_and_not_asked_for() -> None:
    talk = Talk.begun().running(0)
    talk.update(status(name(0), "FAILED", uuid="e", message=CODE))
    talk.start(start(1))
    talk.clear().order(ask(0))
    assert listed(talk) == ([name(1)], [name(0)], 7.0) and talk.asked() == []
    assert talk.told(m.RunsListed)[0].started == (0.0,), "it has not begun"


def test_what_we_have_launched_is_asked_for_though_its_host_does_not_count_on_it_yet() -> None:
    """The master may never have got the launch: then it is not there, and must not be listed."""
    talk = Talk.begun()
    talk.offer()
    talk.start(start(0))
    talk.clear().order(ask())
    assert talk.asked() == [[name(0)]] and talk.reports == []
    talk.update(reconciled(name(0), "GONE"))
    assert listed(talk) == ([], [name(0)], 7.0)


def test_a_list_that_comes_too_late_is_no_list() -> None:
    talk = Talk.begun()
    talk.order(ask(0))
    talk.until(LIST_WAIT_S)
    assert [type(each) for _, each in talk.reports] == [m.BackendDown]
    talk.update(reconciled(name(0), "RUNNING"))
    assert talk.told(m.RunsListed) == []
    talk.clear().order(m.PingBackend(HOST))
    assert talk.told(m.BackendUp)


def test_the_last_request_is_answered() -> None:
    talk = Talk.begun()
    talk.order(ask(0, asked_at=1.0))
    talk.until(5.0)
    talk.order(ask(0, asked_at=2.0))
    talk.until(LIST_WAIT_S)
    assert talk.told(m.BackendDown) == []
    talk.update(reconciled(name(0), "RUNNING"))
    assert listed(talk) == ([name(0)], [], 2.0)


def test_orphans_are_reported_and_listed() -> None:
    talk = Talk()
    talk.subscribe(agent())
    talk.update(reconciled(name(8), "RUNNING", timestamp=3.0))
    assert talk.told(m.RunsStarted) == [m.RunsStarted((name(8),), (3.0,))]
    talk.clear().order(ask())
    talk.update(reconciled(name(8), "RUNNING", timestamp=3.0))
    assert listed(talk) == ([name(8)], [], 7.0)
    talk.order(m.StopRuns(HOST, 1, (name(8),), 0.0))
    assert talk.killed() == [(name(8), 0.0)]


def test_a_thousand_runs_and_more_are_asked_for_in_parts() -> None:
    talk = Talk.begun()
    talk.order(ask(*range(1001)))
    assert [len(each) for each in talk.asked()] == [1000, 1]


def test_a_default_request_has_no_time() -> None:
    talk = Talk.begun()
    talk.order(m.ListRuns(HOST, 1))
    assert listed(talk)[2] == math.inf


# ---- ends that the master tells ----


def test_of_an_end_that_the_master_tells_the_executor_says_more() -> None:
    talk = Talk()
    talk.subscribe(agent())
    talk.clear().order(ask(0))
    talk.update(reconciled(name(0), "FAILED", timestamp=99.0))
    assert talk.reports == []
    talk.update(status(name(0), "FAILED", uuid="e", message=CODE, timestamp=60.0))
    (end,) = talk.ends()
    assert (end.outcome.exit_code, end.outcome.system, end.at) == (3, False, 60.0)
    assert listed(talk) == ([], [name(0)], 7.0)
    talk.clear().until(2 * HEARSAY_WAIT_S)
    assert talk.reports == []


def test_what_the_master_tells_is_believed_if_the_executor_says_nothing() -> None:
    talk = Talk.begun().running(0)
    talk.order(ask(0))
    talk.update(reconciled(name(0), "FAILED", timestamp=99.0), reconciled(name(0), "FAILED"))
    talk.until(HEARSAY_WAIT_S)
    (end,) = talk.ends()
    assert (end.outcome.end, end.outcome.exit_code, end.outcome.system) == (End.FAILED, None, False)
    assert listed(talk) == ([], [name(0)], 7.0)
    talk.clear().update(status(name(0), "FAILED", uuid="e", message=CODE))
    assert talk.ends() == [end], "a result at most once"
    talk.order(m.ForgetRuns(HOST, (name(0),)))
    assert talk.acknowledged() == [(name(0), "e")]


def test_what_the_master_told_before_the_connection_was_lost_is_asked_for_anew() -> None:
    talk = Talk.begun().running(0)
    talk.update(reconciled(name(0), "FAILED"))
    talk.disconnect()
    talk.clear().until(HEARSAY_WAIT_S)
    assert talk.reports == []
    talk.subscribe(agent())
    talk.update(reconciled(name(0), "FAILED"))
    talk.clear().until(2 * HEARSAY_WAIT_S)
    assert [each.run for each in talk.ends()] == [name(0)]


def test_what_the_master_tells_of_a_run_that_was_forgotten_just_now_makes_none_of_it() -> None:
    """Its answer was on the way while the host forgot the end, and the agent heard of that."""
    talk = Talk()
    talk.subscribe(agent())
    talk.update(status(name(0), "FAILED", uuid="e", message=CODE))
    talk.order(m.ForgetRuns(HOST, (name(0),)))
    talk.clear().update(reconciled(name(0), "FAILED"))
    talk.order(ask())
    assert listed(talk) == ([], [], 7.0) and talk.asked() == []
    talk.clear().until(2 * HEARSAY_WAIT_S)
    assert talk.ends() == []


def test_an_end_on_an_agent_that_is_not_known_again_yet_is_told_once_it_is() -> None:
    """As when it was out of reach: the agent says it at once, and then not for ten seconds."""
    talk = Talk.begun().running(0)
    talk.agents()
    back = {"source": "SOURCE_MASTER", "reason": "REASON_AGENT_REREGISTERED"}
    talk.clear().update(
        status(name(0), "FAILED", **back),
        status(name(0), "FAILED", uuid="e", message=CODE, timestamp=60.0),
        status(name(0), "FAILED", uuid="e", message=CODE, timestamp=60.0),
    )
    assert talk.reports == [] and talk.calls == []
    talk.agents(agent())
    (end,) = talk.ends()
    assert (end.outcome.exit_code, end.at) == (3, 60.0)
    talk.clear().order(ask(0))
    assert listed(talk) == ([], [name(0)], 7.0) and talk.asked() == []
    talk.order(m.ForgetRuns(HOST, (name(0),)))
    assert talk.acknowledged() == [(name(0), "e")]


def test_what_came_too_early_is_dropped_with_the_connection() -> None:
    talk = Talk.begun()
    talk.agents()
    talk.update(status(name(0), "FAILED", uuid="e", message=CODE))
    talk.disconnect()
    talk.subscribe(agent())
    assert talk.ends() == []


def test_of_what_comes_too_early_only_so_much_is_kept() -> None:
    early = EarlyUpdates()
    for number in range(KEPT_MAX + 5):
        early.keep("S0", status(name(number), "RUNNING", uuid="u"))
    early.keep("S1", status(name(0), "RUNNING", "S1", uuid="u"))
    assert early.take_missed() and not early.take_missed()
    assert len(early.take("S0")) == KEPT_MAX - 1 and early.take("S0") == []
    assert len(early.take("S1")) == 1, "the oldest leave: their agent may never come"
    early.keep("S1", status(name(0), "RUNNING", "S1", uuid="u"))
    early.keep("S1", reconciled(name(1), "RUNNING", "S1"))
    assert len(early.take("S1")) == 2 and not early.take_missed()


def test_of_what_comes_too_early_the_words_of_agents_come_before_those_of_the_master() -> None:
    early = EarlyUpdates()
    ended, heard = status(name(0), "FAILED", uuid="e"), reconciled(name(0), "RUNNING")
    for kept in (heard, ended, heard):
        early.keep("S0", kept)
    assert early.take("S0") == [ended]


def test_what_the_master_says_of_a_stranger_makes_its_orphans_known() -> None:
    talk = Talk.begun()
    talk.agents()
    talk.clear().update(reconciled(name(0), "RUNNING", timestamp=9.0))
    assert talk.reports == []
    talk.agents(agent())
    (found,) = talk.told(m.RunsStarted)
    assert found.runs == (name(0),), "its host may have begun it anew elsewhere"
    talk.clear().order(ask())
    assert talk.asked() == [[name(0)]]


def test_what_came_too_early_and_was_not_kept_is_asked_for() -> None:
    talk = Talk.begun()
    talk.agents()
    talk.update(*(reconciled(name(number), "RUNNING") for number in range(KEPT_MAX + 1)))
    talk.clear().agents(agent())
    assert len(talk.told(m.RunsStarted)) == KEPT_MAX and talk.asked() == [[]]
    talk.clear().agents(agent(), agent("S1", "h1"))
    assert talk.asked() == []


def test_every_while_the_master_is_asked_for_all_there_is() -> None:
    talk = Talk.begun()
    talk.until(0.9 * EVERY_S)
    assert talk.asked() == []
    talk.until(1.1 * EVERY_S)
    assert talk.asked() == [[]]
    talk.clear().disconnect()
    talk.until(3 * EVERY_S)
    assert talk.asked() == []
    talk.subscribe(agent())
    talk.until(4.1 * EVERY_S)
    assert talk.asked() == [[], []], "at the subscription, and after a while"


# ---- the connection is lost ----


def test_all_hosts_hear_of_an_outage_and_compare_after_it() -> None:
    talk = Talk.begun(agent("S0", "h0"), agent("S1", "h1"))
    talk.disconnect()
    down = m.BackendDown("gone")
    assert talk.reports == [(HOST, down), (OTHER, down)]
    talk.clear().subscribe(agent("S0", "h0"), agent("S1", "h1"))
    assert talk.reports == [(HOST, m.BackendUp()), (OTHER, m.BackendUp())]
    assert talk.asked() == [[]]


def test_orders_while_away_are_answered_and_not_obeyed() -> None:
    talk = Talk.begun().running(0)
    talk.disconnect()
    talk.clear().start(start(1))
    talk.order(m.StopRuns(HOST, 1, (name(0),), 0.0), ask(0), m.PingBackend(HOST))
    assert talk.told(m.BackendDown) == [m.BackendDown("gone")] * 4
    talk.subscribe(agent())
    talk.offer()
    assert talk.launched() == [] and talk.killed() == []


def test_what_waited_for_an_offer_is_ordered_anew() -> None:
    """It must not be lost for the time of the outage, nor be listed: the host orders it again."""
    talk = Talk.begun()
    talk.start(start(0))
    talk.disconnect()
    talk.clear().until(2 * OFFER_WAIT_S)
    talk.subscribe(agent())
    assert talk.ends() == []
    talk.clear().order(ask())
    assert listed(talk) == ([], [], 7.0)
    talk.start(start(0))
    assert talk.kinds == ["REVIVE"]
    talk.offer()
    assert talk.launched() == [[name(0)]]


def test_calls_that_were_not_sent_are_not_sent_to_the_next_subscription() -> None:
    talk = Talk.begun()
    talk.it.heard({"type": "OFFERS", "offers": {"offers": [offer("O1")]}}, 0.0)
    talk.it.ordered(m.StartRuns(HOST, 1, (start(0),)), 0.0)
    talk.disconnect()
    talk.subscribe(agent())
    assert talk.kinds == ["RECONCILE"]
    talk.order(ask())
    assert talk.asked() == [[], [name(0)]], "nobody knows whether it was launched"


def test_offers_of_before_are_void() -> None:
    talk = Talk.begun()
    talk.offer()
    talk.disconnect()
    talk.subscribe(agent())
    talk.clear().start(start(0))
    assert talk.kinds == ["REVIVE"]


def test_an_end_that_is_forgotten_while_away_is_acknowledged_when_it_comes_again() -> None:
    talk = Talk.begun().running(0)
    over = status(name(0), "FINISHED", uuid="e")
    talk.update(over)
    talk.disconnect()
    talk.order(m.ForgetRuns(HOST, (name(0),)))
    assert talk.acknowledged() == []
    talk.subscribe(agent())
    talk.clear().update(over)
    assert [each.run for each in talk.ends()] == [name(0)]
    talk.order(m.ForgetRuns(HOST, (name(0),)))
    assert talk.acknowledged() == [(name(0), "e")]
    assert talk.it.agents.by_host[HOST].runs.runs == {}


def test_a_list_that_was_asked_for_before_is_not_given_afterwards() -> None:
    talk = Talk.begun()
    talk.order(ask(0))
    talk.disconnect()
    talk.subscribe(agent())
    talk.update(reconciled(name(0), "RUNNING"))
    talk.until(2 * LIST_WAIT_S)
    assert talk.told(m.RunsListed) == []
    assert len(talk.told(m.BackendDown)) == 1, "of the outage"


# ---- an agent is lost ----


def test_a_host_whose_agent_left_is_told_so_and_nothing_else() -> None:
    talk = Talk.begun(agent("S0", "h0"), agent("S1", "h1")).running(0)
    talk.start(start(1))
    talk.order(ask(0))
    talk.clear().agents(agent("S1", "h1"))
    assert talk.reports == [(HOST, m.BackendDown(LEFT))]
    talk.clear().until(2 * OFFER_WAIT_S)
    assert talk.reports == []
    talk.update(status(name(0), "FINISHED", uuid="e"))
    talk.order(m.ForgetRuns(HOST, (name(0),)))
    assert talk.reports == [] and talk.calls == []
    talk.order(m.PingBackend(HOST), ask(0))
    assert talk.reports == [(HOST, m.BackendDown(LEFT))] * 2
    assert {*talk.it.agents.by_host} == {OTHER}


def test_an_agent_that_comes_back_is_announced_and_its_runs_are_asked_for() -> None:
    talk = Talk.begun().running(0)
    talk.agents()
    talk.agents(agent())
    assert [type(each) for _, each in talk.reports] == [m.BackendDown, m.HostAppeared]
    talk.clear().order(ask(0))
    assert talk.asked() == [[name(0)]]
    talk.update(reconciled(name(0), "RUNNING", timestamp=70.0))
    assert listed(talk) == ([name(0)], [], 7.0)


def test_when_a_run_began_that_was_found_running_is_not_said_with_its_end() -> None:
    """It was running at that time; as a start it would make the run shorter than it was."""
    talk = Talk()
    talk.subscribe(agent())
    talk.update(reconciled(name(0), "RUNNING", timestamp=70.0))
    assert talk.told(m.RunsStarted) == [m.RunsStarted((name(0),), (70.0,))]
    talk.update(status(name(0), "FAILED", uuid="e", timestamp=80.0))
    assert [(each.started_at, each.at) for each in talk.ends()] == [(None, 80.0)]


def test_an_end_that_came_while_its_agent_was_not_known_comes_again() -> None:
    talk = Talk.begun().running(0)
    talk.agents()
    over = status(name(0), "FINISHED", uuid="e")
    talk.update(over)
    talk.agents(agent())
    talk.clear().update(over)
    assert [each.run for each in talk.ends()] == [name(0)]
    talk.order(m.ForgetRuns(HOST, (name(0),)))
    assert talk.acknowledged() == [(name(0), "e")]


def test_under_another_id_the_agent_knows_nothing_of_the_runs() -> None:
    talk = Talk.begun().running(0)
    talk.start(start(1))
    talk.clear().agents(agent("S7", "h0"))
    assert [type(each) for _, each in talk.reports] == [m.BackendDown, m.HostAppeared]
    talk.clear().until(2 * OFFER_WAIT_S)
    assert talk.ends() == []
    talk.clear().order(ask(0))
    (question,) = talk.called("RECONCILE")
    assert [one["agent_id"] for one in question["tasks"]] == [{"value": "S7"}]
    talk.update(reconciled(name(0), "GONE", "S7"))
    assert listed(talk) == ([], [name(0)], 7.0)
    talk.start(start(1))
    talk.offer(offer("O7", "S7"))
    assert talk.launched() == [[name(1)]]


def test_nothing_grows_by_runs_that_are_forgotten_and_agents_that_left() -> None:
    talk = Talk.begun()
    for round_ in range(5):
        talk.agents(agent(f"S{round_}", f"h{round_}"))
        host = Key(f"host/east.h{round_}")
        talk.start(start(round_, check=HealthCheck(readiness=HealthCheck("r"))), host=host)
        talk.offer(offer(f"O{round_}", f"S{round_}"))
        well = {"healthy": True, "check_status": {"type": "COMMAND", "command": {"exit_code": 0}}}
        talk.update(status(name(round_), "RUNNING", f"S{round_}", uuid="u", **well))
        talk.update(status(name(round_), "FINISHED", f"S{round_}", uuid="e"))
        talk.order(m.ForgetRuns(host, (name(round_),)))
    talk.until(1000.0)
    (left,) = talk.it.agents.by_host.values()
    assert left.runs.runs == left.runs.waiting == left.runs.checks == {}
    assert talk.it.agents.of("S0") is None
    assert not talk.it._wellbeing._news._last
    assert talk.it.wake_at == EVERY_S
