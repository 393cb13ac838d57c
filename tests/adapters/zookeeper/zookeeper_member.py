"""A member in a process of its own, for tests that stand it still.

Joins as `frozen.1`, makes the owner node of a-0, and writes on its output, a line each, what it is
told, and all the time until when it is sure: seconds of the clock that all processes share. It acts
on nothing; what a daemon does then is tested elsewhere.

    python zookeeper_member.py HOSTS CLUSTER SESSION_S
"""

from __future__ import annotations

import sys
import threading

from peloton.runtime.adapters.zookeeper_connection import now_s
from peloton.runtime.adapters.zookeeper_membership import ZooKeeperMembership
from peloton.runtime.adapters.zookeeper_session import ZooKeeperConfig
from peloton.runtime.ports import MemberNode, MembershipNews, NodeAnswer, Session, ShardId

SAMPLE_EVERY_S = 0.005
ONE_AT_A_TIME = threading.Lock()


def say(*words: object) -> None:
    """A line, whole: two threads say something, and who kills us may do so between two writes."""
    with ONE_AT_A_TIME:
        sys.stdout.write(" ".join(map(str, words)) + "\n")
        sys.stdout.flush()


def main(hosts: str, cluster: str, session_s: str) -> None:
    client = ZooKeeperMembership(ZooKeeperConfig(hosts, cluster, session_s=float(session_s)))

    def told(news: MembershipNews) -> None:
        if isinstance(news, Session):
            say("session", news.state.name)
            if not asked.is_set():
                asked.set()
                client.create_owner(ShardId("a", 0))
        elif isinstance(news, NodeAnswer):
            say("answer", news.outcome.name)

    asked, pause = threading.Event(), threading.Event()
    client.listen(told)
    client.join("frozen.1", MemberNode("frozen:1", ("a",)))
    while True:
        at_s = now_s()  # before: what is said then may be a moment too early, not too late
        say("sure", at_s, client.sure_for_s())
        pause.wait(SAMPLE_EVERY_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
