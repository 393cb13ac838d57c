"""One link, told frame by frame: windows, repeats, gaps, resumption, and peers that forgot."""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.runtime.core.entities.encoding import encode
from peloton.runtime.core.links import parcels as p
from peloton.runtime.core.links.parcels import (
    ACK_S,
    PING_S,
    SLOWEST_BYTES_PER_S,
    STALL_S_MAX,
    Link,
    LinkLimits,
)
from peloton.runtime.core.links.wire import read_hello

NOW = 1000.0


def at_once(**limits: int) -> LinkLimits:
    """Limits of links that acknowledge what they hear without waiting for a parcel of theirs."""
    return LinkLimits(ack_s=0.0, **limits)


WIDE = at_once()


def words(*numbers: int) -> list[bytes]:
    return [encode(number) for number in numbers]


class Pair:
    """Two ends of one link and the stream between them, moved by hand."""

    def __init__(self, limits: LinkLimits = WIDE) -> None:
        self.limits = limits
        self.births = itertools.count(1)
        self.streams = itertools.count(1)
        self.a = self.link("a", "b")
        self.b = self.link("b", "a")
        self.received: dict[str, list[int]] = {"a": [], "b": []}
        self.now = NOW

    def link(self, me: str, peer: str) -> Link:
        return Link(me, peer, birth=next(self.births), limits=self.limits)

    def join(self) -> str:
        """A new stream; why it was closed at once, if it was."""
        stream = next(self.streams)
        hello = read_hello(self.a.dialled(stream, self.now))
        assert hello is not None
        answer, trouble = self.b.greeted_by(stream, hello, now=self.now)
        trouble = trouble or self.a.received(answer, self.now).trouble
        if trouble:
            self.hang_up()
        return trouble

    def hang_up(self) -> None:
        self.a.closed(self.now)
        self.b.closed(self.now)

    def hear(self, link: Link, frames: list[bytes]) -> str:
        name = "a" if link is self.a else "b"
        for frame in frames:
            received = link.received(frame, self.now)
            if received.trouble:
                return received.trouble
            self.received[name] += [msgspec.msgpack.decode(batch) for batch in received.batches]
        return ""

    def flow(self) -> None:
        """All that both have to say, until they are at rest."""
        for _ in range(1000):
            there, back = self.a.frames(self.now), self.b.frames(self.now)
            if not there and not back:
                return
            assert self.hear(self.b, there) == "" and self.hear(self.a, back) == ""
        raise AssertionError("they never come to rest")


def send(link: Link, *numbers: int, view: int = 1) -> None:
    for word in words(*numbers):
        assert link.send(word, view)


def joined(limits: LinkLimits = WIDE) -> Pair:
    pair = Pair(limits)
    assert pair.join() == ""
    return pair


def test_letters_go_both_ways_and_nothing_is_kept_of_them() -> None:
    pair = joined()
    send(pair.a, 1, 2)
    send(pair.b, 3)
    pair.flow()
    assert pair.received == {"a": [3], "b": [1, 2]}
    assert pair.a.idle and pair.b.idle


def test_nothing_is_sent_before_the_greeting() -> None:
    pair = Pair()
    send(pair.a, 1)
    assert pair.a.frames(NOW) == []
    pair.a.dialled(1, NOW)
    assert pair.a.frames(NOW) == []


def test_a_frame_before_the_greeting_closes_the_stream() -> None:
    pair = joined()
    send(pair.b, 1)
    frames = pair.b.frames(NOW)
    pair.a.closed(NOW)
    pair.a.dialled(9, NOW)
    assert pair.hear(pair.a, frames) == "a frame before the greeting"


def test_bytes_that_are_no_frame_close_the_stream() -> None:
    assert "cannot be read" in joined().a.received(b"\xc1", NOW).trouble
    assert read_hello(b"\xc1") is None and read_hello(encode(p.Acknowledged(1))) is None


def test_a_repeat_is_dropped_and_acknowledged() -> None:
    pair = joined()
    send(pair.a, 1)
    frames = pair.a.frames(NOW)
    assert pair.hear(pair.b, frames * 3) == ""
    assert pair.received["b"] == [1] and pair.b.counts["repeats"] == 2
    assert len(pair.b.frames(NOW)) == 1, "one acknowledgement for all"


def test_a_gap_closes_the_stream_and_the_next_one_goes_on_after_what_arrived() -> None:
    pair = joined(at_once(window_parcels=9))
    lost = []
    for number in range(4):
        send(pair.a, number)
        lost += pair.a.frames(NOW)
    assert pair.hear(pair.b, [lost[0], lost[2]]) == "parcel 3 after 1"
    pair.hang_up()
    assert pair.join() == ""
    assert len(pair.a.frames(NOW)) == 3, "the first is not said again"
    pair.hang_up()
    assert pair.join() == ""
    pair.flow()
    assert pair.received["b"] == [0, 1, 2, 3]


def test_acknowledgements_are_cumulative_and_late_ones_harmless() -> None:
    pair = joined()
    acknowledgements = []
    for number in range(3):
        send(pair.a, number)
        assert pair.hear(pair.b, pair.a.frames(NOW)) == ""
        acknowledgements += pair.b.frames(NOW)
    assert pair.hear(pair.a, acknowledgements[::-1]) == ""
    assert pair.a.idle


def test_what_was_never_sent_cannot_be_acknowledged() -> None:
    assert pair_trouble(encode(p.Acknowledged(1))) == "parcel 1 was never sent"
    assert pair_trouble(encode(p.Parcel(1, 5, 1, []))) == "parcel 5 was never sent"


def pair_trouble(frame: bytes) -> str:
    return joined().a.received(frame, NOW).trouble


def test_the_window_is_the_receivers_in_parcels() -> None:
    pair = joined(at_once(window_parcels=2))
    frames = []
    for number in range(5):
        send(pair.a, number)
        frames += pair.a.frames(NOW)
    assert len(frames) == 2
    pair.hear(pair.b, frames)
    pair.hear(pair.a, pair.b.frames(NOW))
    assert len(pair.a.frames(NOW)) == 1, "what waited meanwhile shares one parcel"


def test_the_window_is_the_receivers_in_bytes_and_one_parcel_may_always_go() -> None:
    pair = joined(at_once(window_bytes=10))
    pair.a.send(bytes(100), 1)
    assert len(pair.a.frames(NOW)) == 1
    pair.a.send(bytes(100), 1)
    assert pair.a.frames(NOW) == []


def test_after_a_new_stream_the_window_holds_too() -> None:
    pair = joined(at_once(window_parcels=2))
    for number in range(2):
        send(pair.a, number)
        pair.a.frames(NOW)
    pair.hang_up()
    assert pair.join() == ""
    send(pair.a, 2)
    assert len(pair.a.frames(NOW)) == 2
    pair.hang_up()
    assert pair.join() == ""
    pair.flow()
    assert pair.received["b"] == [0, 1, 2]


def test_letters_of_one_view_share_a_parcel_up_to_its_size() -> None:
    pair = joined()
    send(pair.a, 1, 2, view=1)
    send(pair.a, 3, view=2)
    views = []
    for frame in pair.a.frames(NOW):
        received = pair.b.received(frame, NOW)
        views.append((received.view, len(received.batches)))
    assert views == [(1, 2), (2, 1)]
    for _ in range(3):
        pair.a.send(bytes(p.PARCEL_BYTES // 2), 2)
    assert len(pair.a.frames(NOW)) == 2


def test_what_waits_is_bounded_and_what_left_makes_room() -> None:
    pair, batch = joined(at_once(link_bytes_max=250)), encode(bytes(100))
    assert pair.a.send(batch, 1) and pair.a.send(batch, 1)
    assert not pair.a.send(batch, 1) and pair.a.counts["dropped"] == 1
    frames = pair.a.frames(NOW)
    assert not pair.a.send(batch, 1), "what is under way counts"
    pair.b.received(frames[0], NOW)
    assert pair.hear(pair.a, pair.b.frames(NOW)) == ""
    assert pair.a.idle and pair.a.send(encode(bytes(200)), 1)


def test_a_letter_that_no_stream_carries_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(p, "BATCH_BYTES_MAX", 10)
    pair = joined()
    assert not pair.a.send(bytes(11), 1) and pair.a.send(bytes(10), 1)


def test_an_older_stream_is_never_taken_for_a_newer_one() -> None:
    pair = Pair()
    first, second = (read_hello(pair.a.dialled(stream, NOW)) for stream in (1, 2))
    assert first is not None and second is not None
    assert pair.b.greeted_by(2, second, now=NOW)[1] == ""
    assert pair.b.greeted_by(1, first, now=NOW)[1] == "a newer stream is known"
    assert pair.b.greeted_by(3, second, now=NOW)[1] == "a newer stream is known"
    assert pair.b.stream == 2 and pair.b.greeted


def test_on_a_newer_stream_all_that_is_open_goes_again_though_the_older_did_not_end() -> None:
    pair = joined()
    send(pair.b, 1)
    assert len(pair.b.frames(NOW)) == 1  # lost, and only the other side knows that
    pair.a.closed(NOW)
    assert pair.join() == ""
    pair.flow()
    assert pair.received["a"] == [1]


def test_only_the_lower_member_dials() -> None:
    pair = Pair()
    assert pair.a.dial_s() is not None and pair.b.dial_s() is None
    hello = read_hello(pair.b.dialled(1, NOW))
    assert hello is not None
    assert pair.a.greeted_by(1, hello, now=NOW)[1] == "this side dials"


@pytest.mark.parametrize(
    "change",
    [{"member": "c"}, {"to": "c"}, {"format": p.STREAM_FORMAT + 1}],
)
def test_a_greeting_for_somebody_else_is_refused(change: dict[str, object]) -> None:
    pair = Pair()
    hello = read_hello(pair.a.dialled(1, NOW))
    assert hello is not None
    assert pair.b.greeted_by(1, msgspec.structs.replace(hello, **change), now=NOW)[1]
    assert pair.b.stream is None


def test_the_side_that_is_dialled_was_restarted_and_what_may_have_arrived_is_not_resent() -> None:
    pair = joined()
    send(pair.a, 1)
    pair.hear(pair.b, pair.a.frames(NOW))  # heard; its acknowledgement is lost
    pair.a.send(encode(2), 1, asks=(20, 21))
    pair.a.frames(NOW)  # lost
    send(pair.a, 3)  # never sent, so it may go to the new link
    pair.a.send(encode(4), 1, asks=(40,))
    pair.hang_up()
    pair.b = pair.link("b", "a")
    assert pair.join() == "the peer was restarted"
    assert pair.join() == ""
    pair.flow()
    assert pair.received["b"] == [1, 3, 4] and pair.a.counts["forgotten"] == 2
    assert pair.a.lost == [20, 21]


def test_the_side_that_dials_forgot() -> None:
    pair = joined()
    send(pair.b, 1)
    pair.hear(pair.a, pair.b.frames(NOW))
    send(pair.a, 7)
    pair.flow()
    pair.hang_up()
    pair.a = pair.link("a", "b")
    send(pair.a, 8)
    send(pair.b, 2)
    assert pair.join() == ""
    pair.flow()
    assert pair.received == {"a": [1, 2], "b": [7, 8]}


def test_a_peer_that_forgot_while_nothing_was_open_loses_nothing() -> None:
    pair = joined()
    send(pair.a, 1, 2)
    pair.flow()
    pair.hang_up()
    pair.b = pair.link("b", "a")
    send(pair.a, 3)
    assert pair.join() == ""
    pair.flow()
    assert pair.received["b"] == [1, 2, 3]


def test_a_stream_without_progress_is_given_up() -> None:
    pair = Pair()
    assert pair.a.overdue(NOW) == "" and pair.a.stall_s() is None
    pair.a.dialled(1, NOW)
    assert pair.a.overdue(NOW + p.STALL_S_MAX - 1) == ""
    assert pair.a.overdue(NOW + p.STALL_S_MAX) == "no greeting came back"
    pair = joined()
    assert pair.a.stall_s() is None, "a quiet stream may stay"
    send(pair.a, 1)
    frames = pair.a.frames(NOW + 100)
    assert pair.a.overdue(NOW + 100) == ""
    pair.now = NOW + 100 + p.STALL_S_MAX
    assert pair.a.overdue(pair.now) == p.SILENT
    pair.hear(pair.b, frames)
    pair.hear(pair.a, pair.b.frames(pair.now))
    assert pair.a.overdue(pair.now) == ""


def test_parcels_of_the_peer_do_not_hide_that_ours_was_lost() -> None:
    """With a full window nothing follows that would show the gap."""
    pair = joined(at_once(window_parcels=1))
    send(pair.a, 1, 2)
    assert len(pair.a.frames(NOW)) == 1, "and it is lost"
    for second in range(1, int(STALL_S_MAX) + 1):
        assert pair.a.overdue(NOW + second - 0.1) == ""
        pair.now = NOW + second
        send(pair.b, second)
        assert pair.hear(pair.a, pair.b.frames(pair.now)) == ""
        pair.a.frames(pair.now)
    assert pair.a.overdue(pair.now) == p.SILENT


def test_dials_are_made_again_after_pauses_that_grow_until_something_moves() -> None:
    pair, pauses = Pair(), []
    for stream in range(8):
        pair.a.dialled(stream, NOW)
        pair.a.closed(NOW)
        pauses.append(round((pair.a.dial_s() or 0.0) - NOW, 3))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert pair.join() == ""
    send(pair.a, 1)
    pair.flow()
    pair.hang_up()
    assert pair.a.dial_s() == pytest.approx(NOW + 0.1)


def test_a_stream_that_lived_long_makes_up_for_those_that_failed() -> None:
    pair = Pair()
    for stream in range(8):
        pair.a.dialled(stream, NOW)
        pair.a.closed(NOW)
    assert pair.join() == ""
    pair.now = NOW + p.RETRY.most_s
    pair.hang_up()
    assert pair.a.dial_s() == pytest.approx(pair.now + p.RETRY.most_s), "not long enough"
    assert pair.join() == ""
    pair.now += p.RETRY.most_s + 1
    pair.hang_up()
    assert pair.a.dial_s() == pytest.approx(pair.now + p.RETRY.first_s)


def test_how_long_a_peer_is_out_of_reach() -> None:
    pair = Pair()
    assert pair.a.down_since_s is None
    pair.a.overdue(NOW)
    assert pair.a.down_since_s == NOW
    assert pair.join() == "" and pair.a.down_since_s is None
    pair.now = NOW + 7
    pair.hang_up()
    pair.a.dialled(5, NOW + 8)
    pair.a.closed(NOW + 9)
    assert pair.a.down_since_s == NOW + 7


@given(st.integers(0, 2**32))
def test_over_any_stream_each_letter_arrives_once_and_in_order(seed: int) -> None:
    """Frames are lost, repeated and swapped; streams die; the last one is good."""
    chance = random.Random(seed)
    pair = Pair(at_once(window_parcels=chance.randint(1, 4), window_bytes=chance.randint(1, 200)))
    said = 0
    for _ in range(chance.randrange(30)):
        if pair.a.stream is None:
            assert pair.join() == ""
        for _ in range(chance.randrange(4)):
            said += 1
            send(pair.a, said, view=chance.randrange(2))
            send(pair.b, said)
        for source, target in ((pair.a, pair.b), (pair.b, pair.a)):
            frames = [f for f in source.frames(NOW) for _ in range(chance.choice([0, 1, 1, 1, 2]))]
            if chance.random() < 0.2:
                chance.shuffle(frames)
            if pair.a.stream is not None and pair.hear(target, frames):
                pair.hang_up()
    pair.hang_up()
    assert pair.join() == ""
    pair.flow()
    assert pair.received == {"a": [*range(1, said + 1)], "b": [*range(1, said + 1)]}
    assert pair.a.idle and pair.b.idle


def test_an_idle_stream_that_is_dead_is_found_by_the_side_that_can_dial_again():
    """The other side may have words that wait for it, and may not dial."""
    a, b = Link("a", "b", birth=1, limits=at_once()), Link("b", "a", birth=1, limits=at_once())
    hello = read_hello(a.dialled(1, 0.0))
    assert hello is not None
    answer, trouble = b.greeted_by(1, hello, now=0.0)
    assert not trouble and not a.received(answer, 0.0).trouble
    assert a.frames(PING_S - 0.1) == [] and b.ping_s() is None
    (ping,) = a.frames(PING_S)
    assert b.received(ping, PING_S).batches == []
    (pong,) = b.frames(PING_S)
    a.received(pong, PING_S)
    assert a.idle and a.overdue(2 * PING_S) == "" and a.ping_s() == 2 * PING_S
    a.frames(2 * PING_S)  # and now nobody answers
    assert a.overdue(2 * PING_S + STALL_S_MAX) == p.SILENT


def test_an_acknowledgement_waits_for_a_parcel_that_can_carry_it() -> None:
    pair = joined(LinkLimits())
    send(pair.a, 1)
    pair.hear(pair.b, pair.a.frames(pair.now))
    assert pair.b.frames(pair.now) == [] and pair.b.ack_s() == pair.now + ACK_S
    send(pair.b, 2)
    (carrier,) = pair.b.frames(pair.now)
    assert pair.hear(pair.a, [carrier]) == "" and pair.a.idle
    assert pair.b.ack_s() is None
    pair.now += ACK_S
    assert pair.b.frames(pair.now) == []
    (alone,) = pair.a.frames(pair.now)
    assert pair.hear(pair.b, [alone]) == "" and pair.b.idle


@pytest.mark.parametrize("limits", [LinkLimits(window_parcels=6), LinkLimits(window_bytes=150)])
def test_what_fills_half_of_the_window_is_acknowledged_at_once(limits: LinkLimits) -> None:
    """Else who sends would wait for its credit as long as an acknowledgement may."""
    pair = joined(limits)
    for number in range(3):
        assert pair.b.frames(pair.now) == []
        pair.a.send(encode(bytes([number]) * 20), 1)
        for frame in pair.a.frames(pair.now):
            assert not pair.b.received(frame, pair.now).trouble
    assert len(pair.b.frames(pair.now)) == 1


def test_a_large_parcel_on_a_slow_link_has_its_time() -> None:
    """Given up after five seconds it would begin anew on every stream, and never arrive."""
    pair = joined()
    pair.a.send(encode(bytes(8 * SLOWEST_BYTES_PER_S)), 1)
    (large,) = pair.a.frames(NOW)
    assert pair.a.overdue(NOW + STALL_S_MAX + 7.9) == ""
    assert pair.a.overdue(NOW + STALL_S_MAX + 8.1) == p.SILENT
    assert len(large) > 8 * SLOWEST_BYTES_PER_S
