"""Names of strangers do not steer a terminal, in any form for people; JSON is exact."""

from __future__ import annotations

import json

import grpc
import pytest

from peloton.api.v0.job.job_pb2 import JobInfo
from peloton.api.v0.peloton_pb2 import JobID
from peloton.gateway.access.details import status
from peloton.ops.v1 import ops_pb2 as ops
from peloton.printable import escaped, escaped_lines
from tests.cli.terminal import Terminal
from tests.sdk.fakes import JOB

STRANGE = "a\x1b[2Jb\nc\r\u202ed\u2028\x9be"
SHOWN = r"a\x1b[2Jb\nc\r\u202ed\u2028\x9be"


def test_each_character_that_is_not_printable_becomes_its_escape() -> None:
    assert escaped(STRANGE) == SHOWN and escaped(SHOWN) == SHOWN
    assert escaped("größe 🚲 ok") == "größe 🚲 ok"
    assert escaped("\x00\t\x7f\ufeff\udc80\U000e0001") == r"\x00\t\x7f\ufeff\udc80\U000e0001"
    assert escaped_lines("a\tb\n\x1bc\rd\n") == "a\tb\n\\x1bc\\rd\n"


@pytest.fixture
def strange(peloton: Terminal) -> Terminal:
    """A cluster in which all that has a name has a strange one."""
    peloton.cluster.hosts.append(ops.Host(name=STRANGE, state="UP", text=STRANGE))
    peloton.cluster.jobs[JOB] = JobInfo(id=JobID(value=JOB))
    event = ops.Event(key=f"job/{STRANGE}", facts=["JobMade"], who=STRANGE, because=STRANGE)
    gap = ops.Gap(shard=STRANGE)
    peloton.cluster.streams.append([ops.WatchResponse(events=[event], gaps=[gap], resume="t")])
    return peloton


@pytest.mark.parametrize("form", ["table", "name"])
@pytest.mark.parametrize("line", [("host", "list"), ("follow", "--kind", "job")], ids=str)
def test_forms_for_people(strange: Terminal, line: tuple[str, ...], form: str) -> None:
    shown = strange(*line, "--output", form)
    assert SHOWN in shown.out
    assert all(text.isprintable() for text in shown.out.split("\n"))


def test_json_is_exact(strange: Terminal) -> None:
    (host,) = json.loads(strange("host", "list", "--output", "json").out)["hosts"]
    assert (host["name"], host["text"]) == (STRANGE, STRANGE)


def test_refusals_are_one_line(peloton: Terminal) -> None:
    peloton.cluster.troubles["ListHosts"] = [(grpc.StatusCode.INVALID_ARGUMENT, STRANGE)] * 9
    shown = peloton("host", "list")
    assert SHOWN in shown.err and shown.err.count("\n") == 1
    assert shown.err.rstrip("\n").isprintable()


def test_details_of_a_status_have_its_text() -> None:
    found = status(grpc.StatusCode.NOT_FOUND, STRANGE, field=STRANGE)
    assert found is not None and found.details == f"{SHOWN}: {SHOWN}"
