"""How long a member may be sure of its session: never after it is lost, left, or ended.

Objects of the adapter without a server. What a real server does to a session is tested in
`test_zookeeper.py`.
"""

from __future__ import annotations

import pytest

from peloton.runtime.adapters.zookeeper_connection import Lease, now_s
from peloton.runtime.adapters.zookeeper_session import MemberSession, ZooKeeperConfig
from peloton.runtime.ports import MemberNode

SESSION_S = 12.0


@pytest.fixture
def session() -> MemberSession:
    """A member that was sure a moment ago; it has no thread and no connection."""
    config = ZooKeeperConfig("127.0.0.1:1", "c")
    node = MemberNode("a:1", roles=())
    made = MemberSession(config, member="m", node=node, listener=lambda news: None)
    made._lease.reopened(now_s())
    made._lease.committed(now_s(), SESSION_S)
    assert made.sure_for_s() > 0.0
    return made


def test_whose_session_is_lost_is_sure_of_nothing(session: MemberSession) -> None:
    """At once, on whatever thread asks: the session's own thread may learn it later."""
    session._connection.handler.lost = True
    assert session._connection.lost
    assert session.sure_for_s() == 0.0


def test_who_leaves_is_sure_of_nothing(session: MemberSession) -> None:
    session.end()
    assert session.sure_for_s() == 0.0


def test_a_lease_that_has_ended_is_renewed_by_no_late_answer() -> None:
    lease = Lease()
    lease.reopened(100.0)
    lease.committed(101.0, SESSION_S)
    lease.end()
    lease.committed(102.0, SESSION_S)
    assert lease.until_s == 0.0
