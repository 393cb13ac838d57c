"""Which of several masters is asked, and what is said where none answers.

The masters are scripted, and stand for election in a real ZooKeeper, as real ones do.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

from peloton.backends.mesos.doctor import read_cluster
from peloton.backends.mesos.masters.agent_book import AgentBook
from peloton.backends.mesos.masters.leading_master import ASKED_MAX, LeadingMaster
from peloton.backends.mesos.masters.operator_api import Credential, NoAnswer, NotAllowed
from tests.servers import zookeeper
from tests.servers.process import free_ports
from tests.servers.scripted_http import Reply
from tests.servers.scripted_master import ScriptedMaster

ASK = {"type": "GET_AGENTS"}
Standing = Callable[..., LeadingMaster]


@pytest.fixture
def standing() -> Iterator[Standing]:
    """Has masters at these ports stand for election, the first of them as the one that leads."""
    server = zookeeper.shared()
    folder = f"/masters-{uuid.uuid4().hex}"
    client = KazooClient(server.address)
    client.start(timeout=30.0)

    def stand(*ports: int) -> LeadingMaster:
        for port in ports:
            words = {"address": {"hostname": "localhost", "ip": "127.0.0.1", "port": port}}
            client.create(
                f"{folder}/json.info_", json.dumps(words).encode(), sequence=True, makepath=True
            )
        client.ensure_path(f"{folder}/log_replicas")
        return LeadingMaster(f"zk://{server.address}{folder}", Credential())

    yield stand
    client.delete(folder, recursive=True)
    client.stop()
    client.close()


def asked(master: LeadingMaster) -> int:
    """The port of who answers."""
    found = master.connect(ASK)
    found.api.close()
    return found.api.door.port


def test_the_first_is_asked_and_where_it_is_away_the_others(standing: Standing) -> None:
    with ScriptedMaster() as one, ScriptedMaster() as two:
        master = standing(one.port, two.port)
        assert asked(master) == one.port and not two.calls
        one.reply("GET_AGENTS", Reply(503, "recovering"))
        assert asked(master) == two.port


def test_a_dead_leader_does_not_end_what_the_doctor_and_the_book_do(standing: Standing) -> None:
    (dead,) = free_ports(1)
    with ScriptedMaster() as next_one:
        master = standing(dead, next_one.port)
        assert read_cluster(master).master == next_one.address
        book = AgentBook(master)
        assert book.door_of("h1") is not None
        assert book.leader is not None and book.leader.port == next_one.port


def test_one_that_does_not_lead_sends_us_on_and_nobody_is_asked_twice(standing: Standing) -> None:
    (dead,) = free_ports(1)
    with ScriptedMaster() as standby, ScriptedMaster() as third:
        to_dead = Reply(307, location=f"//127.0.0.1:{dead}/master/api/v1")
        standby.reply("GET_AGENTS", to_dead)
        assert asked(standing(dead, standby.port, third.port)) == third.port
        assert len(standby.calls) == 1


def test_where_none_answers_the_first_is_quoted(standing: Standing) -> None:
    ports = free_ports(ASKED_MAX + 1)
    with pytest.raises(NoAnswer, match=f"^127.0.0.1:{ports[0]}: .*refused"):
        asked(standing(*ports))


def test_a_master_that_refuses_us_has_answered(standing: Standing) -> None:
    with ScriptedMaster() as one, ScriptedMaster() as two:
        one.reply("GET_AGENTS", Reply(401))
        with pytest.raises(NotAllowed, match="401"):
            asked(standing(one.port, two.port))
        assert not two.calls
