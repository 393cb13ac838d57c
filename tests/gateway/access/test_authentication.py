"""Who may call: every way to prove it, on a real server, and what becomes of the secrets.

The service of these tests answers with the principal and the metadata that it sees.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
import yaml
from grpc_health.v1 import health_pb2, health_pb2_grpc

from peloton.api.v0.job import job_pb2
from peloton.gateway.access.access_table import ACCESS_TABLE
from peloton.gateway.access.authentication import (
    HOW_TO_CALL,
    NO_TOKEN,
    NO_USER,
    PATH_LENGTH_MAX,
    WRONG_TOKEN,
    Authentication,
)
from peloton.gateway.access.basic_users import parse_users
from peloton.gateway.access.guard import CallEnded
from peloton.gateway.access.principals import CALLER_LENGTH_MAX
from peloton.gateway.server.calls import CallContext
from peloton.gateway.server.intake import Intake
from peloton.gateway.server.long_calls import LongCall
from peloton.gateway.server.serving import Server
from peloton.gateway.server.unimplemented import refusals
from peloton.gateway.translate.short_names import SHORT
from peloton.runtime.adapters.grpc_certificates import ListenerPems
from peloton.runtime.core.principal import BASIC, TLS, Principal
from tests.adapters.pems import Authority
from tests.conftest import ROOT
from tests.gateway.fleet_fixture import WAIT_S_MAX

CODE = grpc.StatusCode
TOKEN = "k3Q-a_token_of_a_daemon-9fX"
BEARER = ("authorization", f"Bearer {TOKEN}")
JOBS = job_pb2.DESCRIPTOR.services_by_name["JobManager"]
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
ANN, BOB = [("username", "ann"), ("password", "s3cret")], [("username", "bob"), ("password", "pw")]
USERS = {
    "users": [
        {"username": "ann", "password": "s3cret", "role": "all"},
        {"username": "bob", "password": "pw", "role": "readers"},
        {"username": "eve", "password": "none", "role": "nothing"},
    ],
    "roles": [
        {"role": "all", "accept": ["*"]},
        {
            "role": "readers",
            "accept": [f"{JOBS.full_name}:Get*", f"{JOBS.full_name}:Delete"],
            "reject": [f"{JOBS.full_name}:Delete"],
        },
        {"role": "nothing", "accept": ["*"], "reject": ["*"]},
    ],
    "internal_user": "ann",
}


class Mirror:
    """Answers who calls, and remembers what a handler can see."""

    def __init__(self) -> None:
        self.principals: list[Principal] = []
        self.seen: list[tuple[str, str]] = []

    def Get(self, sent: Any, context: CallContext) -> job_pb2.GetResponse:
        self._note(context)
        return job_pb2.GetResponse()

    async def Delete(self, sent: Any, context: LongCall) -> job_pb2.DeleteResponse:
        self._note(context)
        return job_pb2.DeleteResponse()

    async def Check(self, sent: Any, context: LongCall) -> health_pb2.HealthCheckResponse:
        self._note(context)
        return health_pb2.HealthCheckResponse(status=1)

    def _note(self, context: CallContext) -> None:
        self.principals.append(context.principal)
        self.seen += [tuple(pair) for pair in context.invocation_metadata()]


class Served(NamedTuple):
    """A server, and who called it."""

    ports: list[int]
    mirror: Mirror

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.ports[0]}"


class CountedIntake(Intake):
    """Knows whether a request was ever read."""

    reads = 0

    def begin(self, call: Any, start: Callable[[], bool], *, who: Principal, now_s: float) -> None:
        self.reads += 1
        super().begin(call, start, who=who, now_s=now_s)


@contextlib.contextmanager
def serving(
    authentication: Authentication, *more: str, intake: Intake | None = None
) -> Iterator[Served]:
    mirror = Mirror()
    intake = intake or Intake(message_bytes_max=1 << 20, bytes_max=1 << 22)
    server = Server([], intake, authentication=authentication)
    server.add(JOBS, mirror, names=[JOBS.full_name, SHORT[JOBS.full_name]])
    server.add(HEALTH, mirror, names=[HEALTH.full_name])
    ports = server.listen(["127.0.0.1:0", *more])
    server.start()
    try:
        yield Served(ports, mirror)
    finally:
        server.stop(0).wait(WAIT_S_MAX)


def called(
    channel: grpc.Channel, metadata: Any = (), *, name: str = "Get", service: str = JOBS.full_name
) -> tuple[Any, str]:
    """Code and text of one call."""
    call = channel.unary_unary(f"/{service}/{name}")
    try:
        call(b"", metadata=metadata, timeout=WAIT_S_MAX)
    except grpc.RpcError as error:
        return error.code(), error.details()
    return CODE.OK, ""


def by_token(**how: Any) -> Authentication:
    return Authentication.by_token(TOKEN, owner="root", **how)


# ---- tokens and the socket ----


def test_a_token_proves_that_its_daemons_user_calls() -> None:
    with serving(by_token()) as served, grpc.insecure_channel(served.address) as channel:
        for name in ("Get", "Delete", "NoSuchMethod"):
            assert called(channel, name=name) == (CODE.UNAUTHENTICATED, NO_TOKEN)
        for wrong in (TOKEN[:-1], TOKEN + "x", "", "x" * 5_000, "Bearer"):
            said = [("authorization", f"Bearer {wrong}")]
            code, text = called(channel, said)
            assert code is CODE.UNAUTHENTICATED and text.endswith(HOW_TO_CALL)
            assert not wrong or wrong not in text.replace(HOW_TO_CALL, "") or wrong == "Bearer"
        basic = [("authorization", f"Basic {TOKEN}")]
        assert called(channel, basic) == (CODE.UNAUTHENTICATED, NO_TOKEN)
        assert called(channel, [("authorization", "Bearer nothing")])[1] == WRONG_TOKEN
        assert not served.mirror.principals, "none of them came to a handler"
        said = [BEARER, ("rpc-caller", "tool"), ("peloton-user", "ann")]
        for name in ("Get", "Delete"):
            assert called(channel, said, name=name)[0] is CODE.OK
        assert called(channel, [("authorization", f"bearer {TOKEN}")])[0] is CODE.OK
        texts = [found.text for found in served.mirror.principals]
        assert texts == ["token:root@127.0.0.1/tool"] * 2 + ["token:root@127.0.0.1"]


def test_nothing_is_read_of_a_request_before_its_caller_is_known() -> None:
    intake = CountedIntake(message_bytes_max=1 << 20, bytes_max=1 << 22)
    with (
        serving(by_token(), intake=intake) as served,
        grpc.insecure_channel(served.address) as channel,
    ):
        get = channel.unary_unary(f"/{JOBS.full_name}/Get")
        for data in (b"", b"x" * 100, b"x" * 900_000):
            with pytest.raises(grpc.RpcError) as caught:
                get(data, timeout=WAIT_S_MAX)
            assert caught.value.code() is CODE.UNAUTHENTICATED
        assert intake.reads == 0
        assert called(channel, [BEARER])[0] is CODE.OK
        assert intake.reads == 1


def test_requests_of_unproven_callers_take_no_room_of_proven_ones() -> None:
    intake = CountedIntake(message_bytes_max=1 << 20, bytes_max=3 << 20)
    never = threading.Event()

    def nothing() -> Iterator[bytes]:
        never.wait(WAIT_S_MAX)
        yield from ()

    with (
        serving(by_token(), intake=intake) as served,
        grpc.insecure_channel(served.address) as channel,
    ):
        path = f"/{HEALTH.full_name}/Check"
        held = [channel.stream_stream(path)(nothing()) for _ in range(10)]
        assert called(channel, service=HEALTH.full_name, name="Check")[0] is CODE.OK
        codes = [each.code() for each in held]
        assert codes == [CODE.RESOURCE_EXHAUSTED] * 10, "within seconds"
        assert intake.reads == 0 and intake._bytes == 0
        large = channel.unary_unary(path).future(bytes(900_000), timeout=WAIT_S_MAX)
        assert large.code() is CODE.RESOURCE_EXHAUSTED, "a small request is enough"
        assert called(channel, service=HEALTH.full_name, name="Check")[0] is CODE.OK
        never.set()


def test_whoever_opens_the_socket_is_its_owner(tmp_path: Path) -> None:
    path = f"unix:{tmp_path / 's'}"
    with serving(by_token(), path) as served, grpc.insecure_channel(path) as channel:
        assert called(channel)[0] is CODE.OK
        assert [found.text for found in served.mirror.principals] == ["socket:root@unix"]


def test_health_is_open_to_all_and_reflection_is_not() -> None:
    with serving(by_token()) as served, grpc.insecure_channel(served.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        said = [("authorization", "Bearer wrong"), ("password", "x")]
        sent = health_pb2.HealthCheckRequest()
        assert health.Check(sent, metadata=said, timeout=WAIT_S_MAX).status == 1
        assert not {"authorization", "password"} & {name for name, _ in served.mirror.seen}
        reflection = "grpc.reflection.v1alpha.ServerReflection"
        code, _ = called(channel, service=reflection, name="ServerReflectionInfo")
        assert code is CODE.UNAUTHENTICATED


def test_where_all_may_call_a_name_in_metadata_is_unverified() -> None:
    for anybody in (Authentication.open(), by_token(open_=True)):
        with serving(anybody) as served, grpc.insecure_channel(served.address) as channel:
            assert called(channel, [("username", "ann"), ("password", "x")])[0] is CODE.OK
            assert called(channel, [("authorization", "Bearer another")])[0] is CODE.OK
            texts = [found.text for found in served.mirror.principals]
            assert texts == ["unverified:ann@127.0.0.1", "none:@127.0.0.1"]
    with serving(by_token(open_=True)) as served, grpc.insecure_channel(served.address) as channel:
        assert called(channel, [BEARER])[0] is CODE.OK
        assert served.mirror.principals[0].text == "token:root@127.0.0.1"


def test_no_handler_sees_a_secret() -> None:
    users = Authentication.by_password(parse_users(USERS))
    for known in (by_token(), users, Authentication.open()):
        with serving(known) as served, grpc.insecure_channel(served.address) as channel:
            for name in ("Get", "Delete"):
                assert called(channel, [*ANN, BEARER, ("x", "y")], name=name)[0] is CODE.OK
            assert ("x", "y") in served.mirror.seen
            assert not {"s3cret", f"Bearer {TOKEN}"} & {text for _, text in served.mirror.seen}
            assert ("username", "ann") in served.mirror.seen


# ---- names and passwords ----


@pytest.mark.parametrize(
    "said",
    [
        [],
        ANN[:1],
        ANN[1:],
        [("username", "ann"), ("password", "wrong")],
        [("username", "zoe"), ("password", "s3cret")],
        [("username", ""), ("password", "")],
        [("username", "ann"), ("password", "")],
        [("username", ""), ("password", "s3cret")],
        [BEARER],
    ],
)
def test_a_wrong_name_and_a_wrong_password_get_the_same_answer(said: Any) -> None:
    users = Authentication.by_password(parse_users(USERS))
    with serving(users) as served, grpc.insecure_channel(served.address) as channel:
        assert called(channel, said) == (CODE.UNAUTHENTICATED, NO_USER)
        assert NO_USER == "invalid Username/Password combination"
        assert not served.mirror.principals


def test_a_role_decides_which_methods_may_be_called() -> None:
    users = Authentication.by_password(parse_users(USERS))
    with serving(users) as served, grpc.insecure_channel(served.address) as channel:
        assert called(channel, ANN, name="Delete")[0] is CODE.OK
        assert called(channel, BOB)[0] is CODE.OK
        names = [(one.name, one.how, one.role) for one in served.mirror.principals]
        assert names == [("ann", BASIC, "all"), ("bob", BASIC, "readers")]
        refused = (
            CODE.PERMISSION_DENIED,
            f"not permitted to call Delete in {JOBS.full_name}",
        )
        assert called(channel, BOB, name="Delete") == refused
        code, text = called(channel, BOB, name="Delete", service=SHORT[JOBS.full_name])
        assert code is CODE.PERMISSION_DENIED, "nor under the other name of the service"
        assert called(channel, BOB, name="Get", service=SHORT[JOBS.full_name])[0] is CODE.OK
        assert called(channel, BOB, name="Create")[0] is CODE.PERMISSION_DENIED
        evading = [*BOB, ("rpc-service", "other")]
        assert called(channel, evading, name="Delete")[0] is CODE.PERMISSION_DENIED
        eve = [("username", "eve"), ("password", "none")]
        assert called(channel, eve)[0] is CODE.PERMISSION_DENIED, "a reject of * rejects all"


def test_who_says_nothing_is_the_default_user() -> None:
    anybody = {"role": "readers"}
    raw = USERS | {"users": [*USERS["users"], anybody]}
    users = Authentication.by_password(parse_users(raw))
    with serving(users) as served, grpc.insecure_channel(served.address) as channel:
        assert called(channel)[0] is CODE.OK
        assert called(channel, name="Delete")[0] is CODE.PERMISSION_DENIED
        assert served.mirror.principals == [Principal("", BASIC, "127.0.0.1", "", "readers")]
        assert called(channel, ANN[:1]) == (CODE.UNAUTHENTICATED, NO_USER)


def test_the_file_of_the_documentation_is_one() -> None:
    page = (ROOT / "docs" / "fleet.md").read_text()
    text = page.partition("```yaml\nusers:")[2].partition("```")[0]
    users = parse_users(yaml.safe_load(f"users:{text}"))
    assert users.permits("operators", f"/{JOBS.full_name}/Delete")
    assert users.permits("readers", f"/{JOBS.full_name}/Get")
    assert not users.permits("readers", f"/{JOBS.full_name}/Delete")
    assert users.default is not None and users.default.role.name == "readers"


def without(field: str) -> dict[str, Any]:
    return {name: value for name, value in USERS.items() if name != field}


def with_user(**user: Any) -> dict[str, Any]:
    return USERS | {"users": [*USERS["users"], user]}


def with_role(**role: Any) -> dict[str, Any]:
    return USERS | {"roles": [*USERS["roles"], role]}


BAD: Mapping[str, tuple[Any, str]] = {
    "duplicate role": (with_role(role="all"), r"roles\[3\]\.role: duplicate role"),
    "duplicate user": (
        with_user(username="ann", password="x", role="all"),
        r"users\[3\]\.username: duplicate user",
    ),
    "unknown role": (
        with_user(username="x", password="x", role="none"),
        r"users\[3\]\.role: there is no such role",
    ),
    "name without password": (with_user(username="x", role="all"), "username and password go"),
    "password without name": (with_user(password="x", role="all"), "username and password go"),
    "two default users": (
        USERS | {"users": [*USERS["users"], {"role": "all"}, {"role": "all"}]},
        "more than one default user",
    ),
    "rule without method": (with_role(role="x", accept=["a.B"]), r"accept\[0\]: is neither"),
    "rule of two stars": (with_role(role="x", reject=["a.B:**"]), r"reject\[0\]: is"),
    "rule with a star before": (with_role(role="x", accept=["a.B:*Get"]), "neither"),
    "rule of all services": (with_role(role="x", accept=["*:Get"]), "neither"),
    "no internal user": (without("internal_user"), "internal_user: must be given"),
    "unknown internal user": (USERS | {"internal_user": "zoe"}, "there is no such user"),
    "weak internal user": (USERS | {"internal_user": "bob"}, "must accept"),
    "rejecting internal user": (USERS | {"internal_user": "eve"}, "must accept"),
    "no mapping": ([1], "must be a mapping"),
    "users no list": (USERS | {"users": {"a": 1}}, "users: must be a list"),
    "password a number": (with_user(username="x", password=123456, role="all"), "a text"),
    "unknown field": (with_user(username="x", pasword="y", role="all"), r"users\[3\] has a field"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_with_a_mistake_is_refused_by_its_place(name: str) -> None:
    raw, text = BAD[name]
    with pytest.raises(Exception, match=text) as caught:
        parse_users(raw)
    assert type(caught.value).__name__ == "BadUsers"
    assert "123456" not in str(caught.value) and "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "form",
    ["/x/{}/Delete", "/{}//Delete", "//{}/Delete", "/{}/ Delete", "/{}/Delete/", "{}/Delete",
     "/{}/Delete\n", "/{}/", "/{}", "/{}./Delete/x", "/ {}/Delete", "", "/", "//"],
)  # fmt: skip
def test_a_path_of_another_form_passes_no_role(form: str) -> None:
    """It could pass what is rejected for the path it looks like."""
    rejects = {"role": "r", "accept": ["*"], "reject": [f"{JOBS.full_name}:Delete*"]}
    users = [*USERS["users"], {"username": "q", "password": "q", "role": "r"}]
    raw = USERS | {"users": users, "roles": [*USERS["roles"], rejects]}
    found = parse_users(raw)
    assert found.permits("r", f"/{JOBS.full_name}/Get")
    assert not found.permits("r", f"/{JOBS.full_name}/DeleteJob")
    path = form.format(JOBS.full_name)
    assert not found.permits("r", path)
    said = {"username": "q", "password": "q"}
    with pytest.raises(CallEnded) as caught:
        Authentication.by_password(found).admit(path, said, peer="ipv4:1.2.3.4:5")
    assert caught.value.code is CODE.PERMISSION_DENIED


def test_texts_of_clients_are_not_kept() -> None:
    """Neither paths that nothing serves nor long names: what is kept is bounded by bytes."""
    default = {"role": "all"}
    raw = USERS | {"users": [*[one for one in USERS["users"] if "username" in one], default]}
    users, long = Authentication.by_password(parse_users(raw)), "x" * 15_000

    def call_all(numbers: range) -> None:
        for number in numbers:
            peer = f"ipv4:1.2.3.4:{number}"
            with contextlib.suppress(CallEnded):
                users.admit(f"/a.{long}{number}/Get", {}, peer=peer)
            said = {"rpc-caller": f"{number}{long}"}
            found = users.admit(f"/{JOBS.full_name}/Get", said, peer=peer)
            assert found.caller == f"{number}{long}"[:CALLER_LENGTH_MAX]

    call_all(range(10))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        call_all(range(10, 1000))
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 2 << 20
    finally:
        tracemalloc.stop()


def test_no_method_has_a_longer_path_than_is_kept() -> None:
    served = ["/" + "/".join(name.rsplit(".", 1)) for name in ACCESS_TABLE]
    assert max(map(len, [*served, *refusals()])) <= PATH_LENGTH_MAX


# ---- certificates ----


def test_a_certificate_that_was_checked_names_the_principal(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
    ours, theirs = authority.issue("daemon"), authority.issue("ann", says="DNS:ann.example.org")
    stranger = other.issue("ann", says="DNS:ann.example.org")
    root = authority.ca.read_bytes()
    tls = ListenerPems(ours.certificate.read_bytes(), ours.key.read_bytes(), root)

    def answer(address: str, key: bytes | None, certificate: bytes | None) -> Any:
        client = grpc.ssl_channel_credentials(root, key, certificate)
        with grpc.secure_channel(address, client) as channel:
            return called(channel, [("peloton-user", "root"), ("username", "root")])[0]

    with serving(Authentication.by_certificate(tls)) as served:
        mine = (theirs.key.read_bytes(), theirs.certificate.read_bytes())
        assert answer(served.address, *mine) is CODE.OK
        (found,) = served.mirror.principals
        assert found.text == "tls:ann.example.org@127.0.0.1" and found.how == TLS
        strange = (stranger.key.read_bytes(), stranger.certificate.read_bytes())
        assert answer(served.address, *strange) is CODE.UNAVAILABLE
        assert answer(served.address, None, None) is CODE.UNAVAILABLE
        with grpc.insecure_channel(served.address) as channel:
            assert called(channel)[0] is CODE.UNAVAILABLE
        assert served.mirror.principals == [found]


def test_with_tls_alone_a_token_is_asked_for(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    ours, root = authority.issue("daemon"), authority.ca.read_bytes()
    tls = ListenerPems(ours.certificate.read_bytes(), ours.key.read_bytes())
    with serving(by_token(tls=tls)) as served:
        client = grpc.ssl_channel_credentials(root)
        with grpc.secure_channel(served.address, client) as channel:
            assert called(channel) == (CODE.UNAUTHENTICATED, NO_TOKEN)
            assert called(channel, [BEARER])[0] is CODE.OK
