"""The maintenance of Mesos by what hosts say: from each state of the master to each use."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.machine_messages import HostUse, SetUse, UseSet
from peloton.backends.mesos.backend import MesosBackend
from peloton.backends.mesos.framework import Framework
from peloton.backends.mesos.master_list import MasterList
from peloton.backends.mesos.masters.calls import INVERSE_AGAIN_S
from peloton.backends.mesos.masters.driver import MesosDriver
from peloton.backends.mesos.uses import PASSES_MAX, REFUSALS_MAX, REFUSED_S, bring_about
from peloton.runtime.vocabulary import Key
from tests.backends.mesos.bench import HOST, OTHER, Talk
from tests.backends.mesos.words import Json, agent
from tests.servers.scripted_maintenance import FakeMaintenance, machine, window

IN_USE, DRAINING, OUT = HostUse.IN_USE, HostUse.DRAINING, HostUse.OUT_OF_USE
US, THEM = machine("h0"), machine("h1")
AGENTS = {HOST: ("h0", "10.0.0.1"), OTHER: ("H1", "10.0.0.1")}
AWAY = {HOST: ("h0", ""), OTHER: ("h1", "")}
UPDATE, DOWN, UP = "UPDATE_MAINTENANCE_SCHEDULE", "START_MAINTENANCE", "STOP_MAINTENANCE"
NOW = 5.0
STATES = {
    "up": lambda: FakeMaintenance(window(THEM)),
    "drains": lambda: FakeMaintenance(window(US, THEM)),
    "down": lambda: FakeMaintenance(window(US, THEM), down=(US,)),
}


def made(
    master: FakeMaintenance, *orders: SetUse, agents: dict[Key, tuple[str, str]] = AGENTS
) -> list[tuple[Key, UseSet]]:
    return bring_about(orders, agents, ask=master.ask, now=NOW)


def order(use: HostUse, host: Key = HOST, number: int = 7) -> SetUse:
    return SetUse(host, 1, use, number)


@pytest.mark.parametrize(
    ("state", "use", "changes"),
    [
        ("up", IN_USE, []),
        ("up", DRAINING, [UPDATE]),
        ("up", OUT, [UPDATE, DOWN]),
        ("drains", IN_USE, [UPDATE]),
        ("drains", DRAINING, []),
        ("drains", OUT, [DOWN]),
        ("down", IN_USE, [UP]),
        ("down", DRAINING, []),
        ("down", OUT, []),
    ],
)
def test_each_use_from_each_state(state: str, use: HostUse, changes: list[str]) -> None:
    master = STATES[state]()
    assert made(master, order(use)) == [(HOST, UseSet(7))]
    assert master.changes == changes
    assert (US in master.scheduled) == (use != IN_USE)
    assert (US in master.down) == (use == OUT or (state, use) == ("down", DRAINING))
    assert THEM in master.scheduled, "what others have entered stays"
    assert made(master, order(use)) and master.changes == changes, "a repeat changes nothing"


def test_the_windows_of_others_stay_as_they_are_and_ours_begins_now() -> None:
    master = FakeMaintenance(window(THEM, start=3))
    made(master, order(DRAINING))
    ours = {"machine_ids": [US], "unavailability": {"start": {"nanoseconds": int(NOW * 1e9)}}}
    assert master.windows == [window(THEM, start=3), ours]
    made(master, order(IN_USE))
    assert master.windows == [window(THEM, start=3)], "and no window without machines"


def test_many_orders_need_as_few_calls_as_one() -> None:
    master = FakeMaintenance()
    assert len(made(master, order(OUT), order(OUT, OTHER))) == 2
    assert master.changes == [UPDATE, DOWN] and master.down == [US, THEM]
    assert len(made(master, order(IN_USE), order(IN_USE, OTHER))) == 2
    assert master.changes == [UPDATE, DOWN, UP] and master.windows == []


def test_a_schedule_that_another_replaces_meanwhile_is_written_again() -> None:
    master = FakeMaintenance()
    theirs = [[window(THEM)], [window(THEM, start=2)]]

    def meddle(it: FakeMaintenance) -> None:
        if it.changes and it.asked[-1] == "GET_MAINTENANCE_STATUS" and theirs:
            it.windows = theirs.pop()

    master.meddle = meddle
    assert made(master, order(DRAINING)) == [(HOST, UseSet(7))]
    assert master.changes == [UPDATE] * 3 and sorted(map(str, master.scheduled)) == sorted(
        map(str, (THEM, US))
    )


def test_a_schedule_that_never_stays_is_not_answered() -> None:
    master = FakeMaintenance()
    master.meddle = lambda it: it.windows.clear()
    assert made(master, order(DRAINING)) == []
    assert len(master.changes) == PASSES_MAX


def test_one_that_goes_down_between_look_and_change_is_looked_at_again() -> None:
    master = FakeMaintenance(window(US, THEM))

    def meddle(it: FakeMaintenance) -> None:
        if it.changes == [DOWN]:
            it.down = it.down or [US]

    master.meddle = meddle
    assert made(master, order(OUT)) == [(HOST, UseSet(7))]
    assert master.down == [US]


def test_a_refusal_is_told_and_keeps_no_other_from_what_it_wants() -> None:
    master = FakeMaintenance(window(US))
    master.forbidden = (UPDATE,)
    told = made(master, order(OUT), order(DRAINING, OTHER, 3))
    assert told == [
        (HOST, UseSet(7)),
        (OTHER, UseSet(3, f"the master refuses {UPDATE}: 403")),
    ]
    assert master.down == [US] and master.changes == [UPDATE, DOWN, UPDATE]


MANY = [Key(f"host/east.m{number}") for number in range(200)]
MANY_AGENTS = {host: (host.partition(".")[2], "10.0.0.2") for host in MANY}


def test_a_master_that_refuses_everything_is_not_asked_for_each_host() -> None:
    master = FakeMaintenance()
    master.forbidden = (UPDATE,)
    told = made(master, *(order(OUT, host) for host in MANY), agents=MANY_AGENTS)
    text = f"the master refuses {UPDATE}: 403"
    assert dict(told) == dict.fromkeys(MANY, UseSet(7, text)) and len(told) == len(MANY)
    assert len(master.asked) == 5 * REFUSALS_MAX


@pytest.mark.parametrize("where", [0, 77, 199])
def test_one_that_is_refused_among_many_is_found(where: int) -> None:
    master = FakeMaintenance()
    bad = machine(f"m{where}", "10.0.0.2")
    master.refuses = lambda call: "not that one" if bad["hostname"] + "'" in str(call) else ""
    told = made(master, *(order(DRAINING, host) for host in MANY), agents=MANY_AGENTS)
    assert dict(told) == {
        host: UseSet(7, "not that one" if number == where else "")
        for number, host in enumerate(MANY)
    }
    assert len(master.scheduled) == 199 and len(master.asked) < 100


def test_where_some_could_be_done_those_that_were_not_tried_are_not_answered() -> None:
    master = FakeMaintenance()
    bad = [f"'m{number}'" for number in range(50, 200)]
    master.refuses = lambda call: "no" if any(one in str(call) for one in bad) else ""
    orders = [order(DRAINING, host) for host in MANY]
    assert made(master, *orders, agents=MANY_AGENTS) == [(host, UseSet(7)) for host in MANY[:50]]
    told = made(master, *orders[50:], agents=MANY_AGENTS)
    assert dict(told) == dict.fromkeys(MANY[50:], UseSet(7, "no")), "now nothing could be done"
    assert len(master.asked) <= 2 * 5 * REFUSALS_MAX + 5


@pytest.mark.parametrize("read", ["GET_MAINTENANCE_STATUS", "GET_MAINTENANCE_SCHEDULE"])
def test_a_master_that_does_not_let_us_look_has_refused(read: str) -> None:
    master = FakeMaintenance()
    master.forbidden = (read,)
    told = made(master, order(OUT), order(IN_USE, OTHER, 3))
    text = f"the master refuses {read}: 403"
    assert told == [(HOST, UseSet(7, text)), (OTHER, UseSet(3, text))]
    assert master.changes == [] and master.asked.count(read) == 1


def test_an_agent_that_is_away_can_be_put_up_and_down_but_not_be_entered() -> None:
    for use in (DRAINING, OUT):
        assert made(FakeMaintenance(), order(use), agents=AWAY) == []
    assert made(FakeMaintenance(), order(IN_USE), agents=AWAY) == [(HOST, UseSet(7))]
    drains, down = FakeMaintenance(window(US)), FakeMaintenance(window(US), down=(US,))
    assert made(drains, order(OUT), agents=AWAY) and drains.down == [US]
    assert made(down, order(IN_USE), agents=AWAY) and down.windows == down.down == []


def test_an_agent_with_a_new_address_is_entered_beside_its_old_one() -> None:
    master = FakeMaintenance(window(machine("h0", "10.0.0.9")))
    made(master, order(DRAINING))
    assert US in master.scheduled
    made(master, order(IN_USE))
    assert master.windows == []


def test_an_order_that_does_not_count_any_more_changes_nothing() -> None:
    master = FakeMaintenance()
    old = order(OUT)
    told = bring_about(
        (old, order(OUT, OTHER)), AGENTS, ask=master.ask, now=NOW,
        still=lambda one: one is not old or UPDATE not in master.changes,
    )  # fmt: skip
    assert told == [(OTHER, UseSet(7))] and master.down == [THEM], "not what another link put up"


# ---- the link ----


class ScriptedDriver:
    """A connection to a scripted master."""

    def __init__(self, master: FakeMaintenance) -> None:
        self.ask, self.lives = master.ask, True

    def ends_after(self, kind: str, master: FakeMaintenance) -> None:
        """Another link begins a subscription as this call is made."""
        self.lives = self.lives and master.asked[-1] != kind


def link_with(*orders: SetUse) -> tuple[MesosBackend, list[Any]]:
    """Subscribed, with these orders; what it tells."""
    link, told = MesosBackend(Framework("east", "127.0.0.1:1", "ours")), list[Any]()
    link._tell = told.extend
    link._talk.subscribed(0.0)
    listed = MasterList([agent("S0", "h0", pid="slave(1)@10.0.0.1:5051")])
    link._talk.told_agents(listed, 0.0)
    for one in orders:
        link._talk.ordered(one, 0.0)
    return link, told


def test_a_link_that_is_overtaken_puts_no_machine_down() -> None:
    for ends in (UPDATE, "GET_MAINTENANCE_SCHEDULE"):
        link, told = link_with(order(OUT))
        master = FakeMaintenance()
        driver: Any = ScriptedDriver(master)
        master.meddle = partial(driver.ends_after, ends)
        link._tell_uses(driver)
        assert DOWN not in master.changes and told == []


def test_a_host_that_changes_its_mind_meanwhile_is_not_put_down() -> None:
    link, told = link_with(order(OUT))
    master = FakeMaintenance()

    def meddle(it: FakeMaintenance) -> None:
        if it.asked[-1] == UPDATE:
            link._talk.ordered(order(IN_USE, number=8), 0.0)

    master.meddle = meddle
    driver: Any = ScriptedDriver(master)
    link._tell_uses(driver)
    assert DOWN not in master.changes and told == []
    link._tell_uses(driver)
    assert [one.message for one in told] == [UseSet(8)] and master.windows == master.down == []


def test_machines_that_are_down_though_their_hosts_are_in_use_are_named() -> None:
    link, _ = link_with()
    notes: dict[str, str] = {}
    link._trouble = notes.__setitem__
    master = FakeMaintenance(window(US, THEM), down=(US, THEM))
    driver: Any = ScriptedDriver(master)
    listed: list[Json] = []
    driver.ask = lambda call: (
        {"get_agents": {"agents": listed}} if call["type"] == "GET_AGENTS" else master.ask(call)
    )
    link._look(driver)
    assert notes == {"cluster east maintenance": ""} and master.asked == [], "nobody asks"
    for host in (HOST, OTHER):
        link._talk.ordered(m.PingBackend(host), 0.0)
    link._talk.ordered(order(OUT, OTHER), 0.0)
    link._look(driver)
    assert notes["cluster east maintenance"].startswith("h0: down for maintenance at the master")
    master.forbidden = ("GET_MAINTENANCE_STATUS",)
    link._look(driver)
    assert notes == {"cluster east maintenance": ""}
    master.forbidden, listed[:] = (), [agent("S0", "h0")]
    link._look(driver)
    assert notes == {"cluster east maintenance": ""}


def test_a_subscription_lives_until_the_master_says_otherwise() -> None:
    driver = MesosDriver("127.0.0.1:1", {}, heard=lambda _: None, ended=lambda _: None)
    assert not driver.lives
    driver.stream_id = "one"
    assert driver.lives
    driver.on_event({"type": "ERROR", "error": {"message": "Framework failed over"}})
    assert not driver.lives


def test_after_an_end_no_old_use_counts() -> None:
    talk = Talk.begun()
    talk.order(order(DRAINING))
    talk.disconnect()
    talk.subscribe(agent("S0", "h0"))
    assert heard(talk, "S0") == [answer(DECLINE, "S0")], "it may be in use by now"


# ---- the conversation ----


def heard(talk: Talk, *agents: str) -> list[Json]:
    """The answers to inverse offers."""
    asked = [{"id": {"value": f"I-{one}"}, "agent_id": {"value": one}} for one in agents]
    event = {"type": "INVERSE_OFFERS", "inverse_offers": {"inverse_offers": asked}}
    talk.clear().it.heard(event, 0.0)
    return talk.it.take()[0]


def answer(kind: str, *agents: str) -> Json:
    ids = [{"value": f"I-{one}"} for one in agents]
    filters = {"refuse_seconds": INVERSE_AGAIN_S}
    body = {"inverse_offer_ids": ids, "filters": filters}
    return {"type": kind, kind.lower(): body}


ACCEPT, DECLINE = "ACCEPT_INVERSE_OFFERS", "DECLINE_INVERSE_OFFERS"


def test_the_master_may_have_back_what_drains_here_and_nothing_else() -> None:
    talk = Talk.begun(agent("S0", "h0"), agent("S1", "h1"))
    assert heard(talk, "S0", "S9") == [answer(DECLINE, "S0", "S9")]
    talk.order(order(DRAINING))
    assert heard(talk, "S0", "S1") == [answer(ACCEPT, "S0"), answer(DECLINE, "S1")]
    talk.order(order(IN_USE, number=8))
    assert heard(talk, "S0") == [answer(DECLINE, "S0")]


def test_orders_wait_for_whoever_speaks_with_the_master() -> None:
    talk = Talk.begun(agent(pid="slave(1)@10.0.0.1:5051"))
    talk.order(order(DRAINING), order(OUT, number=8), order(IN_USE, OTHER))
    assert talk.it.uses.open and talk.reports == []
    assert talk.it.agents.machine_of(HOST) == ("h0", "10.0.0.1")
    assert talk.it.agents.machine_of(OTHER) == ("h1", ""), "it has left, and is put up all the same"
    assert talk.it.uses.take() == [order(OUT, number=8), order(IN_USE, OTHER)]
    assert not talk.it.uses.open
    talk.order(order(DRAINING))
    assert not talk.it.uses.open, "it is older"


def test_without_a_subscription_the_host_asks_again_later() -> None:
    talk = Talk.begun()
    talk.order(order(DRAINING))
    talk.disconnect()
    assert not talk.it.uses.open
    talk.clear().order(order(DRAINING))
    assert len(talk.told(m.BackendDown)) == 1 and not talk.it.uses.open


def test_what_was_refused_is_not_tried_again_for_a_while() -> None:
    talk = Talk.begun()
    talk.order(order(OUT))
    (taken,) = talk.it.uses.take()
    talk.it.uses.told([(HOST, UseSet(7, "may not"))], talk.now)
    talk.clear().until(REFUSED_S - 1.0)
    talk.order(taken)
    assert talk.told(UseSet) == [UseSet(7, "may not")] and not talk.it.uses.open
    talk.order(order(IN_USE, number=8))
    assert talk.it.uses.take() == [order(IN_USE, number=8)], "that was not refused"
    talk.clear().until(REFUSED_S)
    talk.order(order(OUT, number=8))
    assert talk.it.uses.open and not talk.told(UseSet)
    talk.it.uses.told([], talk.now)
    assert not talk.it.uses._refused


def test_of_a_host_that_is_in_use_nothing_is_kept() -> None:
    talk = Talk.begun()
    talk.order(order(DRAINING), order(IN_USE, number=8))
    talk.it.uses.told([(HOST, UseSet(7))], 0.0)
    assert talk.it.uses._said
    talk.it.uses.told([(HOST, UseSet(8)), (OTHER, UseSet(1))], 0.0)
    assert not talk.it.uses._said
