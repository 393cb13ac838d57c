"""Every change that the client can send has a request key, and is sent again under it.

Which calls change something says the table of access; the methods are found by reflection, so a new
one is looked at as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import grpc
import pytest

from peloton.api.v0.respool import respool_pb2 as respool
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as stateless_svc
from peloton.gateway.access.access_table import ACCESS_TABLE
from peloton.ops.v1 import actors_pb2 as actors
from peloton.sdk import errors
from peloton.sdk.calls import Calls, call
from peloton.sdk.client import Client
from peloton.sdk.internals import FreeAmounts
from peloton.sdk.jobs import JobQuery
from peloton.sdk.outputs import OutputsWanted
from peloton.sdk.schedules import Timing
from peloton.sdk.stateless import BatchOptions
from peloton.sdk.tasks import TaskQuery
from tests.sdk.fakes import JOB, POOL

UNKEYED = {"ops.redrive"}
"""Orders to a shard, which remembers no keys: sent once."""
ACTORS = "actors"
ANSWERS: dict[str, Any] = {
    "Ask": actors.AskResponse(body=b"{}"),
    "LookupResourcePoolID": respool.LookupResponse(id={"value": POOL}),
    "GetJob": stateless_svc.GetJobResponse(
        summary={"job_id": {"value": JOB}, "status": {"version": {"value": "1-1-1"}}}
    ),
}
"""Of what other calls ask first; every other answer is empty."""
VALUES: dict[str, Any] = {
    "job": JOB, "wanted": JOB, "typed": JOB, "pool": "/a", "path": "/a", "name": "a", "part": "a",
    "instance": 0, "run": "r", "pool_id": POOL, "config": {"name": "a"}, "spec": {"name": "a"},
    "files": {"f": b""}, "timing": Timing("0 0 1 1 *"), "key": "job/a", "components": ["Read"],
    "source": "a", "destination": "b", "update_id": "u", "verb": "restart", "volume": "v",
    "watch_id": "w", "free": FreeAmounts(), "message": ("Acquire", {}), "query": ("GetState", {}),
}  # fmt: skip
OWN_VALUES: dict[str, dict[str, Any]] = {
    "TaskCalls.query": {"wanted": TaskQuery()},
    "StatelessCalls.query_pods": {"wanted": TaskQuery()},
    "OutputCalls.read": {"wanted": OutputsWanted(0, 1)},
    "Jobs.query": {"wanted": JobQuery()},
    "OpsCalls.wait": {"timeout_s": 0.0},
}


class Recorder(grpc.GenericRpcHandler):
    """Every method of every service: writes calls down, and is unavailable once for each change."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def service(self, details: Any) -> Any:
        name = details.method.strip("/").replace("/", ".")
        key = dict(details.invocation_metadata).get("peloton-request-key", "")

        def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
            again = any(name == known for known, _ in self.calls)
            self.calls.append((name, key))
            if ACCESS_TABLE[name].objects is not None and not again:
                context.abort(grpc.StatusCode.UNAVAILABLE, "the first one is lost")
            found = ANSWERS.get(name.rpartition(".")[2])
            return b"" if found is None else bytes(found.SerializeToString())

        return grpc.unary_unary_rpc_method_handler(answer)

    def changes(self) -> list[tuple[str, str]]:
        return [one for one in self.calls if ACCESS_TABLE[one[0]].objects is not None]


@contextmanager
def recorded() -> Iterator[tuple[Recorder, Client]]:
    recorder = Recorder()
    server = grpc.server(ThreadPoolExecutor(2), handlers=[recorder])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with Client(f"127.0.0.1:{port}", timeout_s=60) as client:
            yield recorder, client
    finally:
        server.stop(None).wait()


def methods() -> list[tuple[str, str]]:
    """Every call with one answer, by the attribute of a client."""
    with Client("127.0.0.1:1") as client:
        groups = {name: part for name, part in vars(client).items() if isinstance(part, Calls)}
        del groups["_awaited"]
        groups[ACTORS] = client.actors("lock")
    return [
        (group, name)
        for group, calls in groups.items()
        for name, method in vars(type(calls)).items()
        if isinstance(method, call)
    ]


def arguments(method: Any, known: str) -> dict[str, Any]:
    parameters = inspect.signature(method).parameters
    values = VALUES | OWN_VALUES.get(known, {})
    return {
        name: values[name]
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty or name in OWN_VALUES.get(known, {})
    }


def keyed_by(parameters: Any) -> dict[str, Any]:
    if "request_key" in parameters:
        return {"request_key": "mine"}
    if isinstance(getattr(parameters.get("how"), "default", None), BatchOptions):
        return {"how": BatchOptions(request_key="mine")}
    return {}


@pytest.mark.parametrize(("group", "name"), methods())
def test_a_change_is_repeated_under_its_key(group: str, name: str) -> None:
    with recorded() as (recorder, client):
        calls = client.actors("lock") if group == ACTORS else getattr(client, group)
        method = getattr(calls, name)
        keyed = keyed_by(inspect.signature(method).parameters)
        given = arguments(method, f"{type(calls).__name__}.{name}")
        if f"{group}.{name}" in UNKEYED:
            with pytest.raises(errors.ServiceUnavailable):
                method(**given)
            assert [key for _, key in recorder.changes()] == [""]
            return
        with suppress(errors.NotFound):  # what a read makes of an empty answer
            method(**given)
        assert bool(recorder.changes()) == bool(keyed), "what changes something takes a key"
        if keyed:
            (first, again) = recorder.changes()
            assert first == again and first[1]
            recorder.calls.clear()
            method(**given, **keyed)
            (first, again) = recorder.changes()
            assert first == again and first[1] == "mine"
