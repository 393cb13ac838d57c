"""A request key is its client's: the same key of another one neither answers nor refuses."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

import grpc
import pytest

from peloton.actors.job.messages import CreateJob, JobCreated
from peloton.actors.respool.messages import CreatePool, PoolDone, pool_key
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.respool import respool_pb2 as respool
from peloton.gateway import job_create, resource_manager
from peloton.gateway.requests import (
    DRAWN_S,
    LEVEL_CALLERS,
    REQUEST_KEY,
    OtherForm,
    made_id,
    request_of,
)
from peloton.gateway.texts import derived
from peloton.gateway.translate_job import to_spec
from peloton.gateway.translate_pool import to_pool
from peloton.runtime.core.principal import BASIC, TLS, UNVERIFIED, Principal
from peloton.runtime.core.records import RequestAnswered
from peloton.runtime.core.replies import KEEP_S, SCOPE, RequestLog
from peloton.runtime.vocabulary import Key
from tests.gateway.access_fixture import ROLES, Guarded, create_request, said_by
from tests.gateway.fleet_fixture import WAIT_S_MAX, pool_config

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


def request(key: str, by: Principal, *, level: int = LEVEL_CALLERS) -> tuple[str, bytes]:
    found = request_of(job.CreateRequest(), Call(key, by), level=level)
    assert found is not None
    return found


def test_a_key_is_that_of_a_name_that_was_proved() -> None:
    ann, bob, claimed = (Principal(*of) for of in (("a", BASIC), ("b", BASIC), ("a", UNVERIFIED)))
    found = {made_id(request("k", by), "job") for by in (ann, bob, claimed)}
    assert len(found) == 3
    assert request("k", ann) == request("k", Principal("a", TLS, "10.0.0.9", "another-program"))
    assert request("k", claimed) == request("k", Principal("z", UNVERIFIED))


def test_a_log_answers_whose_key_it_is_and_repeats_of_the_version_before() -> None:
    log, digest, other = RequestLog(), b"d", b"e"
    log.remember(JOB, RequestAnswered(f"k{SCOPE}ann", digest, b"to ann", 1.0))
    log.remember(JOB, RequestAnswered("old", digest, b"to somebody", 1.0))

    def said(name: str, body: bytes) -> Any:
        found = log.find(JOB, (name, body), 2.0)
        return None if found is None else found.answer or found.refused

    assert said(f"k{SCOPE}ann", digest) == b"to ann"
    assert said(f"k{SCOPE}ann", other).text == "request key 'k' was used with another body"
    assert said(f"k{SCOPE}bob", digest) is said(f"k{SCOPE}bob", other) is None
    assert said("k", digest) is None, "nor does a client of the version before get it"
    assert said(f"old{SCOPE}ann", digest) == b"to somebody"
    assert said(f"old{SCOPE}ann", other) is None, "it is not known whose it was"


@pytest.mark.parametrize(("key", "kept_s"), [("nightly", KEEP_S), (DRAWN, DRAWN_S)])
def test_keys_of_the_version_before_are_looked_for_as_long_as_repeats_come(
    key: str, kept_s: float
) -> None:
    now_s = [1000.0]
    form, sent, call = OtherForm(lambda: now_s[0]), request(key, SUE), Call(key, SUE)
    plain = (key, sent[1])
    assert form.of(plain, call) == sent, "of a daemon that has read the raised level already"
    now_s[0] += KEEP_S
    assert form.of(sent, call) == plain
    now_s[0] += kept_s - 1
    assert form.of(sent, call) == plain
    assert form.of(request(key, NOBODY), Call(key, NOBODY)) is None, "they make the same"
    assert form.of(plain, Call(key, NOBODY)) is None
    assert form.of(None, call) is None
    now_s[0] += 1
    assert form.of(sent, call) is None


def test_below_its_level_a_key_is_what_daemons_of_the_version_before_make_of_it() -> None:
    """A repeat at one of them finds what was asked here, whoever has proved a name."""
    digest = hashlib.sha256(b"").digest()
    for by in (SUE, OTHER, NOBODY):
        assert request("k", by, level=LEVEL_CALLERS - 1) == ("k", digest)
    assert made_id(request("k", SUE, level=LEVEL_CALLERS - 1), "job") == derived("k", "job")


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


@pytest.mark.parametrize("drawn", [True, False])
def test_a_repeat_across_an_upgrade_finds_what_the_version_before_has_made(
    fleet: Guarded, drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs and pools, of their own client alone."""
    for module in (job_create, resource_manager):  # which may have read the level long ago
        monkeypatch.setattr(module, "OTHER_FORM", OtherForm())
    key = f"{'' if drawn else 'nightly-'}{uuid.uuid4()}"
    sent = create_request(fleet.pools["/team/jobs"], name="before")
    wanted = to_spec(sent.config, inventories=2, on_mesos=False)
    command = CreateJob(wanted.spec, (), 0, "/team/jobs")
    old, ask = derived(key, "job"), fleet.open.region.ask
    digest = hashlib.sha256(sent.SerializeToString(deterministic=True)).digest()
    made = ask(Key(f"job/{old}"), command, request=(key, digest), who=SUE.text)
    assert isinstance(made.result(WAIT_S_MAX), JobCreated)
    assert fleet.open.create(sent, metadata=keyed(key, SUE)) == old
    assert fleet.open.create(sent, metadata=keyed(key, OTHER)) != old
    other = create_request(fleet.pools["/team/jobs"], name="another")
    with pytest.raises(grpc.RpcError) as caught:
        fleet.open.create(other, metadata=keyed(key, SUE))
    assert "another body" in str(caught.value.details())
    pool = respool.CreateRequest(config=pool_config(f"p-{uuid.uuid4()}", cpu=0.1))
    old = derived(key, "pool")
    done = ask(pool_key(old), CreatePool(to_pool(pool.config)), who=SUE.text)
    assert isinstance(done.result(WAIT_S_MAX), PoolDone)
    answer = fleet.open.pools.CreateResourcePool(pool, metadata=keyed(key, SUE))
    assert answer.result.value == old
