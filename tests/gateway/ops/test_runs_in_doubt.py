"""What `why` says of hosts that are not there: of runs on them, and of the room that is lacking."""

from __future__ import annotations

import pytest

from peloton.actors.host.inventory.messages import HostView
from peloton.actors.host.stages import HostStates, Maintenance
from peloton.actors.job.slice.messages import InstanceView
from peloton.actors.job.slice.task_config import TaskConfig
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.messages import TaskGoals
from peloton.gateway.ops.lost_room import add_lost_room
from peloton.gateway.ops.runs_in_doubt import RunsInDoubt
from peloton.ops.v1 import ops_pb2 as ops
from peloton.placement.messages import HostSummary
from peloton.runtime.vocabulary import key


def host(
    name: str, state: HostStates, maintenance: Maintenance = Maintenance.NONE, because: str = ""
) -> HostView:
    room = Resources(4 * UNIT, 100 * UNIT)
    summary = HostSummary(key("host", name), 1, room, Resources(), up=False)
    return HostView(summary, state, 1, because, maintenance)


def instance(number: int, on: str, state: str = "RUNNING") -> InstanceView:
    nothing = (None,) * 5
    goal = TaskGoals.RUNNING
    return InstanceView(number, state, goal, 1, 0, f"host/{on}", *nothing, (), TaskConfig())


TROUBLED = [
    host("a", HostStates.UNREACHABLE, because="its agent is not registered"),
    host("b", HostStates.LOST, because="host unreachable for 60 s"),
    host("c", HostStates.UP, Maintenance.DRAINING),
    host("d", HostStates.UNREACHABLE, Maintenance.DOWN),
]


@pytest.mark.parametrize(
    ("named", "alone", "text"),
    [
        (True, True, "its host a is UNREACHABLE: its agent is not registered"),
        (True, False, "its host a is UNREACHABLE: its agent is not registered"),
        (False, True, "its host a is UNREACHABLE"),
        (False, False, "its host is UNREACHABLE"),
    ],
)
def test_a_run_whose_host_is_out_of_reach_is_in_doubt(named: bool, alone: bool, text: str) -> None:
    doubts = RunsInDoubt(lambda: TROUBLED, named=named)
    found = doubts.reasons([instance(0, "a"), instance(1, "up"), instance(2, "c")], alone=alone)
    assert [*found] == [0], "only of the host that nobody can reach"
    assert found[0].code == "host-unreachable"
    assert found[0].text == f"runs as far as is known, but {text}"


@pytest.mark.parametrize(
    ("state", "begins"),
    [
        ("LAUNCHED", "is being launched, but"),
        ("STARTING", "is starting as far as is known, but"),
        ("KILLING", "is being stopped, but"),
    ],
)
def test_an_order_to_a_keeper_that_does_not_answer_says_so(state: str, begins: str) -> None:
    frozen = [host("a", HostStates.UNREACHABLE, because="keeper: no answer for 10 s")]
    found = RunsInDoubt(lambda: frozen, named=True).reasons([instance(0, "a", state)], alone=False)
    assert found[0].text == f"{begins} its host a is UNREACHABLE: keeper: no answer for 10 s"


def test_what_does_not_run_is_in_no_doubt() -> None:
    doubts = RunsInDoubt(lambda: TROUBLED, named=True)
    waiting = [instance(0, "a", "PENDING"), instance(1, "b", "FAILED"), instance(2, "", "NEW")]
    assert doubts.reasons(waiting, alone=False) == {}
    assert doubts.reasons([instance(3, "b")], alone=False)[3].text.endswith(
        "host b is LOST: host unreachable for 60 s"
    )


def full(kind: str = "cpu") -> ops.Reason:
    blocker = ops.Blocker(code="cluster-full", resource=kind, text="full", change="hosts come")
    other = ops.Blocker(code="pool-limit", resource=kind, text="limit", change="raise it")
    return ops.Reason(blockers=[blocker, other])


def test_a_full_cluster_names_all_that_is_not_there() -> None:
    reason = full()
    add_lost_room([reason], lambda: TROUBLED, named=True)
    assert reason.blockers[0].text == (
        "full; 1 host drains and 1 host is in maintenance and 1 host is out of reach and "
        "1 host is lost, with 16 cpu: a (its agent is not registered), "
        "b (host unreachable for 60 s), c, d"
    )
    assert reason.blockers[0].change == (
        "hosts come, or complete their maintenance: `peloton host maintenance`, or bring them "
        "back: `peloton host list`"
    )
    assert reason.blockers[1].text == "limit"


def test_who_may_not_see_hosts_gets_numbers_only() -> None:
    reason = full("memory")
    add_lost_room([reason], lambda: TROUBLED[:2], named=False)
    assert reason.blockers[0].text == (
        "full; 1 host is out of reach and 1 host is lost, with 200 MB memory"
    )


def test_what_the_absent_have_none_of_is_not_said() -> None:
    reason = full("gpu")
    add_lost_room([reason], lambda: TROUBLED, named=True)
    assert reason.blockers[0].text == "full"


def test_hosts_are_not_asked_for_where_nothing_is_said_of_them() -> None:
    def asked() -> list[HostView]:
        raise AssertionError("nothing runs, and the cluster is not full")

    RunsInDoubt(asked, named=True).reasons([instance(0, "a", "PENDING")], alone=False)
    add_lost_room([ops.Reason(blockers=full().blockers[1:])], asked, named=True)
