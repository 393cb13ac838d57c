"""Frames of a peer that are none, or only almost: one stream may end of it, and nothing else.

A peer shell that fails resets the links to all other daemons. So whatever one stream brings, the
links of the others must stay, and what the others send must arrive.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.runtime.core.entities.encoding import encode
from peloton.runtime.core.links.packing import AskReply, MailBatch, Route, WrongRoute
from peloton.runtime.core.links.wire import Acknowledged, Hello, Parcel
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.shells.peer import PeerShell
from peloton.runtime.shells.peer_messages import Inbound
from peloton.runtime.vocabulary import Unavailable
from tests.shells.test_peer import HERE, PACKING, OneDaemon, RecordingRouter, X, parcel
from tests.toy import messages as w

DEEP = b"\x91" * 5_000 + b"\xc0"
"""Lists in lists."""
NO_TEXT = b"\xa2\xff\xfe"
"""A text that is not UTF-8."""
LARGEST = b"\xcf" + b"\xff" * 8
PIECES = (
    NO_TEXT, DEEP, LARGEST, b"\xd3\x80" + b"\0" * 7, b"\xdd\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff", b"\xc0", b"\x80", b"\x81\x90\x90", b"\xc7\x01\x05a", b"\xc1",
    b"\xcb\x7f\xf8" + b"\0" * 6,
)  # fmt: skip
ENVELOPE = PACKING.pack(Envelope(X, w.Add(1)), 3)

QUIET = PACKING.pack(Envelope(X, w.Add(1)))
BATCHES = (
    encode(MailBatch(HERE, HERE, 1, [msgspec.Raw(ENVELOPE)])),
    encode(AskReply(1, msgspec.Raw(PACKING.pack_answer(X, Unavailable("no"))))),
    encode(WrongRoute(HERE, 1, [1])),
)
FRAMES = (
    encode(Hello(1, "a", "b", 1, 1, 1, 0, 0, 64, 1024)),
    encode(Acknowledged(1)),
    *(encode(Parcel(1, 0, 1, [msgspec.Raw(batch)])) for batch in BATCHES),
)


class Anything(RecordingRouter):
    """Takes whatever comes."""

    def deliver(self, arrived: Inbound) -> bool:
        return True

    def misdirected(self, peer: str, route: Route, *, view: int) -> None:
        return None


def shell_of(daemon: OneDaemon) -> PeerShell:
    shell: Any = daemon.stepper.shells[-1]
    return shell


@st.composite
def spoilt(draw: Any) -> bytes:
    """A frame with a few of its bytes changed, added or left out."""
    data = draw(st.sampled_from(FRAMES))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        piece = draw(st.sampled_from(PIECES) | st.binary(max_size=4))
        data = data[:at] + piece + data[at + draw(st.integers(0, 4)) :]
    return data


@pytest.mark.parametrize("piece", [NO_TEXT, DEEP], ids=["no text", "deep"])
@pytest.mark.parametrize("begin", [b"\x93\x03\x01", b"\x9a\x01\x01", b""])
def test_a_frame_of_a_stranger_that_cannot_be_read_ends_its_stream_alone(
    begin: bytes, piece: bytes
) -> None:
    daemon = OneDaemon()
    daemon.greet(7)
    daemon.exchange.listener.accepted(8)
    assert daemon.arrive(8, begin + piece) == [("close", 8)]
    assert daemon.arrive(7, parcel(1, 101)) == [("send", 7)]
    assert daemon.router.received == [101]


@pytest.mark.parametrize("body", [NO_TEXT, b"\x95\x01" + NO_TEXT + b"\xc0\x01\x90"])
def test_a_batch_that_cannot_be_read_is_counted(body: bytes) -> None:
    daemon = OneDaemon()
    daemon.greet(7)
    daemon.arrive(7, encode(Parcel(1, 0, 1, [msgspec.Raw(body)])))
    envelopes = [msgspec.Raw(b"\x93" + NO_TEXT + b"\x01\x90"), msgspec.Raw(QUIET)]
    mixed = encode(MailBatch(HERE, None, 1, envelopes))
    daemon.arrive(7, encode(Parcel(2, 0, 1, [msgspec.Raw(mixed)])))
    assert daemon.router.received == [1], "what could be read"
    assert shell_of(daemon).counts["unreadable"] == 2


def test_an_answer_that_cannot_be_read_is_unavailable() -> None:
    for piece in (NO_TEXT, DEEP):
        for form in range(6):
            found = PACKING.unpack_answer(X, b"\x93" + bytes((form,)) + b"\x01" + piece)
            assert isinstance(found, Unavailable)
    assert isinstance(PACKING.unpack_answer(X, DEEP), Unavailable)


@settings(max_examples=150, deadline=None, database=None)
@given(frames=st.lists(spoilt(), min_size=1, max_size=3), greeted=st.booleans())
def test_spoilt_frames_harm_no_link_of_another(frames: list[bytes], greeted: bool) -> None:
    daemon = OneDaemon(Anything())
    daemon.greet(7)
    link = shell_of(daemon).links["a"]
    if greeted:
        daemon.arrive(7, *frames)
    else:
        daemon.exchange.listener.accepted(8)
        daemon.arrive(8, *frames)
    assert shell_of(daemon).links["a"] is link, "the shell failed, and began all links anew"
