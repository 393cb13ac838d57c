"""Every refusal of the API is an exception of one class, with its codes for programs."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor

from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.task import task_pb2
from peloton.gateway.access import details
from peloton.sdk import errors, translate
from peloton.sdk.client import Client
from tests.house.tree import ROOT
from tests.sdk.fakes import JOB, Cluster, serving

CODE = grpc.StatusCode
OF_SERVERS = {CODE.INTERNAL, CODE.UNKNOWN, CODE.DATA_LOSS}
"""Failures of the server, not caused by the caller."""
FAILURES = {"failure", "updateError"}
"""The same, by the fields of v0 answers."""
CLASSES = [
    one
    for one in vars(errors).values()
    if inspect.isclass(one) and issubclass(one, errors.PelotonError)
]


def codes_of_refusals() -> Iterator[tuple[str, str]]:
    """Each code that an actor refuses with, and where."""
    for file in sorted((ROOT / "peloton" / "actors").rglob("*.py")):
        module = importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Refused":
                names = {one.id for one in ast.walk(node.args[0]) if isinstance(one, ast.Name)}
                if names <= vars(module).keys():  # else the code was an argument
                    code = eval(ast.unparse(node.args[0]), vars(module))
                    yield code, f"{file}:{node.lineno}"


def test_every_code_of_an_actor_has_its_class() -> None:
    found = dict(codes_of_refusals())
    assert len(found) > 25
    assert {code: at for code, at in found.items() if code not in translate.BY_REASON} == {}


def test_every_status_has_its_class() -> None:
    known = {*translate.BY_CODE, *OF_SERVERS, CODE.CANCELLED, CODE.OK}
    assert known == {*CODE}


def errors_in(message: Descriptor) -> Iterator[str]:
    """The fields by which an answer of v0 carries an error."""
    for field in message.fields:
        if field.name in ("error", "notFound", "outOfRange") and field.message_type is not None:
            inside = field.message_type
            parts = [one.name for one in inside.fields if one.message_type is not None]
            yield from parts if inside.name == "Error" else [field.name]


def test_every_error_inside_of_an_answer_has_its_class() -> None:
    files = [module.DESCRIPTOR for module in (job_pb2, task_pb2, respool_pb2)]
    answers = [one for file in files for one in file.message_types_by_name.values()]
    fields = {name for answer in answers for name in errors_in(answer)}
    assert len(fields) > 10
    assert fields - {*translate.BY_FIELD, *FAILURES, "outOfRange"} == set()


@pytest.mark.parametrize(("reason", "kind"), translate.BY_REASON.items())
def test_a_refusal_carries_its_code(reason: str, kind: type[errors.PelotonError]) -> None:
    cluster = Cluster()
    status = details.status(CODE.INVALID_ARGUMENT, "no", reason=reason)
    assert status is not None
    cluster.troubles["Get"] = [status] * (4 if kind is errors.ServiceUnavailable else 1)
    with serving(cluster) as address, Client(address, timeout_s=60) as client:
        with pytest.raises(errors.PelotonError) as caught:
            client.jobs.get(JOB)
        assert type(caught.value) is kind
        assert caught.value.reasons == (reason, "INVALID_ARGUMENT")
        with pytest.raises(errors.NotFound) as inside:
            client.jobs.get("5e3c7c3a-0f0a-4c39-9d5c-0c3d6b7d1e99")
    assert inside.value.reasons == ("notFound",)


def test_the_tree_has_one_root_and_no_class_that_is_never_raised() -> None:
    raised: Any = {*translate.BY_REASON.values(), *translate.BY_CODE.values()}
    raised |= {*translate.BY_FIELD.values(), errors.ServerError, errors.OutOfRange}
    raised |= {errors.CanNeverRun, errors.PelotonError}
    assert {*CLASSES} == raised


def test_no_error_is_without_a_reason() -> None:
    assert errors.BadSpec("no such key").reasons == ("BAD_SPEC",)
    assert errors.NotFound("no such file", kind="filesRemoved").reasons == ("filesRemoved",)
    assert errors.CanNeverRun("too big", reasons=["no-host-ever"]).reasons == ("no-host-ever",)
