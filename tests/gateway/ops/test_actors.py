"""peloton.ops.v1.Actors and the SDK's calls of it: kinds of extensions through real servers."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import grpc
import msgspec
import pytest
from lease_lock.kind import HELD, INVALID, LOCK, Acquire, Lease, Lock, Release, Released, Renew
from msgspec.structs import replace

from peloton.gateway.access.access_table import ACTORS, OPS
from peloton.ops.v1 import actors_pb2 as wire
from peloton.ops.v1 import actors_pb2_grpc
from peloton.ops.v1 import ops_pb2 as ops
from peloton.runtime.core.principal import BASIC, Principal
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import key
from peloton.sdk.actors import ActorCalls, ActorRefused
from peloton.sdk.calls import Blocking
from peloton.sdk.client import Client
from peloton.sdk.errors import BadSpec, NotFound, PelotonError
from peloton.sdk.kit import (
    ActorFact,
    ActorKind,
    ActorMessage,
    ActorQuery,
    ActorReply,
    ActorState,
    At,
    Decision,
    build,
)
from tests.gateway.access_fixture import RULES, Guarded, guarded, said_by
from tests.gateway.fleet_fixture import WAIT_S_MAX, Deployment, running, until

CODE = grpc.StatusCode
BROKEN = threading.Event()
"""While it is set, `Add` raises."""


class Tally(ActorState, frozen=True):
    total: int = 0
    over: bool = False


class Add(ActorMessage, frozen=True):
    number: int
    note: str = ""


class End(ActorMessage, frozen=True):
    pass


class Share(ActorQuery, frozen=True):
    of: int


class Shared(ActorReply, frozen=True):
    each: float


class Added(ActorFact, frozen=True):
    number: int


class Ended(ActorFact, frozen=True):
    pass


TALLY = ActorKind("tally", state=Tally)


@TALLY.decides(Add)
def add(tally: Tally, message: Add, at: At) -> Decision:
    if BROKEN.is_set():
        raise RuntimeError("out of order")
    return Decision((Added(message.number),), because=f"{message.number} more")


@TALLY.decides(End)
def end(tally: Tally, message: End, at: At) -> Decision:
    return Decision((Ended(),))


@TALLY.answers(Share, reply=Shared)
def share(tally: Tally, query: Share, at: At) -> Shared:
    return Shared(tally.total / query.of)


@TALLY.folds(Added)
def added(tally: Tally, fact: Added) -> Tally:
    return replace(tally, total=tally.total + fact.number)


@TALLY.folds(Ended)
def ended(tally: Tally, fact: Ended) -> Tally:
    return replace(tally, over=True)


@TALLY.ends
def ends(tally: Tally) -> bool:
    return tally.over


KINDS = {"lock": build(LOCK), "tally": build(TALLY)}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with running(tmp_path_factory.mktemp("extended"), extensions=KINDS) as found:
        yield found


@pytest.fixture(scope="module")
def client(deployment: Deployment) -> Iterator[Client]:
    with Client(deployment.api, timeout_s=WAIT_S_MAX) as found:
        yield found


@pytest.fixture
def tallies(client: Client) -> ActorCalls[Blocking]:
    return client.actors("tally")


def new() -> str:
    return f"t-{uuid.uuid4()}"


def test_it_is_told_and_asked_by_the_classes_of_the_extension(client: Client) -> None:
    locks, name = client.actors("lock"), new()
    assert locks.state(name) is None
    assert locks.tell(name, Acquire("ann", 30.0), into=Lease) == Lease(1, 30.0)
    assert locks.state(name, into=Lock) == Lock("ann", 1, 30.0)
    assert locks.tell(name, Release(1), into=Released) == Released()
    assert client.actors("tally").tell(new(), Add(1)) == {}, "a message without a reply"


def test_it_is_told_and_asked_by_names_of_classes(tallies: ActorCalls[Blocking]) -> None:
    name = new()
    tallies.tell(name, ("Add", {"number": 6}))
    assert tallies.ask(name, ("Share", {"of": 4})) == {"each": 1.5}
    assert tallies.ask(name, Share(3), into=Shared) == Shared(2.0)
    assert tallies.state(name) == {"total": 6, "over": False}
    with pytest.raises(NotFound, match="there is no actor tally/"):
        tallies.ask(new(), Share(1))


def test_an_actor_that_ends_is_gone_and_begins_anew(tallies: ActorCalls[Blocking]) -> None:
    name = new()
    tallies.tell(name, Add(6))
    tallies.tell(name, End())
    assert tallies.state(name) is None
    tallies.tell(name, Add(1))
    assert tallies.state(name, into=Tally) == Tally(1)


def test_a_refusal_says_whether_to_ask_again(client: Client) -> None:
    locks, name = client.actors("lock"), new()
    locks.tell(name, Acquire("ann", 30.0))
    with pytest.raises(ActorRefused, match="ann has it, token 1") as caught:
        locks.tell(name, Acquire("bob", 30.0))
    assert (caught.value.kind, caught.value.field, caught.value.again) == (HELD, "", True)
    with pytest.raises(ActorRefused, match="ttl_s: 0.5 is not between") as caught:
        locks.tell(name, Acquire("bob", 0.5))
    assert (caught.value.kind, caught.value.field, caught.value.again) == (INVALID, "ttl_s", False)


def test_the_same_request_key_has_the_first_reply(client: Client) -> None:
    tallies, locks, name, once = client.actors("tally"), client.actors("lock"), new(), new()
    for _ in range(3):
        tallies.tell(name, Add(5), request_key=once)
    assert tallies.state(name, into=Tally) == Tally(5)
    tallies.tell(name, Add(5))
    assert tallies.state(name, into=Tally) == Tally(10)
    first = locks.tell(name, Acquire("ann", 30.0), into=Lease, request_key=once)
    locks.tell(name, Release(1))
    assert locks.tell(name, Acquire("ann", 30.0), into=Lease, request_key=once) == first
    assert locks.state(name, into=Lock) == Lock(token=1), "it was not taken again"
    with pytest.raises(PelotonError, match="request key"):
        tallies.tell(name, Add(6), request_key=once)


TELL, ASK, LIST, WATCH = "Tell", "Ask", "ListActors", "WatchActor"
BAD: list[tuple[str, str, Any, CODE, str]] = [
    ("no kind", TELL, wire.TellRequest(name="a"), CODE.NOT_FOUND,
     "kind: no kind '' of an extension in this cluster; there are lock, tally"),
    ("one of ours", ASK, wire.AskRequest(kind="job", name="a"), CODE.NOT_FOUND,
     "kind: no kind 'job' of an extension in this cluster; there are lock, tally"),
    ("another", LIST, wire.ListActorsRequest(kind="locks"), CODE.NOT_FOUND,
     "kind: no kind 'locks'"),
    ("another", WATCH, wire.WatchActorRequest(kind="locks"), CODE.NOT_FOUND,
     "kind: no kind 'locks'"),
    ("no name", TELL, wire.TellRequest(kind="lock"), CODE.INVALID_ARGUMENT,
     "name: '' is not 1 to 200 printable characters without /"),
    ("no name", WATCH, wire.WatchActorRequest(kind="lock"), CODE.INVALID_ARGUMENT, "name: '' is "),
    ("a name in parts", ASK, wire.AskRequest(kind="lock", name="a/b"), CODE.INVALID_ARGUMENT,
     "name: 'a/b' is not 1 to 200"),
    ("a name that is too long", ASK, wire.AskRequest(kind="lock", name="x" * 201),
     CODE.INVALID_ARGUMENT, "name: 'xxx"),
    ("a name with a space", ASK, wire.AskRequest(kind="lock", name="a b"), CODE.INVALID_ARGUMENT,
     "name: 'a b' is not"),
    ("a name of a line", ASK, wire.AskRequest(kind="lock", name="a\n"), CODE.INVALID_ARGUMENT,
     r"name: 'a\n' is not"),
    ("no message", TELL, wire.TellRequest(kind="lock", name="a"), CODE.INVALID_ARGUMENT,
     "message: '' is none of Acquire, Release, Renew"),
    ("a query as a message", TELL, wire.TellRequest(kind="lock", name="a", message="GetState"),
     CODE.INVALID_ARGUMENT, "message: 'GetState' is none of"),
    ("a message as a query", ASK, wire.AskRequest(kind="tally", name="a", query="Add"),
     CODE.INVALID_ARGUMENT, "query: 'Add' is none of GetState, Share"),
    ("no JSON", TELL, wire.TellRequest(kind="lock", name="a", message="Renew", body=b"{"),
     CODE.INVALID_ARGUMENT, "body: not JSON: "),
    ("no UTF-8", TELL, wire.TellRequest(kind="tally", name="a", message="Add",
     body=b'{"number": 1, "note": "\xff"}'), CODE.INVALID_ARGUMENT, "body"),
    ("no object", TELL, wire.TellRequest(kind="lock", name="a", message="Renew", body=b"[1]"),
     CODE.INVALID_ARGUMENT, "body: Expected `object`, got `array`"),
    ("a field missing", TELL, wire.TellRequest(kind="lock", name="a", message="Renew"),
     CODE.INVALID_ARGUMENT, "body: Object missing required field `token`"),
    ("a field of another type", TELL, wire.TellRequest(kind="lock", name="a", message="Acquire",
     body=b'{"holder": "ann", "ttl_s": "30"}'), CODE.INVALID_ARGUMENT,
     "body.ttl_s: Expected `float`, got `str`"),
    ("a field that is not there", TELL, wire.TellRequest(kind="lock", name="a", message="Renew",
     body=b'{"token": 1, "tokn": 2}'), CODE.INVALID_ARGUMENT, "body.tokn: Renew has no such field"),
    ("what the actor finds wrong", TELL, wire.TellRequest(kind="lock", name="a", message="Renew",
     body=b'{"token": 1e400}'), CODE.INVALID_ARGUMENT, "body"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("what", "method", "sent", "code", "says"), BAD, ids=[f"{row[1]}: {row[0]}" for row in BAD]
)
def test_a_bad_request_is_refused_with_its_field(
    deployment: Deployment, what: str, method: str, sent: Any, code: CODE, says: str
) -> None:
    stub = actors_pb2_grpc.ActorsStub(deployment.channel)
    with pytest.raises(grpc.RpcError) as caught:
        answer = getattr(stub, method)(sent, timeout=WAIT_S_MAX)
        list(answer) if method == WATCH else None
    assert caught.value.code() == code
    assert caught.value.details().startswith(says), caught.value.details()


def test_the_sdk_says_what_cannot_be_sent(client: Client) -> None:
    tallies = client.actors("tally")
    with pytest.raises(BadSpec, match="Add: "):
        tallies.tell("a", ("Add", {"number": object()}))
    with pytest.raises(BadSpec, match=r"body.number: Expected `int`, got `str`"):
        tallies.tell("a", ("Add", {"number": "six"}))
    with pytest.raises(NotFound, match="no kind 'tallies'"):
        client.actors("tallies").state("a")


def test_kinds_say_what_they_may_be_told(client: Client) -> None:
    lock, tally = client.kinds()
    assert (lock.name, [*lock.messages]) == ("lock", ["Acquire", "Release", "Renew"])
    assert (tally.name, [*tally.queries]) == ("tally", ["GetState", "Share"])
    schemas = json.loads(tally.schema)["$defs"]
    assert schemas["Add"]["properties"]["number"] == {"type": "integer"}
    assert schemas["Add"]["required"] == ["number"]
    assert {"Tally", "Add", "End", "Share", "Shared", "GetState"} <= schemas.keys()


MANY = 2300


@pytest.fixture(scope="module")
def many(deployment: Deployment) -> list[str]:
    """The names of more actors than a page has, over all shards, in their order."""
    names = [f"many-{number:05}" for number in range(MANY)]
    mail = [Envelope(key("lock", name), Acquire(name, 30_000.0)) for name in names]
    deployment.region.tell(mail)
    stub = actors_pb2_grpc.ActorsStub(deployment.channel)
    # A shard takes its mail in order, so with the last of each all are there.
    lasts = {deployment.region.shard_of(key("lock", name)): name for name in names}.values()
    deployment.until(lambda: all(_held(stub, name) for name in lasts))
    return names


def _held(stub: Any, name: str) -> bool:
    sent = wire.ListActorsRequest(kind="lock", after=f"{name[:-1]}", limit=20)
    return name in [actor.name for actor in stub.ListActors(sent).actors]


@pytest.mark.slow  # so many actors
@pytest.mark.parametrize("limit", [0, 7, 999, 1000])
def test_pages_are_in_order_and_have_every_actor_once(
    deployment: Deployment, many: list[str], limit: int
) -> None:
    stub = actors_pb2_grpc.ActorsStub(deployment.channel)
    # The shards are as many, and none of them is first with all of its own.
    assert len({deployment.region.shard_of(key("lock", name)) for name in many}) == 4
    after, found, sizes = "", list[str](), list[int]()
    while True:
        sent = wire.ListActorsRequest(kind="lock", limit=limit, after=after)
        page = stub.ListActors(sent, timeout=WAIT_S_MAX)
        found += [actor.name for actor in page.actors]
        sizes.append(len(page.actors))
        after = page.after
        if not after or (limit == 7 and len(sizes) == 40):
            break
    assert found == sorted(found)
    ours = [name for name in found if name.startswith("many-")]
    if limit == 7:
        assert ours == many[: len(ours)] and {*sizes} == {7}
    else:
        assert ours == many
        assert max(sizes) <= (limit or 1000)


@pytest.mark.slow  # so many actors
def test_the_sdk_reads_all_pages(client: Client, many: list[str]) -> None:
    found = dict(client.actors("lock").all(into=Lock))
    assert [*found] == sorted(found)
    assert {name: found[name] for name in many} == {name: Lock(name, 1, 30_000.0) for name in many}


def test_large_actors_come_in_pages_that_can_be_sent(client: Client) -> None:
    """A page of a shard ends by its size as well, and behind it no other shard's may be listed."""
    locks = client.actors("lock")
    names = [f"large-{number:02}" for number in range(40)]
    for name in names:
        locks.tell(name, Acquire("h" * 60_000, 3000.0))
    found = [name for name, _ in locks.all() if name.startswith("large-")]
    assert found == names


def test_a_watch_tells_the_state_at_once_and_after_each_change(client: Client) -> None:
    locks, name = client.actors("lock"), new()
    told = locks.watch(name, into=Lock)
    assert next(told) is None
    locks.tell(name, Acquire("ann", 3000.0))
    assert next(told) == Lock("ann", 1, 3000.0)
    locks.tell(new(), Acquire("bob", 3000.0))
    locks.tell(name, Renew(1))
    assert next(told) == Lock("ann", 1, 3000.0, renewals=1)
    tallies = client.actors("tally")
    tallies.tell(name, Add(1))
    gone = tallies.watch(name)
    assert next(gone) == {"total": 1, "over": False}
    tallies.tell(name, End())
    assert next(gone) is None
    gone.close()  # type: ignore[attr-defined]
    told.close()  # type: ignore[attr-defined]


@pytest.mark.slow  # it is tried three times
def test_story_watch_and_redrive_know_the_keys(
    deployment: Deployment, tallies: ActorCalls[Blocking]
) -> None:
    name = new()
    stream = deployment.ops.Watch(ops.WatchRequest(kinds=["tally"]))
    next(stream)
    tallies.tell(name, Add(2))
    events = [event for message in _until_event(stream, name) for event in message.events]
    assert f"tally/{name}" in [event.key for event in events]
    stream.cancel()

    story = deployment.ops.Story(ops.StoryRequest(key=f"tally/{name}"))
    assert [(line.cause, line.because) for line in story.lines] == [("Add", "2 more")]
    for text, code in ((f"tally/{new()}", CODE.NOT_FOUND), ("tally/a b", CODE.INVALID_ARGUMENT)):
        with pytest.raises(grpc.RpcError) as caught:
            deployment.ops.Story(ops.StoryRequest(key=text))
        assert caught.value.code() == code

    BROKEN.set()
    try:
        with pytest.raises(PelotonError, match="out of order"):
            tallies.tell(name, Add(3))
    finally:
        BROKEN.clear()
    assert tallies.state(name, into=Tally) == Tally(2)
    quarantined = deployment.ops.ListQuarantine(ops.ListQuarantineRequest()).quarantined
    (one,) = [each for each in quarantined if each.key == f"tally/{name}"]
    assert (one.message, one.attempts) == ("Add", 3) and "out of order" in one.error
    deployment.ops.Redrive(ops.RedriveRequest(key=f"tally/{name}"))
    until(lambda: tallies.state(name, into=Tally) == Tally(5))


def _until_event(stream: Any, name: str) -> Iterator[Any]:
    for message in stream:
        yield message
        if any(event.key.endswith(name) for event in message.events):
            return


KIND_RULES = (
    RULES
    + """\
kinds:
  lock: {submit: [sue], see: [vera], administer: ["role:team-admin"]}
"""
)
CALLERS = {
    "root": Principal("root", BASIC, role="admin"),
    "paula": Principal("paula", BASIC, role="team-admin"),
    "sue": Principal("sue", BASIC),
    "vera": Principal("vera", BASIC),
    "zoe": Principal("zoe", BASIC),
}
REQUESTS: dict[str, Any] = {
    f"{ACTORS}.Tell": lambda kind: wire.TellRequest(
        kind=kind, name="p", **{"lock": {"message": "Release", "body": b'{"token": 0}'}}.get(
            kind, {"message": "Add", "body": b'{"number": 1}'})
    ),
    f"{ACTORS}.Ask": lambda kind: wire.AskRequest(kind=kind, name="known", query="GetState"),
    f"{ACTORS}.ListActors": lambda kind: wire.ListActorsRequest(kind=kind),
    f"{OPS}.Story": lambda kind: ops.StoryRequest(key=f"{kind}/known"),
}  # fmt: skip
SEE, TELLS = ("Ask", "ListActors", "Story"), ("Tell",)
MAY: dict[tuple[str, str], tuple[str, ...]] = {
    ("root", "lock"): (*TELLS, *SEE),
    ("paula", "lock"): (*TELLS, *SEE),
    ("sue", "lock"): (*TELLS, *SEE),
    ("vera", "lock"): SEE,
    ("zoe", "lock"): (),
    ("root", "tally"): (*TELLS, *SEE),
    ("paula", "tally"): (),
    ("sue", "tally"): (),
    ("vera", "tally"): (),
    ("zoe", "tally"): (),
}
"""By caller and kind; `tally` has no rule."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded(tmp_path_factory.mktemp("guarded"), KIND_RULES, extensions=KINDS) as found:
        with Client(found.open.api, timeout_s=WAIT_S_MAX) as client:
            client.actors("lock").tell("known", Acquire("ann", 3000.0))
            client.actors("tally").tell("known", Add(1))
        yield found


@pytest.mark.slow  # a cluster of its own
@pytest.mark.parametrize(("caller", "kind"), MAY, ids=[" of ".join(row) for row in MAY])
def test_permissions_are_per_kind(fleet: Guarded, caller: str, kind: str) -> None:
    allowed = []
    for method, made in REQUESTS.items():
        code, text, _ = fleet.call(method, made(kind), CALLERS[caller])
        if code == CODE.OK:
            allowed.append(method.rpartition(".")[2])
            continue
        permission = "submit" if method.endswith("Tell") else "see"
        says = f"{method}: {caller} has no permission to {permission} in kind {kind}"
        assert (code, text) == (CODE.PERMISSION_DENIED, says)
    assert sorted(allowed) == sorted(MAY[caller, kind])


@pytest.mark.slow  # a cluster of its own
@pytest.mark.parametrize(("caller", "kind"), MAY, ids=[" of ".join(row) for row in MAY])
def test_streams_are_permitted_as_questions_are(fleet: Guarded, caller: str, kind: str) -> None:
    said = said_by(CALLERS[caller])
    streams = [
        fleet.channel.unary_stream(f"/{ACTORS}/WatchActor")(
            wire.WatchActorRequest(kind=kind, name="known").SerializeToString(), metadata=said
        ),
        fleet.channel.unary_stream(f"/{OPS}/Watch")(
            ops.WatchRequest(kinds=[kind]).SerializeToString(), metadata=said
        ),
    ]
    for stream in streams:
        if "Ask" in MAY[caller, kind]:
            next(stream)
            stream.cancel()
            continue
        with pytest.raises(grpc.RpcError) as caught:
            next(stream)
        assert caught.value.code() == CODE.PERMISSION_DENIED


@pytest.mark.slow  # a cluster of its own
def test_a_told_message_is_in_the_audit_log(fleet: Guarded) -> None:
    sent = wire.TellRequest(kind="lock", name="audited", message="Release", body=b'{"token": 0}')
    fleet.call(f"{ACTORS}.Tell", sent, CALLERS["sue"])

    def line() -> Any:
        lines = (fleet.folder / "audit.log").read_text().splitlines()
        rows = [msgspec.json.decode(each) for each in lines]
        return [row for row in rows if row["objects"].get("actor") == "lock/audited"]

    (found,) = until(line)
    assert (found["who"], found["method"]) == ("sue", f"{ACTORS}.Tell")
    assert found["objects"] == {"actor": "lock/audited", "message": "Release"}
