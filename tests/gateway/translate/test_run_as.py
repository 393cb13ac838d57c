"""The user as which tasks run, by the creator of the job: what a client may and may not choose."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import grpc
import pytest

from peloton.actors.job.messages import CreateJob
from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.messages import PoolConfig, PoolView
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.access.guard import CallEnded
from peloton.gateway.cluster.cluster_client import ClusterClient
from peloton.gateway.server.calls import CallContext, Later
from peloton.gateway.translate.run_as import UNKNOWN, NotPermitted, RunAs, run_as
from peloton.gateway.translate.translate_job import to_spec
from peloton.gateway.v0.job_create import Creation
from peloton.runtime.core.principal import Principal
from peloton.runtime.vocabulary import Key
from tests.gateway.fleet_fixture import Deployment, default_config

OF_DEFAULT = "config.defaultConfig.command.user"
ROOM = Resources(*[100_000 * UNIT] * 4)


@pytest.mark.parametrize(
    ("how", "found"),
    [
        ("token", RunAs(any_user=True)),
        ("socket", RunAs(any_user=True)),
        ("basic", RunAs(caller="ann")),
        ("tls", RunAs(caller="ann")),
        ("unverified", UNKNOWN),
        ("none", UNKNOWN),
        ("of a later version", UNKNOWN),
    ],
)
def test_only_a_proven_name_is_that_of_a_caller(how: str, found: RunAs) -> None:
    assert run_as(Principal("ann", how, "10.0.0.7", "root")) == found


def config(user: str = "", own: str = "") -> job.JobConfig:
    """Of two instances; the second has a command of its own."""
    sent = job.JobConfig(name="j", instanceCount=2, defaultConfig=default_config())
    sent.respoolID.value = "p"
    sent.defaultConfig.command.user = user
    sent.instanceConfig[1].CopyFrom(task.TaskConfig())
    sent.instanceConfig[1].command.value, sent.instanceConfig[1].command.user = "own", own
    return sent


@pytest.mark.parametrize("user", ["", "ann", "root"])
def test_the_owner_of_the_daemon_may_name_any_user(user: str) -> None:
    spec, pieces = to_spec(config(user, own="bob"), RunAs(any_user=True))
    commands = [spec.default.command, pieces[0][0].config.command]
    assert [(one.user, one.caller) for one in commands if one] == [(user, ""), ("bob", "")]


@pytest.mark.parametrize("user", ["", "ann"])
def test_each_command_of_a_known_caller_has_its_name(user: str) -> None:
    spec, pieces = to_spec(config(user, own=user), RunAs(caller="ann"))
    commands = [spec.default.command, pieces[0][0].config.command]
    assert [(one.user, one.caller) for one in commands if one] == [(user, "ann")] * 2


@pytest.mark.parametrize(
    ("by", "text"),
    [
        (RunAs(caller="ann"), "ann may run tasks as ann only"),
        (UNKNOWN, "a caller that has not proven who it is may not choose the user of its tasks"),
    ],
)
def test_another_user_is_not_permitted_wherever_it_is_named(by: RunAs, text: str) -> None:
    for sent, field in (
        (config("root"), OF_DEFAULT),
        (config(own="bob"), "config.instanceConfig[1].command.user"),
    ):
        with pytest.raises(NotPermitted, match=text) as caught:
            to_spec(sent, by)
        assert caught.value.field == field


class Pools:
    """A cluster with one pool, which notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def read(self, key: Key, query: Any) -> Any:
        pool = PoolConfig("p", Key("respool/root"), Resources(), ROOM)
        return (PoolView(Key("respool/p"), "/p", pool, (), Resources(), Resources()),)

    def shards_of(self, kind: str) -> list[Key]:
        return []

    def ask(self, key: Key, message: Any, **_: Any) -> Future[Any]:
        self.told.append(message)
        return Future()


class Call(CallContext):
    """A call with a client certificate that was checked."""

    principal = Principal("ann", "tls")

    def peer_identities(self) -> Any:
        return (b"ann",)


def test_the_command_of_a_create_has_the_caller_of_the_call() -> None:
    cluster = Pools()
    client = ClusterClient(cluster)  # type: ignore[arg-type]
    created = Creation(client, job.CreateRequest(config=config()), context=Call()).at_once()  # type: ignore[arg-type]
    assert isinstance(created, Later)
    (told,) = cluster.told
    assert isinstance(told, CreateJob) and told.spec.default.command is not None
    assert told.spec.default.command.caller == "ann"
    sent = job.CreateRequest(config=config("root"))
    with pytest.raises(CallEnded) as caught:
        Creation(client, sent, context=Call()).at_once()  # type: ignore[arg-type]
    assert caught.value.code is grpc.StatusCode.PERMISSION_DENIED
    assert len(cluster.told) == 1


def test_a_client_that_proves_nothing_is_told_which_field_is_not_for_it(
    deployment: Deployment,
) -> None:
    request = deployment.request()
    request.config.defaultConfig.command.user = "ann"
    with pytest.raises(grpc.RpcError) as caught:
        deployment.jobs.Create(request, metadata=(("username", "ann"),))
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED  # type: ignore[attr-defined]
    assert caught.value.details().startswith(f"{OF_DEFAULT}: a caller that has not")  # type: ignore[attr-defined]
