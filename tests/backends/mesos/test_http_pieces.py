"""Answers and events out of bytes, however these are cut."""

from __future__ import annotations

import json

import pytest

from peloton.backends.mesos.executor.http_pieces import (
    HEAD_BYTES_MAX,
    AnswerReader,
    BadAnswer,
    EventReader,
    HttpAnswer,
    StreamRefused,
)

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
TWO = (
    b"HTTP/1.1 202 Accepted\r\nDate: Thu\r\nContent-Length: 0\r\n\r\n"
    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 4\r\n\r\nwhat"
)


def record(event: object) -> bytes:
    text = json.dumps(event).encode()
    return b"%d\n%s" % (len(text), text)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


EVENTS = [{"type": "SUBSCRIBED"}, {"type": "LAUNCH", "text": "ä\n\r\n7"}, {"type": "KILL"}]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_answers_one_behind_the_other(size: int) -> None:
    reader, found = AnswerReader(), []
    for at in range(0, len(TWO), size):
        found += reader.feed(TWO[at : at + size])
    assert found == [HttpAnswer(202, ""), HttpAnswer(400, "what")]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("cut", [1, 5, 40, 1000])
def test_events_whose_records_and_chunks_have_other_borders(size: int, cut: int) -> None:
    records = b"".join(map(record, EVENTS))
    chunks = [chunk(records[at : at + cut]) for at in range(0, len(records), cut)]
    data = HEAD + b"".join(chunks)
    reader, found = EventReader(), []
    for at in range(0, len(data), size):
        found += reader.feed(data[at : at + size])
    assert found == EVENTS and reader.begun


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 10\r\n\r\nrecovering", "503: recov"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "200"),
        (b"SSH-2.0-x\r\n\r\n", "no answer of HTTP"),
        (b"HTTP/1.1 x\r\n\r\n", "no number"),
        (HEAD + b"0\r\n\r\n", "has ended"),
        (HEAD + b"zz\r\n", "no number"),
        (HEAD + chunk(b"-5\n{}"), "a negative number"),
        (HEAD + chunk(b"3\n{}}"), "no JSON"),
        (b"x" * (HEAD_BYTES_MAX + 1), "too long"),
    ],
)
def test_what_is_no_stream_of_events(data: bytes, text: str) -> None:
    with pytest.raises(BadAnswer, match=text):
        EventReader().feed(data)


@pytest.mark.parametrize("data", [b"c2VjcmV0\n{}", b"-99\n{}"])
def test_what_stands_in_place_of_a_length_is_not_repeated(data: bytes) -> None:
    """It may be part of a secret."""
    with pytest.raises(BadAnswer) as raised:
        EventReader().feed(HEAD + chunk(data))
    assert data.split(b"\n")[0].decode() not in str(raised.value) and not raised.value.__cause__


def test_an_agent_that_does_not_know_us_says_so_otherwise_than_one_that_recovers() -> None:
    for status, refused in ((400, True), (503, False)):
        with pytest.raises(BadAnswer) as raised:
            EventReader().feed(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status)
        assert isinstance(raised.value, StreamRefused) == refused


def test_an_answer_to_a_call_has_a_length() -> None:
    with pytest.raises(BadAnswer, match="without a length"):
        AnswerReader().feed(HEAD)
