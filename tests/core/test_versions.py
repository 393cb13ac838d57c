"""A program reads what a later one wrote: fields it does not know are skipped, and nothing else.

That is what makes an upgrade daemon by daemon possible, and the way back. What cannot be skipped
without changing what is so (a fact, the format of a state) is refused instead, by its name.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from peloton.actors.host.facts import RunsForgotten
from peloton.actors.task.messages import Policy, TaskGoals, crowd_key
from peloton.actors.task.state import Task, TaskStates
from peloton.assembly.kinds import kinds
from peloton.runtime.core.entities.codec import CROWD, Codec, Entry, UnknownFact
from peloton.runtime.core.entities.crowd import Crowd
from peloton.runtime.core.entities.encoding import decode, encode
from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import Bits, Key
from peloton.settings.daemon import ALONE_SHARDS
from tests.actors.test_golden import sample, types_of

KINDS = kinds(ALONE_SHARDS)
CODEC = Codec(KINDS)
CROWD_KEY = crowd_key("6f1f0a1e-7d0b-4b3e-9f0e-0c8d1d9b7c11", 0)


def structs_of(wanted: Any, seen: dict[type, None]) -> None:
    """Every record that a type holds, itself included."""
    for part in typing.get_args(wanted):
        structs_of(part, seen)
    known = not isinstance(wanted, type) or wanted in seen
    if known or not issubclass(wanted, msgspec.Struct):
        return
    seen[wanted] = None
    hints = typing.get_type_hints(wanted)
    for name in wanted.__struct_fields__:
        structs_of(hints[name], seen)


def records() -> Iterator[type]:
    seen: dict[type, None] = {}
    for kind in KINDS.values():
        for _, cls in types_of(kind):
            structs_of(cls, seen)
    yield from seen


def of_a_later_version(value: Any) -> bytes:
    """The bytes of a record to which a field was added at the end."""
    return encode([*msgspec.msgpack.decode(encode(value)), ["a field", {"of": 1}, "tomorrow"]])


@pytest.mark.parametrize("cls", [*records()], ids=lambda cls: cls.__name__)
def test_a_field_that_was_added_at_the_end_is_skipped(cls: type) -> None:
    value = sample(cls)
    assert decode(of_a_later_version(value), cls) == value


def test_a_fact_with_a_field_more_is_read_from_its_frame() -> None:
    number = next(n for n, cls in KINDS["host"].facts.items() if cls is RunsForgotten)
    later = msgspec.Raw(of_a_later_version(RunsForgotten(("x",))))
    row = encode(("host/a", [(number, later)], b"", (), "", "", ""))
    assert CODEC.decode_entry(row) == Entry(Key("host/a"), (RunsForgotten(("x",)),))


def test_members_that_only_a_later_version_tells_apart_are_all_there() -> None:
    """Their states differ in a field unknown here: they are one class, and none is forgotten."""
    task = Task(TaskGoals.SUCCEEDED, TaskStates.RUNNING, Policy())
    plain = [*msgspec.msgpack.decode(encode(task))]
    classes = [([*plain, "one"], Bits.of(0, 2)), ([*plain, "two"], Bits.of(1))]
    same = {"since": 1.0, "spec": 0, "lot": "lot/x"}
    body = encode((CROWD, CROWD_KEY, 1, (classes, same, {}, Bits.of(0, 1, 2))))
    crowd = CODEC.decode_entity(body)[1]
    assert isinstance(crowd, Crowd)
    assert crowd.classes == {task: 0b111}
    assert crowd.present == 0b111


def test_columns_of_a_later_version_are_skipped() -> None:
    plain = msgspec.msgpack.decode(encode(Task(TaskGoals.SUCCEEDED, TaskStates.RUNNING, Policy())))
    same, each = {"since": 1.0, "spec": 0, "lot": "lot/x", "mint": "d"}, {"year": [None, 1999]}
    body = encode((CROWD, CROWD_KEY, 1, ([(plain, Bits.of(0, 1))], same, each, Bits.of(0, 1))))
    columns = CODEC.decode_entity(body)[1].columns
    assert columns.read("lot", 1) == "lot/x"
    assert columns.read("mint", 1) is columns.read("year", 1) is None


def test_a_fact_of_an_unknown_number_is_refused_by_its_name() -> None:
    row = encode(("host/a", [(499, msgspec.Raw(encode(())))], b"", (), "", "", ""))
    with pytest.raises(UnknownFact, match="host has no fact of number 499"):
        CODEC.decode_entry(row)


@pytest.mark.parametrize("kind", [*KINDS.values()], ids=lambda kind: kind.name)
def test_a_state_of_another_format_is_refused_by_its_name(kind: Kind) -> None:
    body = encode((0, f"{kind.name}/x", 2, (None, 0.0)))
    with pytest.raises(UnknownFact, match="state of format 2, this program knows 1"):
        CODEC.decode_entity(body)
