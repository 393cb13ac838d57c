"""Why a stream of a master is over, in words from which the settings can be mended."""

from __future__ import annotations

import socket

import pytest

from peloton.backends.mesos.masters.driver import TEXT_MAX, records, why_of, why_refused
from peloton.http_client import AnswerHead, BrokenAnswer

AT = "west.example:5050"


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (
            socket.gaierror(-2, "Name or service not known"),
            f"the host name of the master {AT} is not known (Name or service not known)",
        ),
        (BrokenAnswer("it hung up"), f"no connection to the master at {AT}: it hung up"),
        (
            ConnectionResetError(104, "reset"),
            f"no connection to the master at {AT}: [Errno 104] reset",
        ),
    ],
)
def test_it_names_what_has_to_be_mended(error: OSError | BrokenAnswer, why: str) -> None:
    assert why_of(error, AT) == why


@pytest.mark.parametrize(
    ("code", "body", "words"),
    [
        (501, b"<!DOCTYPE HTML>\n<html>nothing of use", ""),
        (401, b"no such principal", ": no such principal"),
        (404, b"", ""),
    ],
)
def test_a_refusal_is_quoted(code: int, body: bytes, words: str) -> None:
    why = why_refused(AnswerHead(code, "", {}), body, master=AT)
    assert why == f"{AT} does not answer as a Mesos master: HTTP {code}{words}"


def test_a_long_answer_is_cut() -> None:
    assert len(why_refused(AnswerHead(500, "", {}), b"x" * 10_000, master=AT)) < TEXT_MAX + 100


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_records_come_whole_however_they_are_cut(size: int) -> None:
    sent = b"2\n{}0\n11\nhello\n\xff\nher"
    pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
    assert [*records(pieces)] == [b"{}", b"", b"hello\n\xff\nher"]
    assert [*records([b"3\nab"])] == []


@pytest.mark.parametrize("sent", [b"nonsense\n{}", b"-2\n{}", b"\n{}"])
def test_a_record_that_says_no_length_ends_the_stream(sent: bytes) -> None:
    with pytest.raises(BrokenAnswer, match="length"):
        next(records([sent]))
