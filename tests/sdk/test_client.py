"""The client against a real gRPC server: what it sends, repeats, and makes of refusals.

The server is a fake of dictionaries.
"""

from __future__ import annotations

import http.server
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import grpc
import pytest

from peloton.api.v0.job.job_pb2 import JobConfig
from peloton.api.v0.task import task_pb2
from peloton.ops.v1 import ops_pb2 as ops
from peloton.sdk import errors
from peloton.sdk import ops as sdk_ops
from peloton.sdk.client import Client as BlockingClient
from peloton.sdk.credentials import Credentials, Login
from peloton.sdk.jobs import JobQuery
from peloton.sdk.names import AmbiguousName
from tests.sdk.driven import DrivenClient
from tests.sdk.fakes import JOB, POOL, Cluster, serving
from tests.servers.process import free_ports

GONE = grpc.StatusCode.UNAVAILABLE


@pytest.fixture(name="Client", params=[BlockingClient, DrivenClient], ids=["blocking", "awaited"])
def either(request: pytest.FixtureRequest) -> Any:
    """Either client: what holds of one holds of both."""
    return request.param


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def client(Client: Any, cluster: Cluster) -> Iterator[BlockingClient]:
    with serving(cluster) as address, Client(address, timeout_s=60) as client:
        yield client


def test_every_call_says_who_calls_whom(Client: Any, cluster: Cluster) -> None:
    login = Login("ann", "secret")
    with serving(cluster) as address, Client(address, login=login) as client:
        client.pools.lookup("/hello")
    metadata = cluster.calls[0].metadata
    wanted = {
        "rpc-caller": "peloton-python",
        "rpc-service": "peloton-apiserver",
        "rpc-encoding": "proto",
        "username": "ann",
        "password": "secret",
    }
    assert {key: metadata.get(key) for key in wanted} == wanted
    assert "peloton-request-key" not in metadata


def test_the_variable_names_the_cluster_of_a_client_without_an_address(
    Client: Any, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(cluster) as address:
        monkeypatch.setenv("PELOTON_API", f"127.0.0.1:1,{address}")
        with Client(timeout_s=60) as client:
            assert client.pools.lookup("/hello") == POOL
        monkeypatch.setenv("PELOTON_API", "127.0.0.1:1")
        with Client(address, timeout_s=60) as client:
            assert client.pools.lookup("/hello") == POOL, "an argument comes first"


@pytest.mark.parametrize("wrong", ["schl\u00fcssel", "a\nb"])
def test_what_cannot_be_sent_as_metadata_is_refused(
    Client: Any, client: BlockingClient, wrong: str
) -> None:
    with pytest.raises(errors.BadSpec, match="request_key: must be printable ASCII"):
        client.jobs.create("/hello", {"name": "a"}, request_key=wrong)
    with pytest.raises(errors.BadSpec, match="password: must be printable ASCII"):
        Client("127.0.0.1:1", login=Login("ann", wrong))


def test_a_warning_is_one_of_python_or_goes_where_it_is_wanted(
    client: BlockingClient, cluster: Cluster
) -> None:
    cluster.warning = "cpuLimit: requested 9 – never"
    with pytest.warns(errors.PelotonWarning, match="requested 9 – never"):
        assert client.jobs.create("/hello", {"name": "a"}, wanted_id=JOB).jobId.value == JOB
    told: list[str] = []
    client.on_warning(told.append)
    client.jobs.update(JOB, {"instanceCount": 2})
    cluster.warning = ""
    client.jobs.update(JOB, {"instanceCount": 2})
    assert told == ["cpuLimit: requested 9 – never"]


def test_roles_have_addresses_of_their_own(Client: Any) -> None:
    jobmgr, resmgr = Cluster(), Cluster()
    with serving(jobmgr) as one, serving(resmgr) as other:
        roles = {"jobmgr": one, "resmgr": other}
        with Client("127.0.0.1:1", roles=roles) as client:
            client.jobs.create("/hello", {"name": "a"})
    assert [call.name for call in jobmgr.calls] == ["Create"]
    assert [call.name for call in resmgr.calls] == ["LookupResourcePoolID"]
    assert jobmgr.calls[0].metadata["rpc-service"] == "peloton-jobmgr"
    assert resmgr.calls[0].metadata["rpc-service"] == "peloton-resmgr"


def test_a_role_nobody_has_is_a_mistake_of_the_program(Client: Any) -> None:
    with pytest.raises(ValueError, match="no such role: jobman"):
        Client(roles={"jobman": "a:1"})


def test_a_create_resolves_the_pool_and_leaves_the_spec_alone(
    client: BlockingClient, cluster: Cluster
) -> None:
    spec = JobConfig(name="a", instanceCount=2)
    assert client.jobs.create("/hello", spec, wanted_id=JOB).jobId.value == JOB
    assert cluster.called("Create")[0].request.config.respoolID.value == POOL
    assert not spec.HasField("respoolID")


def test_a_read_is_repeated_and_a_change_without_a_key_is_not(
    client: BlockingClient, cluster: Cluster
) -> None:
    cluster.add_job("RUNNING", "RUNNING")
    cluster.fail("Get", GONE, GONE)
    assert client.jobs.get(JOB).jobInfo.id.value == JOB
    assert len(cluster.called("Get")) == 3
    cluster.fail("Redrive", GONE)
    with pytest.raises(errors.ServiceUnavailable):
        client.ops.redrive("job/a")
    assert len(cluster.called("Redrive")) == 1


def test_a_call_that_a_stopping_server_cancels_is_tried_at_the_next_address(
    Client: Any,
    cluster: Cluster,
) -> None:
    cluster.fail("LookupResourcePoolID", grpc.StatusCode.CANCELLED)
    cluster.fail("Redrive", grpc.StatusCode.CANCELLED)
    cluster.add_job("RUNNING", "RUNNING")
    with serving(cluster) as address:
        port = address.rsplit(":", 1)[1]
        with Client(f"{address},localhost:{port}", timeout_s=60) as client:
            assert client.pools.lookup("/hello") == POOL
            with pytest.raises(errors.ServiceUnavailable) as caught:
                client.ops.redrive("job/a")
    assert caught.value.kind == "CANCELLED", "it may have happened, and has no key"
    assert len(cluster.called("LookupResourcePoolID")) == 2


def test_a_call_of_a_client_that_is_closed_is_not_repeated(Client: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as pool:
        client = Client(f"127.0.0.1:{silent.getsockname()[1]}", timeout_s=60)
        under_way = pool.submit(client.jobs.get, JOB)
        connection, _ = silent.accept()
        client.close()
        with pytest.raises(errors.ServiceUnavailable) as caught:
            under_way.result(timeout=30)
        connection.close()
    assert caught.value.kind == "CANCELLED"


def test_a_stop_is_repeated_under_one_key(client: BlockingClient, cluster: Cluster) -> None:
    cluster.add_job("RUNNING", "RUNNING")
    cluster.fail("Stop", GONE)
    client.tasks.stop(JOB)
    client.jobs.stop(JOB)
    keys = [call.metadata["peloton-request-key"] for call in cluster.called("Stop")]
    assert keys[0] == keys[1] != keys[2]


def test_a_create_is_repeated_under_one_key(client: BlockingClient, cluster: Cluster) -> None:
    cluster.fail("Create", GONE, GONE)
    client.jobs.create("/hello", {"name": "a"})
    client.jobs.create("/hello", {"name": "a"})
    client.jobs.create("/hello", {"name": "a"}, request_key="mine")
    keys = [call.metadata["peloton-request-key"] for call in cluster.called("Create")]
    assert keys[0] == keys[1] == keys[2] != keys[3]
    assert keys[4] == "mine"


def test_a_create_without_an_answer_names_the_job_that_may_exist(
    client: BlockingClient, cluster: Cluster
) -> None:
    cluster.fail("Create", grpc.StatusCode.DEADLINE_EXCEEDED, *[GONE] * 4)
    for _ in range(2):
        with pytest.raises(errors.ServiceUnavailable) as got:
            client.jobs.create("/hello", {"name": "a"})
        wanted = cluster.called("Create")[-1].request.id.value
        assert wanted and str(got.value).endswith(f"; the job may exist, its id is {wanted}")
    cluster.fail("Create", grpc.StatusCode.DEADLINE_EXCEEDED)
    with pytest.raises(errors.TimedOut, match="in time; the job may exist$"):
        client.jobs.create("/hello", {"name": "a"}, request_key="mine")


def test_repeats_end(client: BlockingClient, cluster: Cluster) -> None:
    cluster.fail("Get", *[GONE] * 9)
    with pytest.raises(errors.ServiceUnavailable):
        client.jobs.get(JOB)
    assert len(cluster.called("Get")) == 4


def test_a_call_has_the_time_of_its_client_and_no_more(Client: Any, cluster: Cluster) -> None:
    cluster.fail("Get", GONE)
    cluster.add_job("RUNNING")
    with serving(cluster) as address, Client(address, timeout_s=3600.0) as client:
        client.jobs.get(JOB)
    assert all(3000 < call.left_s < 3700 for call in cluster.called("Get"))
    with (
        socket.create_server(("127.0.0.1", 0)) as deaf,
        Client(f"127.0.0.1:{deaf.getsockname()[1]}", timeout_s=0.3) as client,
        pytest.raises(errors.TimedOut),
    ):
        client.jobs.get(JOB)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, errors.BadSpec),
        (grpc.StatusCode.NOT_FOUND, errors.NotFound),
        (grpc.StatusCode.ALREADY_EXISTS, errors.AlreadyExists),
        (grpc.StatusCode.ABORTED, errors.Conflict),
        (grpc.StatusCode.PERMISSION_DENIED, errors.Denied),
        (grpc.StatusCode.UNAUTHENTICATED, errors.Denied),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.TryLater),
        (grpc.StatusCode.UNIMPLEMENTED, errors.Unsupported),
        (grpc.StatusCode.INTERNAL, errors.ServerError),
        (grpc.StatusCode.UNKNOWN, errors.ServerError),
    ],
)
def test_a_status_becomes_an_exception(
    client: BlockingClient, cluster: Cluster, code: grpc.StatusCode, kind: type[errors.PelotonError]
) -> None:
    cluster.fail("Get", code, text="because")
    with pytest.raises(errors.PelotonError) as caught:
        client.jobs.get(JOB)
    assert type(caught.value) is kind
    assert caught.value.message == "because"
    assert caught.value.kind == code.name
    assert len(cluster.called("Get")) == 1


@pytest.mark.parametrize("name", ["PERMISSION_DENIED", "UNAUTHENTICATED"])
def test_a_refusal_is_told_at_once_where_another_address_is_down(
    Client: Any, cluster: Cluster, name: str
) -> None:
    cluster.fail("Get", *[grpc.StatusCode[name]] * 20, text="not you")
    gone = f"127.0.0.1:{free_ports(1)[0]}"
    with serving(cluster) as address, Client([gone, address]) as client:
        with pytest.raises(errors.Denied, match="not you") as caught:
            client.jobs.get(JOB)
        assert gone in str(caught.value), "who might have known them is named"
    assert len(cluster.called("Get")) == 1


@pytest.mark.parametrize("left", ["", "half"])
def test_a_refusal_is_told_while_the_token_file_is_replaced(
    Client: Any, cluster: Cluster, tmp_path: Path, left: str
) -> None:
    file = tmp_path / "token"
    file.write_text("a-token-that-is-long-enough-to-be-one")
    file.chmod(0o600)
    cluster.fail("Get", *[grpc.StatusCode.UNAUTHENTICATED] * 2, text="no such token")
    known = Credentials(token_file=str(file))
    with serving(cluster) as address, Client([address], credentials=known) as client:
        if left:
            file.write_text(left)
        else:
            file.unlink()
        with pytest.raises(errors.Denied, match="no such token"):
            client.jobs.get(JOB)


def test_errors_inside_answers_are_raised(client: BlockingClient, cluster: Cluster) -> None:
    cluster.add_job("RUNNING", "RUNNING")
    with pytest.raises(errors.NotFound, match="resource pool not found"):
        client.pools.lookup("/nowhere")
    with pytest.raises(errors.NotFound, match="job not found"):
        client.jobs.get("other")
    with pytest.raises(errors.AlreadyExists):
        client.jobs.create("/hello", {}, wanted_id=JOB)
    with pytest.raises(errors.BadSpec, match="invalid job type"):
        client.jobs.create("/hello", {"type": 2})
    with pytest.raises(errors.OutOfRange) as caught:
        client.tasks.get(JOB, 7)
    assert caught.value.instance_count == 1
    with pytest.raises(errors.Conflict, match="not in a terminal state"):
        client.jobs.delete(JOB)


def test_a_share_that_is_left_out_is_one_as_for_a_kind_that_is_left_out(
    client: BlockingClient, cluster: Cluster
) -> None:
    resources = [{"kind": "cpu", "limit": 4}, {"kind": "memory", "Share": 0}]
    client.pools.create("/new", {"name": "new", "Resources": resources})
    (call,) = cluster.called("CreateResourcePool")
    assert [one.share for one in call.request.config.resources] == [1.0, 0.0]


def test_pools_are_named_by_their_path(client: BlockingClient, cluster: Cluster) -> None:
    assert client.pools.create("/new", {"name": "new"}) == "new-pool"
    made = cluster.called("CreateResourcePool")[0].request.config
    assert made.parent.value == "root"
    # Without resources it has the limits of its parent, and reserves nothing of them.
    assert [(one.kind, one.limit, one.reservation) for one in made.resources][:2] == [
        ("cpu", 4.0, 0.0), ("memory", 8000.0, 0.0),
    ]  # fmt: skip
    with pytest.raises(errors.BadSpec, match="name: is 'a' and must be 'b'"):
        client.pools.create("/b", {"name": "a"})
    with pytest.raises(errors.BadSpec, match="parent: must not be given"):
        client.pools.create("/a", {"name": "a", "parent": {"value": "x"}})
    for path in ("//a", "/..", "/a/./a"):
        with pytest.raises(errors.BadSpec, match="empty, `.` or `..`"):
            client.pools.create(path, {"name": "a"})
    for path in ("/", "", "a"):
        with pytest.raises(errors.BadSpec, match="not the path of a pool"):
            client.pools.create(path, {"name": "a"})


def test_a_query_says_what_it_was_told(client: BlockingClient, cluster: Cluster) -> None:
    client.jobs.query(
        JobQuery(states=("running", "FAILED"), pool="/hello", days=2, offset=5, sort=("name",))
    )
    request = cluster.called("Query")[0].request
    assert request.summaryOnly
    assert request.respoolID.value == POOL
    assert list(request.spec.jobStates) == [3, 5]
    window = request.spec.creationTimeRange
    assert window.max.seconds - window.min.seconds == 2 * 24 * 3600
    assert request.spec.pagination.offset == 5
    assert request.spec.pagination.orderBy[0].property.value == "name"
    with pytest.raises(errors.BadSpec, match="no such job state: BUSY"):
        client.jobs.query(JobQuery(states=("BUSY",)))


def test_a_wait_asks_again_until_the_job_has_ended(
    client: BlockingClient, cluster: Cluster
) -> None:
    going = ops.WaitJobResponse(state="RUNNING")
    ended = ops.WaitJobResponse(state="FAILED", done=True, counts={"FAILED": 1}, exit_code=3)
    cluster.waits = [going, going, ended]
    assert client.ops.wait(JOB) == ("FAILED", True, {"FAILED": 1}, 3, "", "")
    assert len(cluster.called("WaitJob")) == 3


def test_a_wait_outlives_a_restart_of_the_server(client: BlockingClient, cluster: Cluster) -> None:
    cluster.waits = [ops.WaitJobResponse(state="SUCCEEDED", done=True)]
    cluster.fail("WaitJob", *[GONE] * 5)
    assert client.ops.wait(JOB).done


def test_a_wait_gives_up_in_time(
    client: BlockingClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk_ops, "WAIT_GRACE_S", 60.0)  # a busy machine answers later than never
    cluster.waits = [ops.WaitJobResponse(state="RUNNING")]
    ended = client.ops.wait(JOB, timeout_s=0.05)
    assert (ended.state, ended.done) == ("RUNNING", False)
    assert all(call.request.timeout_s <= 0.05 for call in cluster.called("WaitJob"))


@contextmanager
def agent(files: dict[str, bytes]) -> Iterator[int]:
    """A machine that serves sandbox files by their whole path."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = files.get(self.path)
            self.send_response(200 if body is not None else 404)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, format: str, *args: object) -> None:
            """Silence."""

    with listening(Handler) as port:
        yield port


@contextmanager
def listening(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[int]:
    """An HTTP server; its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_logs_are_the_bytes_of_the_file(client: BlockingClient, cluster: Cluster) -> None:
    body = bytes(range(256)) * 1000
    with agent({"/files/download?path=%2Fruns%2Fa+b%2Fstdout": body}) as port:
        cluster.sandbox.hostname, cluster.sandbox.port = "127.0.0.1", str(port)
        cluster.sandbox.paths.extend(["/runs/a b/stderr", "/runs/a b/stdout"])
        assert b"".join(client.tasks.logs(JOB, 0)) == body
        with pytest.raises(errors.NotFound, match="there is stderr, stdout"):
            next(client.tasks.logs(JOB, 0, filename="core"))
        with pytest.raises(errors.NotFound, match="no longer on 127.0.0.1"):
            next(client.tasks.logs(JOB, 0, filename="stderr"))
    with pytest.raises(errors.ServiceUnavailable, match="does not answer"):
        next(client.tasks.logs(JOB, 0))


class Growing:
    """A file that an agent serves, with or without ranges, and that grows when it is looked at."""

    def __init__(self, grow: Callable[[bytes], bytes], *, ranges: bool) -> None:
        self.body = b""
        self.asked: list[str] = []
        growing = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                growing.body = grow(growing.body)
                span = self.headers.get("Range", "")
                growing.asked.append(span)
                start = int(span[len("bytes=") : -1]) if span and ranges else 0
                status = 206 if start else 200
                if start and start >= len(growing.body):
                    status = 416
                self.send_response(status)
                self.end_headers()
                self.wfile.write(growing.body[start:] if status != 416 else b"")

            def log_message(self, format: str, *args: object) -> None:
                """Silence."""

        self.handler = Handler


@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_is_followed_until_its_run_has_ended(
    client: BlockingClient, cluster: Cluster, ranges: bool
) -> None:
    cluster.add_job("RUNNING", "PENDING")
    runtime = cluster.tasks[JOB][0].runtime
    pieces = [b"one\n", b"", b"two\n", b"", b"three"]

    def grow(body: bytes) -> bytes:
        piece = pieces.pop(0)
        if not pieces:
            # Ended after it was looked whether it had: what is added now is read all the same.
            runtime.state = task_pb2.SUCCEEDED
            pieces.extend([b" and the last", b""])
        return body + piece

    growing = Growing(grow, ranges=ranges)
    with listening(growing.handler) as port:
        cluster.sandbox.hostname, cluster.sandbox.port = "127.0.0.1", str(port)
        cluster.sandbox.paths.append(f"/{JOB}-0-1/stdout")
        following = client.tasks.follow(JOB, 0, pause_s=0.01)
        found: list[bytes] = []
        reader = threading.Thread(target=lambda: found.extend(following))
        reader.start()
        until, pause = time.monotonic() + 60, threading.Event()
        while len(cluster.called("Get")) < 3 and time.monotonic() < until:
            pause.wait(0.01)
        assert not growing.asked, "there is nothing before it runs"
        runtime.state, runtime.host = task_pb2.RUNNING, "agent0"
        reader.join(60)
    assert b"".join(found) == b"one\ntwo\nthree and the last"
    assert growing.asked[0] == "" and growing.asked[1] == "bytes=4-"


def test_following_ends_with_the_run_though_another_has_begun(
    client: BlockingClient, cluster: Cluster
) -> None:
    cluster.add_job("RUNNING", "RUNNING")
    runtime = cluster.tasks[JOB][0].runtime
    runtime.mesosTaskId.value, runtime.host = f"{JOB}-0-2", "agent0"
    growing = Growing(lambda body: b"first", ranges=True)
    with listening(growing.handler) as port:
        cluster.sandbox.hostname, cluster.sandbox.port = "127.0.0.1", str(port)
        cluster.sandbox.paths.append(f"/{JOB}-0-1/stdout")
        assert [*client.tasks.follow(JOB, 0, run=f"{JOB}-0-1")] == [b"first"]


def test_a_file_that_is_not_made_yet_is_waited_for_until_the_run_has_ended(
    client: BlockingClient, cluster: Cluster
) -> None:
    """Not in the sandbox, then named there but not made, then there."""
    cluster.add_job("RUNNING", "RUNNING")
    runtime, path = cluster.tasks[JOB][0].runtime, f"/{JOB}-0-1/app.log"
    runtime.host = "agent0"
    files: dict[str, bytes] = {}
    with agent(files) as port:
        cluster.sandbox.hostname, cluster.sandbox.port = "127.0.0.1", str(port)
        following = client.tasks.follow(JOB, 0, filename="app.log", pause_s=0.01)
        found: list[bytes] = []
        reader = threading.Thread(target=lambda: found.extend(following))
        reader.start()
        for asked in (2, 5):
            until, pause = time.monotonic() + 60, threading.Event()
            while len(cluster.called("BrowseSandbox")) < asked and time.monotonic() < until:
                pause.wait(0.01)
            assert reader.is_alive(), "the run may yet make it"
            cluster.sandbox.paths.append(path)
        files[f"/files/download?{urlencode({'path': path})}"] = b"at last"
        runtime.state = task_pb2.SUCCEEDED
        reader.join(60)
    assert b"".join(found) == b"at last"
    with pytest.raises(errors.NotFound, match="not found in sandbox files"):
        next(client.tasks.follow(JOB, 0, filename="core"))
    with pytest.raises(errors.NotFound, match="job not found"):
        next(client.tasks.follow("nobody", 0))
    with pytest.raises(errors.OutOfRange):
        next(client.tasks.follow(JOB, 7, run=f"{JOB}-7-1"))


def test_a_wait_among_too_many_goes_on_asking(client: BlockingClient, cluster: Cluster) -> None:
    cluster.waits = [ops.WaitJobResponse(state="SUCCEEDED", done=True)]
    cluster.fail("WaitJob", grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert client.ops.wait(JOB).done
    assert len(cluster.called("WaitJob")) == 2


def happened(resume: str, *keys: str) -> ops.WatchResponse:
    return ops.WatchResponse(resume=resume, events=[ops.Event(key=key) for key in keys])


def test_a_watch_is_resumed_behind_what_was_heard(
    client: BlockingClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk_ops, "SILENCE_PAUSE_S", 0.0)
    cluster.streams = [
        [happened("t0"), happened("t1", "job/a")],
        [happened("t1"), happened("t2", "job/b", "job/c")],
    ]
    cluster.fail("Watch", GONE, GONE)
    heard = client.ops.watch(kinds=["job"])
    found = [next(heard) for _ in range(3)]
    assert [message.resume for message in found] == ["t0", "t1", "t2"], "nothing said twice"
    heard.close()
    asked = [call.request for call in cluster.called("Watch")]
    assert [one.resume for one in asked] == ["", "", "", "t1"]
    assert all(list(one.kinds) == ["job"] for one in asked)


def test_a_watch_begins_behind_a_known_token_and_tells_what_is_missing(
    client: BlockingClient, cluster: Cluster
) -> None:
    gap = ops.WatchResponse(resume="t9", gaps=[ops.Gap(shard="jobmgr/0", after=3, until=8)])
    cluster.streams = [[happened("t7"), gap, None]]
    heard = client.ops.watch(job=JOB, since="t7")
    assert [message.resume for message in (next(heard), next(heard))] == ["t7", "t9"]
    heard.close()
    (asked,) = cluster.called("Watch")
    assert (asked.request.job_id, asked.request.resume) == (JOB, "t7")


def test_a_new_token_of_a_quiet_stream_reaches_the_caller(
    client: BlockingClient, cluster: Cluster
) -> None:
    cluster.streams = [[happened("t0"), happened("t1"), happened("t1"), happened("t2", "job/a")]]
    found = client.ops.watch(kinds=["job"])
    assert [next(found).resume for _ in range(3)] == ["t0", "t1", "t2"]
    found.close()


def test_a_server_with_too_many_calls_is_reported(
    client: BlockingClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk_ops, "SILENCE_REPORTED_S", 0.0)
    monkeypatch.setattr(sdk_ops, "CROWDED_PAUSE_S", 0.001)
    crowded = [grpc.StatusCode.RESOURCE_EXHAUSTED] * 3
    lines: list[str] = []
    cluster.streams = [[happened("t0")]]
    cluster.fail("Watch", *crowded, text="full")
    assert next(client.ops.watch(job=JOB, silent=lines.append)).resume == "t0"
    assert lines == ["full; retrying for 60 s at most", "it answers again"]
    cluster.waits = [ops.WaitJobResponse(state="SUCCEEDED", done=True)]
    cluster.fail("WaitJob", *crowded, text="full")
    assert client.ops.wait(JOB, silent=lines.append).done
    assert lines[2:] == ["full; retrying", "it answers again"]


def test_a_watch_of_a_server_with_too_many_streams_ends(
    client: BlockingClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk_ops, "SILENCE_MAX_S", 0.05)
    monkeypatch.setattr(sdk_ops, "CROWDED_PAUSE_S", 0.01)
    cluster.fail("Watch", *[grpc.StatusCode.RESOURCE_EXHAUSTED] * 1000, text="full")
    with pytest.raises(errors.TryLater, match="full"):
        next(client.ops.watch(job=JOB))
    cluster.fail("Watch")


def test_a_watch_that_is_refused_is_not_repeated(client: BlockingClient, cluster: Cluster) -> None:
    cluster.fail("Watch", grpc.StatusCode.NOT_FOUND, text="job not found")
    with pytest.raises(errors.NotFound, match="job not found"):
        next(client.ops.watch(job=JOB))
    assert len(cluster.called("Watch")) == 1


def test_a_job_may_be_named_wherever_its_id_is_wanted(
    cluster: Cluster, client: BlockingClient
) -> None:
    cluster.add_job("RUNNING", "RUNNING")
    for name in (JOB, "hello_world", "hello_world~0", JOB[:8]):
        assert client.jobs.get(name).jobInfo.id.value == JOB
        assert client.tasks.get(name, 0).result.jobId.value == JOB
        assert client.job_id(name) == JOB
    cluster.waits = [ops.WaitJobResponse(state="RUNNING"), ops.WaitJobResponse(done=True)]
    queries = len(cluster.called("Query"))
    client.ops.wait("hello_world")
    assert {call.request.job_id for call in cluster.called("WaitJob")} == {JOB}
    assert len(cluster.called("Query")) == queries + 1, "it is the same job until it has ended"
    with pytest.raises(errors.NotFound):
        client.jobs.get("nobody")
    other = "5e3c9999-0f0a-4c39-9d5c-0c3d6b7d1e11"
    copy = type(cluster.jobs[JOB])()
    copy.CopyFrom(cluster.jobs[JOB])
    copy.id.value = other
    cluster.jobs[other] = copy
    with pytest.raises(AmbiguousName, match="2 jobs are meant by 'hello_world'"):
        client.tasks.stop("hello_world")
    assert not cluster.called("Stop")
    del cluster.jobs[other]
    client.tasks.stop("hello_world")
    assert cluster.called("Stop")[0].request.jobId.value == JOB
