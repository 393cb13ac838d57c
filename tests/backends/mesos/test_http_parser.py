"""The stand-in for http-parser: one answer of a master, cut anywhere, read once.

Must not start a master: how pymesos gets on with it is shown where one runs.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from peloton.backends.mesos.http_parser import stand_in
from peloton.backends.mesos.http_parser.errors import Errno
from peloton.backends.mesos.http_parser.http import HEADERS_BYTES_MAX, LINE_BYTES_MAX, HttpParser

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n"
WHOLE = (
    CHUNKED + b"Mesos-Stream-Id: 1-2\r\nContent-Type: application/json\r\n\r\n"
    b"5\r\nhello\r\n1;last=no\r\n \r\nA \r\nworld!\r\n..\r\n0\r\nX-Trailer: 1\r\n\r\n"
)
BODY = b"hello world!\r\n.."


def read(parts: Iterable[bytes]) -> tuple[HttpParser, bytes]:
    """As pymesos does: give it what came, take what there is."""
    parser, body = HttpParser(), b""
    for part in parts:
        taken = parser.execute(part, len(part))
        assert taken == len(part), parser.get_errno()
        if parser.is_partial_body():
            body += parser.recv_body()
    return parser, body


def refused(data: bytes) -> tuple[int, Errno]:
    """How many bytes came before the wrong one, and what was wrong; at once and in parts."""
    found = []
    for size in (len(data), 1 if len(data) < 10_000 else 999):
        parser, good = HttpParser(), 0
        for at in range(0, len(data), size):
            taken = parser.execute(data[at : at + size], min(size, len(data) - at))
            good += taken
            if parser.get_errno() is not Errno.OK:
                break
        found.append((good, parser.get_errno()))
    assert found[0][1] is found[1][1]
    return found[1]


# ---- what is right ----


@pytest.mark.parametrize("cut", range(len(WHOLE) + 1))
def test_it_may_be_cut_at_every_byte(cut: int) -> None:
    parser, body = read([WHOLE[:cut], WHOLE[cut:]])
    assert body == BODY and parser.is_message_complete() and parser.is_chunked()
    assert parser.get_status_code() == 200 and parser.get_headers()["Mesos-Stream-Id"] == "1-2"


def test_it_may_be_cut_everywhere() -> None:
    parser, body = read(bytes([byte]) for byte in WHOLE)
    assert body == BODY and parser.is_message_complete() and parser.get_errno() is Errno.OK


def test_the_body_is_handed_out_as_it_comes() -> None:
    parser = HttpParser()
    start = CHUNKED + b"\r\n10\r\nhel"
    assert not parser.is_headers_complete()
    assert parser.execute(start, len(start)) == len(start)
    assert parser.is_headers_complete() and parser.is_partial_body()
    assert parser.recv_body() == b"hel"
    assert not parser.is_partial_body() and parser.recv_body() == b""
    assert not parser.is_message_complete()


def test_only_the_given_length_is_read() -> None:
    parser = HttpParser()
    data = HEAD + b"Content-Length: 2\r\n\r\nok and more"
    assert parser.execute(data, len(data) - 9) == len(data) - 9
    assert parser.recv_body() == b"ok" and parser.is_message_complete()


def test_a_folded_header_is_one_value() -> None:
    head = HEAD + b"X-Long: one\r\n  two\r\n\tthree  \r\nX-Next:4\r\nContent-Length: 0\r\n\r\n"
    for cut in range(len(head)):
        parser, _ = read([head[:cut], head[cut:]])
        assert parser.get_headers()["X-Long"] == "one two three"
        assert parser.get_headers()["X-Next"] == "4"


def test_headers_of_one_name_are_joined() -> None:
    parser, _ = read([HEAD + b"Via: a\r\nVia: b\r\nContent-Length: 0\r\n\r\n"])
    assert parser.get_headers()["Via"] == "a, b"


def test_100_continue_is_not_the_answer() -> None:
    interim = b"HTTP/1.1 100 Continue\r\nX-Interim: 1\r\n\r\n"
    parser = HttpParser()
    assert parser.execute(interim, len(interim)) == len(interim)
    assert not parser.is_headers_complete() and parser.get_status_code() == 0
    assert parser.execute(WHOLE, len(WHOLE)) == len(WHOLE)
    assert parser.get_status_code() == 200 and parser.recv_body() == BODY
    assert "X-Interim" not in parser.get_headers()
    for cut in range(len(interim)):
        assert read([interim[:cut], interim[cut:] + WHOLE])[1] == BODY


def test_a_redirect_without_a_body_ends_with_its_headers() -> None:
    text = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: //10.0.0.1:5050/x\r\nContent-Length: 0"
    parser, _ = read([text + b"\r\n\r\n"])
    assert parser.get_status_code() == 307 and parser.is_message_complete()
    assert parser.get_headers()["Location"] == "//10.0.0.1:5050/x" and not parser.is_chunked()


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_some_answers_have_no_body(status: bytes) -> None:
    assert read([b"HTTP/1.1 " + status + b"\r\n\r\n"])[0].is_message_complete()


def test_without_a_length_the_body_goes_on_to_the_end() -> None:
    parser, body = read([b"HTTP/1.0 503 Busy\r\n\r\n", b"later", b", please"])
    assert body == b"later, please" and not parser.is_message_complete()


def test_bare_line_feeds_end_lines() -> None:
    parser, body = read([b"HTTP/1.1 200 \nTransfer-Encoding: Chunked\n\n2\nok\n0\n\n"])
    assert body == b"ok" and parser.is_message_complete()


# ---- what is wrong ----


@pytest.mark.parametrize(
    "size", [b"", b"g", b"-1", b"+1", b"0x1", b"1_0", b" 1", b"1 2", b"1" * 17, "١".encode()]
)
def test_a_bad_chunk_size(size: bytes) -> None:
    data = CHUNKED + b"\r\n2\r\nok\r\n" + size + b"\r\n"
    good, errno = refused(data)
    assert errno is Errno.BAD_CHUNK_SIZE and good == len(data) - 1


@pytest.mark.parametrize("end", [b"x", b"\rx", b"\r\r", b" \r\n", b"3\r\n"])
def test_a_chunk_longer_than_it_said(end: bytes) -> None:
    good, errno = refused(CHUNKED + b"\r\n2\r\nok" + end)
    assert errno is Errno.BAD_CHUNK_END
    assert good == len(CHUNKED + b"\r\n2\r\nok") + end.startswith(b"\r")


@pytest.mark.parametrize(
    "header",
    [b"Content-Length: " + value for value in (b"", b"x", b"-1", b"+1", b"1_0", b"1 2", b"9" * 19)]
    + [b"Content-Length: 1\r\ncontent-length: 2", b"Content-Length: 1, 2"]
    + [b"Content-Length: 1\r\nTransfer-Encoding: chunked"],
)
def test_a_wrong_length(header: bytes) -> None:
    assert refused(HEAD + header + b"\r\n\r\nx")[1] is Errno.BAD_LENGTH


def test_the_same_length_twice_is_one() -> None:
    assert read([HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nok"])[1] == b"ok"


@pytest.mark.parametrize("encoding", [b"gzip", b"gzip, chunked", b"chunked, chunked"])
def test_an_encoding_that_is_not_just_chunked(encoding: bytes) -> None:
    found = refused(HEAD + b"Transfer-Encoding: " + encoding + b"\r\n\r\n")
    assert found[1] is Errno.BAD_TRANSFER_ENCODING


@pytest.mark.parametrize("end", [HEAD + b"Content-Length: 2\r\n\r\nok", CHUNKED + b"\r\n0\r\n\r\n"])
def test_bytes_behind_the_end(end: bytes) -> None:
    assert refused(end + b"more") == (len(end), Errno.AFTER_THE_END)


@pytest.mark.parametrize(
    "line", [b"HTTP/2 200", b"HTTP/1.1 20", b"HTTP/1.1 600 x", b"HTTP/1.1", b"<html>", b""]
)
def test_a_bad_status_line(line: bytes) -> None:
    assert refused(line + b"\r\n\r\n")[1] is Errno.BAD_STATUS_LINE


@pytest.mark.parametrize("line", [b"no colon", b": no name", b"a b: c", b" folded: first"])
def test_a_bad_header(line: bytes) -> None:
    assert refused(HEAD + line + b"\r\n\r\n")[1] is Errno.BAD_HEADER


@pytest.mark.parametrize(
    "data",
    [
        HEAD + b"X: " + b"x" * LINE_BYTES_MAX,
        HEAD + b"X: 12345678\r\n" * (HEADERS_BYTES_MAX // 11 + 1),
        CHUNKED + b"\r\n1;" + b"x" * LINE_BYTES_MAX,
        CHUNKED + b"\r\n0\r\n" + b"X: 12345678\r\n" * (HEADERS_BYTES_MAX // 11 + 1),
    ],
    ids=["line", "headers", "extension", "trailers"],
)
def test_lines_without_end(data: bytes) -> None:
    assert refused(data)[1] is Errno.TOO_LONG


def test_nothing_is_read_behind_an_error() -> None:
    parser = HttpParser()
    assert parser.execute(b"nonsense\r\n", 10) < 10
    assert parser.execute(WHOLE, len(WHOLE)) == 0 and not parser.is_headers_complete()
    assert str(parser.get_errno()) == "BAD_STATUS_LINE"


def test_pymesos_takes_it_for_the_one_with_get_errno() -> None:
    """It asks one that has an `errno` differently."""
    assert not hasattr(HttpParser(), "errno")


def test_pymesos_finds_it() -> None:
    stand_in()
    import pymesos.process

    assert pymesos.process.HttpParser is HttpParser


def test_pymesos_calls_nothing_else() -> None:
    stand_in()
    import pymesos.process

    text = Path(str(pymesos.process.__file__)).read_text()
    called = {part.split("(")[0] for part in text.split("self._parser.")[1:]}
    # These two only of a parser that has `errno`.
    missing = {name for name in called if not hasattr(HttpParser, name.split()[0].rstrip(":,"))}
    assert {name.split()[0].rstrip(":,") for name in missing} == {"errno", "errstr"}


# ---- what it costs ----


def steps(data: bytes, size: int) -> int:
    """Lines of Python run to read it in parts of that size: what a clock would say less surely."""
    parser, count = HttpParser(), 0

    def step(*_: object) -> object:
        nonlocal count
        count += 1
        return step

    gc.collect()
    before = sys.gettrace()
    sys.settrace(step)
    try:
        for at in range(0, len(data), size):
            parser.execute(data[at : at + size], size)
            parser.recv_body()
    finally:
        sys.settrace(before)
    assert parser.get_errno() is Errno.OK
    return count


@pytest.mark.parametrize("size", [1, 7, 4096])
@pytest.mark.parametrize("kind", ["chunks", "line", "folds", "one chunk"])
def test_the_cost_grows_with_the_bytes_alone(kind: str, size: int) -> None:
    def made(count: int) -> bytes:
        return {
            "chunks": CHUNKED + b"\r\n" + b"3\r\nabc\r\n" * count,
            "line": HEAD + b"X: " + b"x" * 8 * count,
            "folds": HEAD + b"X: x\r\n" + b"   fold\r\n" * count,
            "one chunk": CHUNKED + b"\r\nffffff\r\n" + b"x" * 8 * count,
        }[kind]

    once, four = steps(made(250), size), steps(made(1000), size)
    assert four <= 4.2 * once + 200
    assert four <= 25 * len(made(1000)) + 2000


def test_what_is_not_received_is_kept_in_one_piece() -> None:
    """A reader that comes late costs no copy of all for each part that came."""
    parser = HttpParser()
    start = CHUNKED + b"\r\nffffffff\r\n"
    parser.execute(start, len(start))
    for _ in range(20_000):  # quadratic, this were 10 GB to copy
        parser.execute(b"x" * 50, 50)
    assert len(parser.recv_body()) == 1_000_000
