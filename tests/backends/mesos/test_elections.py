"""Masters that are named by their place in ZooKeeper, and the credential that nobody is told.

That an election is read stands in tests/adapters, with real servers.
"""

from __future__ import annotations

import pytest

from peloton.backends.mesos.doctor import Unanswered, read_cluster
from peloton.backends.mesos.masters.agent_book import AgentBook
from peloton.backends.mesos.masters.elections import NoLeader, candidates
from peloton.backends.mesos.masters.leading_master import LeadingMaster
from peloton.backends.mesos.masters.operator_api import Credential, NoAnswer
from peloton.settings.backend import MesosBackendSettings, mesos_problems
from peloton.settings.mesos_master import ZooKeeperPath, printable

NOBODY = "zk://user:secret@127.0.0.1:1/me/sos"


@pytest.mark.parametrize(
    ("master", "place", "shown"),
    [
        ("m:5050", None, "m:5050"),
        ("[::1]:5050", None, "[::1]:5050"),
        ("zk://a:1,b:2/x/y", ("a:1,b:2", "/x/y"), "zk://a:1,b:2/x/y"),
        ("zk://u:p@a:1,b:2/x", ("a:1,b:2", "/x"), "zk://a:1,b:2/x"),
        ("zk://u:p@q@a:1/x", ("a:1", "/x"), "zk://a:1/x"),
        ("u:p@m:5050", None, "m:5050"),
    ],
)
def test_a_place_is_read_and_shown(master: str, place: tuple[str, str] | None, shown: str) -> None:
    assert (ZooKeeperPath.of(master), printable(master)) == (place, shown)


def test_a_credential_with_a_slash_is_not_shown_either() -> None:
    assert "p/q" not in printable("zk://u:p/q@a:1/x")


def test_no_failure_to_find_a_master_shows_the_credential() -> None:
    place = ZooKeeperPath.of(NOBODY)
    assert place is not None
    text = "no master to be found in ZooKeeper at 127.0.0.1:1: 127.0.0.1:1/me/sos: "
    with pytest.raises(NoLeader, match=text) as first:
        candidates(place, timeout_s=0.5)
    with pytest.raises(NoAnswer, match=text) as second:
        AgentBook(LeadingMaster(NOBODY, Credential(), zookeeper_s=0.5)).door_of("h1")
    with pytest.raises(Unanswered, match=text) as third:
        read_cluster(LeadingMaster(NOBODY, Credential(), zookeeper_s=0.5))
    assert not any("secret" in str(each.value) for each in (first, second, third))


def test_no_problem_of_the_settings_shows_the_credential() -> None:
    east, west = (MesosBackendSettings(name=name, master=NOBODY) for name in ("east", "west"))
    bad = MesosBackendSettings(name="bad", master="zk://user:secret@a:1")
    found = [*mesos_problems({"one": east, "two": west, "three": bad})]
    assert found == [
        "three.master: 'zk://a:1' is neither HOST:PORT nor zk://HOST:PORT,…/PATH",
        "two.master: zk://127.0.0.1:1/me/sos is one.master as well",
    ]
    other = MesosBackendSettings(name="other", master=NOBODY.replace("secret", "word"))
    assert len([*mesos_problems({"one": east, "two": other})]) == 1, "they are the same masters"
