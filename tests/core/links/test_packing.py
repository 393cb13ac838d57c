"""Packing: every envelope and answer comes out as it went in, or is marked as unreadable."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.assembly.kinds import kinds
from peloton.runtime.core.entities.encoding import encode
from peloton.runtime.core.links.packing import (
    AskReply,
    MailBatch,
    Packing,
    Unpackable,
    UnreadableMessage,
    WrongRoute,
    read_batch,
)
from peloton.runtime.core.reading.listing import Listed
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.kinds import Kind
from peloton.runtime.ports import ShardId
from peloton.runtime.vocabulary import (
    Absent,
    DeadLettered,
    Key,
    Refused,
    Seen,
    ShardDamaged,
    Unavailable,
    key,
    kind_of,
)
from peloton.settings.daemon import ALONE_SHARDS
from tests.actors.test_golden import sample
from tests.toy import messages as w
from tests.toy.kinds import KINDS

PACKING = Packing(KINDS, {"lamp": {1: w.Add}})
REAL = kinds(ALONE_SHARDS)
X = key("note", "x")
SETS = st.integers(0, 2**1100)
KEYS = st.sampled_from([X, key("bulb", "p", 1), key("meter", "ü")])
VALUES = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=4) | KEYS
ENVELOPES = st.builds(
    Envelope,
    to=st.just(X) | st.just(Key("lamp/3")),
    message=st.builds(w.Add, st.integers(-(2**60), 2**60)),
    members=SETS,
    sender=st.none() | KEYS,
    origin=SETS,
    values=st.lists(VALUES, max_size=3).map(tuple),
    origins=st.lists(st.tuples(SETS, KEYS), max_size=3).map(tuple),
    request=st.none() | st.tuples(st.text(), st.binary()),
    who=st.text(max_size=5),
    reply_to=st.none(),
    attempt=st.just(0),
)


@given(ENVELOPES, st.integers(0, 2**60))
def test_an_envelope_comes_out_as_it_went_in(envelope: Envelope, ask: int) -> None:
    found = PACKING.unpack(PACKING.pack(envelope, ask))
    assert found == msgspec.structs.replace(envelope, reply_to=ask or None)


def every_class(kind: Kind) -> list[type]:
    return [*kind.messages.values(), *kind.queries.values()]


@pytest.mark.parametrize("kind", REAL.values(), ids=lambda kind: kind.name)
def test_every_message_and_query_of_a_kind_travels(kind: Kind) -> None:
    packing = Packing(REAL)
    for cls in every_class(kind):
        envelope = Envelope(key(kind.name, "x", 1), sample(cls), sender=X)
        assert packing.unpack(packing.pack(envelope)) == envelope


@pytest.mark.parametrize("kind", REAL.values(), ids=lambda kind: kind.name)
def test_every_answer_of_a_kind_travels_alone_and_in_lists(kind: Kind) -> None:
    packing, asked = Packing(REAL), key(kind.name, "x", 1)
    for cls in kind.answers.values():
        for answer in (sample(cls), [sample(cls)], (sample(cls), [sample(cls), None])):
            assert packing.unpack_answer(asked, packing.pack_answer(asked, answer)) == answer


@pytest.mark.parametrize("kind", REAL.values(), ids=lambda kind: kind.name)
def test_every_question_that_is_answered_can_be_asked_from_afar(kind: Kind) -> None:
    assert sorted(map(str, kind.inspect)) == sorted(map(str, kind.queries.values()))


@pytest.mark.parametrize(
    "answer",
    [
        *(None, 7, "x", b"x", True, 1.5, [], (), [None, (1, [2])]),
        *(Refused("C", "t", "f"), Unavailable("t"), Absent(X), DeadLettered("t"), [Absent(X)]),
        *(w.Total(3), (w.Total(3), w.Total(4))),
    ],
)
def test_an_answer_comes_out_as_it_went_in(answer: Any) -> None:
    found = PACKING.unpack_answer(X, PACKING.pack_answer(X, answer))
    assert found == answer and type(found) is type(answer)


def test_what_the_runtime_says_travels_to_any_kind() -> None:
    for name in KINDS:
        envelope = Envelope(key(name, 1), Seen("Lamps", 4), sender=X)
        assert PACKING.unpack(PACKING.pack(envelope)) == envelope


def test_an_older_daemon_takes_damage_for_unavailable() -> None:
    """It does not know the number, and nothing was done: that much it has to understand."""
    packed = PACKING.pack_answer(X, ShardDamaged("chain break"))
    assert PACKING.unpack_answer(X, packed) == ShardDamaged("chain break")
    older = packed.replace(encode(905), encode(999))
    assert type(PACKING.unpack_answer(X, older)) is Unavailable


def test_what_has_no_number_does_not_travel() -> None:
    for envelope in (Envelope(X, w.Draw(1)), Envelope(key("nobody", 1), w.Add(1))):
        with pytest.raises(Unpackable):
            PACKING.pack(envelope)
    for answer in (w.Grid("g"), [w.Total(1), {1, 2}], {"a": 1}):
        with pytest.raises(Unpackable):
            PACKING.pack_answer(X, answer)


def test_what_this_daemon_does_not_know_is_marked_and_keeps_its_ask() -> None:
    newer = Packing({"note": msgspec.structs.replace(KINDS["note"], messages={77: w.Add})})
    found = PACKING.unpack(newer.pack(Envelope(X, w.Add(1), 5, sender=X), 9))
    assert isinstance(found.message, UnreadableMessage) and found.message.number == 77
    assert (found.to, found.members, found.sender, found.reply_to) == (X, 5, X, 9)


def test_a_message_of_another_shape_is_marked() -> None:
    other = Packing({"note": msgspec.structs.replace(KINDS["note"], messages={1: w.Grid})})
    found = PACKING.unpack(other.pack(Envelope(X, w.Grid("not a number"))))  # type: ignore[arg-type]
    assert isinstance(found.message, UnreadableMessage) and "Add" in found.message.text


def test_an_answer_that_is_not_known_is_unavailable() -> None:
    newer = Packing({"note": msgspec.structs.replace(KINDS["note"], answers={77: w.Total})})
    for answer in (w.Total(1), [w.Total(1)]):
        found = PACKING.unpack_answer(X, newer.pack_answer(X, answer))
        assert isinstance(found, Unavailable)
    assert isinstance(PACKING.unpack_answer(X, b"\xc1"), Unavailable)


def test_fields_that_are_added_later_are_skipped() -> None:
    raw = msgspec.msgpack.decode(PACKING.pack(Envelope(X, w.Add(1)), 3))
    raw[2].append("new")
    found = PACKING.unpack(encode([*raw, "new"]))
    assert found == Envelope(X, w.Add(1), reply_to=3)


def test_a_page_of_a_listing_travels_with_all_it_says() -> None:
    page = Listed("note", (w.Total(3),), 7, ((("up", 2),),), X)
    assert PACKING.unpack_answer(X, PACKING.pack_answer(X, page)) == page
    raw = msgspec.msgpack.decode(PACKING.pack_answer(X, page))
    raw[2].append("new")
    assert PACKING.unpack_answer(X, encode(raw)) == page, "what is added later is skipped"


@pytest.mark.parametrize("fields", [2, 3, 4])
def test_a_page_that_lacks_fields_is_no_page(fields: int) -> None:
    """It would count as nothing matched, and as the last one."""
    form, number, page = msgspec.msgpack.decode(PACKING.pack_answer(X, Listed("note", (), 1)))
    found = PACKING.unpack_answer(X, encode((form, number, page[:fields])))
    assert isinstance(found, Unavailable)


def test_letters_come_out_as_they_went_in() -> None:
    here, there = ShardId("house", 1), ShardId("city", 0)
    body = msgspec.Raw(PACKING.pack(Envelope(X, w.Add(1))))
    for place, sender in ((here, there), ("lamp", None)):
        mailed = read_batch(encode(MailBatch(place, sender, 7, [body, body])))
        assert isinstance(mailed, MailBatch)
        assert (mailed.route, mailed.sender, mailed.epoch) == (place, sender, 7)
        assert type(mailed.route) is type(place) and len(mailed.envelopes) == 2
        assert PACKING.unpack(mailed.envelopes[0]).message == w.Add(1)
    assert read_batch(encode(WrongRoute(here, 4, [1, 2]))) == WrongRoute(here, 4, [1, 2])
    replied = read_batch(encode(AskReply(5, msgspec.Raw(PACKING.pack_answer(X, w.Total(2))))))
    assert isinstance(replied, AskReply)
    assert PACKING.unpack_answer(X, replied.answer) == w.Total(2)


def test_a_number_means_one_thing() -> None:
    twice = msgspec.structs.replace(KINDS["note"], queries={1: w.Show})
    with pytest.raises(ValueError, match="note"):
        Packing({"note": twice})


def test_the_kind_of_a_key_decides_what_a_number_means() -> None:
    assert kind_of(PACKING.unpack(PACKING.pack(Envelope(Key("lamp/3"), w.Add(1)))).to) == "lamp"
