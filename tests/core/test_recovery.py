"""What recovery makes of a journal: facts of no member, and what it says of one that is damaged.

`tests/toy` stands for all of them.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.core.entities.encoding import encode
from peloton.runtime.core.recovery import Unrecoverable, restore
from peloton.runtime.ports import Frame
from peloton.runtime.vocabulary import Bits, Decision, Key, Send, Unavailable, key
from tests.toy import messages as w
from tests.toy.bench import Bench
from tests.toy.daemon import bulbs, panel
from tests.toy.kinds import KINDS

A, X = panel("a"), key("note", "x")


class Changed(Bench):
    """A bench where one kind is another."""

    def __init__(self, name: str, **fields: Any) -> None:
        super().__init__(kinds={**KINDS, name: replace(KINDS[name], **fields)})


def frame(bench: Bench, position: int, *entries: Entry) -> Frame:
    rows = [bench.codec.encode_entry(entry) for entry in entries]
    return Frame(position, bench.codec.encode_frame(bench.now, rows))


# ---- messages and facts of no member ----


def fits_nobody(state: Any, message: w.Switch, at: Any) -> Decision:
    return Decision(sends=(Send(bulbs("a"), w.Fit(0), Bits()),), reply=w.Done(0))


def test_a_send_to_no_member_is_not_sent() -> None:
    decide = {**KINDS["panel"].decide, w.Switch: fits_nobody}
    bench = Changed("panel", decide=decide, ended=lambda state, crowd: False)
    bench.send(A, w.Install(0))
    bench.send(A, w.Switch(True), reply_to=1)
    bench.rest()
    assert bench.answers() == [w.Done(0)]
    assert [*bench.shard.population.cells] == [A], "nothing exists under the key of the crowd"
    assert not any("no member" in line.because for line in bench.shard.turns.story._lines)


def test_a_message_to_a_crowd_that_names_no_member_is_refused() -> None:
    bench = Bench()
    bench.send(bulbs("a"), w.Fit(0), reply_to=1)
    bench.rest()
    (answer,) = bench.answers()
    assert isinstance(answer, Unavailable) and "bulb/a is a crowd" in answer.text
    assert not bench.frames and bulbs("a") not in bench.shard.population.cells
    (line,) = bench.shard.turns.story.of(bulbs("a"))
    assert "names no member" in line.because


def test_a_message_to_members_of_what_is_no_crowd_is_refused() -> None:
    bench = Bench()
    bench.send(X, w.Add(1), 0b11, reply_to=1)
    bench.rest()
    (answer,) = bench.answers()
    assert isinstance(answer, Unavailable) and "note/x is no crowd" in answer.text
    assert not bench.frames and not bench.shard.deferred.quarantined


# ---- what is said of a journal that cannot be read ----


def row(name: Key, number: int, *fields: Any) -> bytes:
    return encode((name, [(number, fields)], b"", (), "", "", ""))


def raw_frame(bench: Bench, position: int, body: bytes) -> Frame:
    return Frame(position, bench.codec.encode_frame(bench.now, [body]))


def folds_wrong(bench: Bench) -> Frame:
    """The toy note takes no 14."""
    return frame(bench, 1, Entry(X, (w.Added(1), w.Closed(), w.Added(14), w.Closed())))


def members_wrong(bench: Bench) -> Frame:
    return frame(bench, 1, Entry(X, (w.Added(1),), members=0b1))


DAMAGES = {
    "a fact that does not fold": (
        folds_wrong,
        "house-0, position 1, note/x, fact Added: ValueError: 14 does not fold",
    ),
    "a fact of a member that does not fold": (
        lambda bench: frame(bench, 1, Entry(bulbs("a"), (w.Lit(),), members=0b1)),
        "house-0, position 1, bulb/a, fact Lit: ",
    ),
    "a fact of members, of a kind without": (
        members_wrong,
        "house-0, position 1, note/x: ValueError: facts of members, but note is no crowd",
    ),
    "a record that does not fold": (
        lambda bench: raw_frame(bench, 1, row(X, 903, b"", 1)),
        "house-0, position 1, note/x, fact RedriveOrdered: KeyError: 'note/x'",
    ),
    "an unknown fact": (
        lambda bench: raw_frame(bench, 1, row(X, 499)),
        "house-0, position 1: UnknownFact: note/x: note has no fact of number 499",
    ),
    "a fact that cannot be read": (
        lambda bench: raw_frame(bench, 1, row(X, 1, "many")),
        "house-0, position 1: UnknownFact: note/x: fact 1 of note cannot be read: ",
    ),
    "a frame that cannot be read": (
        lambda bench: Frame(1, b"\xc1"),
        "house-0, position 1: DecodeError: ",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_journal_is_reported_with_shard_position_key_and_fact(damage: str) -> None:
    bench = Bench()
    made, text = DAMAGES[damage]
    with pytest.raises(Unrecoverable) as raised:
        restore(bench.fresh(), [], frames=[made(bench)], floor=0)
    assert str(raised.value).startswith(text)
    assert raised.value.__cause__ is not None, "the traceback goes on to where it was raised"


def test_a_damaged_piece_of_a_checkpoint_is_reported_with_its_number_and_key() -> None:
    bench = Bench()
    whole = (0, bench.codec.encode_cell(X, w.Note()))
    record = (1, row(X, 903, b"", 1))
    with pytest.raises(Unrecoverable) as raised:
        restore(bench.fresh(), [encode([whole, record])], frames=[], floor=7)
    where = "house-0, checkpoint at position 7, piece 1, note/x, fact RedriveOrdered"
    assert str(raised.value) == f"{where}: KeyError: 'note/x'"


def test_a_state_from_which_nothing_can_be_derived_is_reported_with_its_key() -> None:
    def deadline(state: Any) -> Any:
        raise ValueError("no deadline")

    bench = Changed("note", deadline=deadline)
    piece = (0, bench.codec.encode_cell(X, w.Note()))
    with pytest.raises(Unrecoverable) as raised:
        restore(bench.fresh(), [encode([piece])], frames=[], floor=7)
    text = "house-0, recovered up to position 7, note/x: ValueError: no deadline"
    assert str(raised.value) == text
