"""A request key is its client's: the same key of another one neither answers nor refuses."""

from __future__ import annotations

import uuid
from typing import Any

from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.respool import respool_pb2 as respool
from peloton.gateway.cluster.requests import (
    REQUEST_KEY,
    made_id,
    request_of,
)
from peloton.runtime.core.entities.records import RequestAnswered
from peloton.runtime.core.principal import BASIC, TLS, UNVERIFIED, Principal
from peloton.runtime.core.turning.replies import SCOPE, RequestLog
from peloton.runtime.vocabulary import Key
from tests.gateway.access_fixture import ROLES, Guarded, create_request, said_by
from tests.gateway.fleet_fixture import pool_config

SUE, OTHER = ROLES["submitter"], Principal("otto", BASIC)
JOB = Key("job/1")
DRAWN = "6f1f0a1e-7d0b-4b3e-9f0e-0c8d1d9b7c11"


class Call:
    """A call with a key, by somebody."""

    def __init__(self, key: str, by: Principal) -> None:
        self.principal, self._key = by, key

    def invocation_metadata(self) -> Any:
        """The key alone."""
        return ((REQUEST_KEY, self._key),)


NOBODY = Principal("", "none")


def request(key: str, by: Principal) -> tuple[str, bytes]:
    found = request_of(job.CreateRequest(), Call(key, by))
    assert found is not None
    return found


def test_a_key_is_that_of_a_name_that_was_proved() -> None:
    ann, bob, claimed = (Principal(*of) for of in (("a", BASIC), ("b", BASIC), ("a", UNVERIFIED)))
    found = {made_id(request("k", by), "job") for by in (ann, bob, claimed)}
    assert len(found) == 3
    assert request("k", ann) == request("k", Principal("a", TLS, "10.0.0.9", "another-program"))
    assert request("k", claimed) == request("k", Principal("z", UNVERIFIED))


def test_a_log_answers_whose_key_it_is() -> None:
    log, digest, other = RequestLog(), b"d", b"e"
    log.remember(JOB, RequestAnswered(f"k{SCOPE}ann", digest, b"to ann", 1.0))

    def said(name: str, body: bytes) -> Any:
        found = log.find(JOB, (name, body), 2.0)
        return None if found is None else found.answer or found.refused

    assert said(f"k{SCOPE}ann", digest) == b"to ann"
    assert said(f"k{SCOPE}ann", other).text == "request key 'k' was used with another body"
    assert said(f"k{SCOPE}bob", digest) is said(f"k{SCOPE}bob", other) is None
    assert said("k", digest) is None


def keyed(key: str, by: Principal) -> Any:
    return [*said_by(by), (REQUEST_KEY, key)]


def test_a_guessed_key_neither_blocks_a_creation_nor_gets_its_answer(fleet: Guarded) -> None:
    key, pool = f"nightly-{uuid.uuid4()}", fleet.pools["/team/jobs"]
    theirs = fleet.open.create(create_request(pool, name="theirs"), metadata=keyed(key, OTHER))
    sent = create_request(pool, name="mine")
    mine = fleet.open.create(sent, metadata=keyed(key, SUE))
    assert mine != theirs and fleet.open.job(mine).config.name == "mine"
    assert fleet.open.create(sent, metadata=keyed(key, SUE)) == mine
    same = create_request(pool, name="theirs")
    assert fleet.open.create(same, metadata=keyed(key, ROLES["viewer"])) not in (mine, theirs)


def test_pools_are_made_under_keys_of_their_clients(fleet: Guarded) -> None:
    key, first = f"pool-{uuid.uuid4()}", pool_config(f"p-{uuid.uuid4()}", cpu=0.1)
    second = pool_config(f"p-{uuid.uuid4()}", cpu=0.1)

    def made(config: Any, by: Principal) -> str:
        sent = respool.CreateRequest(config=config)
        answer = fleet.open.pools.CreateResourcePool(sent, metadata=keyed(key, by))
        assert not answer.HasField("error"), answer
        return str(answer.result.value)

    pools = {made(first, SUE), made(second, OTHER), made(first, SUE), made(second, OTHER)}
    assert len(pools) == 2
