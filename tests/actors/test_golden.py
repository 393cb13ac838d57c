"""Bytes of every message, fact, answer and state, as they were first written down.

Journals and peers of an older version hold these bytes, so they may never change but by fields
added at the end with defaults. A new type, or a field added at the end, is recorded with

    PELOTON_RECORD_GOLDEN=1 script/test tests/actors/test_golden.py

Never use it to silence a difference in a type that was recorded before.
"""

from __future__ import annotations

import enum
import os
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import immutables
import msgspec
import pytest

from peloton.assembly.kinds import SERVICE_MESSAGES, kinds
from peloton.runtime.core.entities.encoding import decode, encode
from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import Bits
from peloton.settings.daemon import ALONE_SHARDS

RECORD = "PELOTON_RECORD_GOLDEN=1 script/test tests/actors/test_golden.py"
FOLDER = Path(__file__).parent / "golden"
KINDS = kinds(ALONE_SHARDS)
PLAIN: dict[Any, Any] = {
    int: 7, float: 1.5, str: "x", bytes: b"b", bool: True, Bits: Bits.of(0, 9)
}  # fmt: skip


def sample(wanted: Any, inside: tuple[type, ...] = ()) -> Any:
    """A value of a type with something in every field; the same one every time."""
    wanted = getattr(wanted, "__supertype__", wanted)
    if wanted in PLAIN:
        return PLAIN[wanted]
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        part = next(part for part in parts if part is not type(None))
        return None if part in inside else sample(part, inside)
    if origin is tuple:
        if parts[-1] is not Ellipsis:
            return tuple(sample(part, inside) for part in parts)
        return () if parts[0] in inside else (sample(parts[0], inside),)
    if origin is immutables.Map:
        return immutables.Map({sample(parts[0], inside): sample(parts[1], inside)})
    if issubclass(wanted, enum.Enum):
        return [*wanted][-1]
    hints = typing.get_type_hints(wanted)
    fields = {name: sample(hints[name], (*inside, wanted)) for name in wanted.__struct_fields__}
    return wanted(**fields)


def types_of(kind: Kind) -> Iterator[tuple[str, type]]:
    """Every type of a kind that is written down anywhere, by its name in bytes."""
    tables = {
        "message": kind.messages,
        "query": kind.queries,
        "fact": kind.facts,
        "answer": kind.answers,
    }
    for form, numbered in tables.items():
        for number, cls in sorted(numbered.items()):
            yield f"{form} {number}", cls
    yield "state 1", kind.state


EVERY = {name: [*types_of(kind)] for name, kind in KINDS.items()} | {
    prefix: [(f"message {number}", cls) for number, cls in sorted(messages.items())]
    for prefix, messages in SERVICE_MESSAGES.items()
}
"""Of each kind, and of what ephemeral services receive."""


def recorded(kind: str) -> dict[str, bytes]:
    path = FOLDER / f"{kind}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    rows = (line.split(" ") for line in lines)
    return {f"{form} {number} {name}": bytes.fromhex(data) for form, number, name, data in rows}


def record(kind: str) -> None:
    rows = [f"{name} {cls.__name__} {encode(sample(cls)).hex()}" for name, cls in EVERY[kind]]
    (FOLDER / f"{kind}.txt").write_text("\n".join(rows) + "\n")


@pytest.fixture(scope="module", autouse=True)
def recording() -> None:
    if os.environ.get("PELOTON_RECORD_GOLDEN"):
        FOLDER.mkdir(exist_ok=True)
        for kind in EVERY:
            record(kind)


EVERY_TYPE = [
    pytest.param(kind, name, cls, id=f"{kind}-{cls.__name__}")
    for kind, types_ in EVERY.items()
    for name, cls in types_
]


@pytest.mark.parametrize("kind", EVERY)
def test_nothing_that_was_recorded_is_gone(kind: str) -> None:
    known = {f"{name} {cls.__name__}" for name, cls in EVERY[kind]}
    gone = sorted(recorded(kind).keys() - known)
    if gone:
        text = "numbers and names are for good: have it back, and decide what still comes of it"
        pytest.fail(f"golden/{kind}.txt has {', '.join(gone)}: {text}", pytrace=False)


@pytest.mark.parametrize(("kind", "name", "cls"), EVERY_TYPE)
def test_the_bytes_are_as_recorded_and_understood(kind: str, name: str, cls: type) -> None:
    value, known = sample(cls), recorded(kind).get(f"{name} {cls.__name__}")
    where = f"{kind}: {name}, {cls.__name__},"
    if known is None:
        pytest.fail(f"{where} is new: record it with {RECORD}", pytrace=False)
    if encode(value) != known:
        text = f"has other bytes: if only fields with defaults came at its end, {RECORD}"
        pytest.fail(f"{where} {text}; else make a new class with a new number", pytrace=False)
    assert decode(known, cls) == value


@pytest.mark.parametrize(("kind", "name", "cls"), EVERY_TYPE)
def test_what_lacks_the_later_fields_is_understood(kind: str, name: str, cls: type) -> None:
    """As an older version wrote it: without the fields that have defaults."""
    values = [getattr(sample(cls), field) for field in cls.__struct_fields__]  # type: ignore[attr-defined]
    defaults = len(cls.__struct_defaults__)  # type: ignore[attr-defined]
    short = values[: len(values) - defaults]
    found = decode(encode(short), cls)
    assert msgspec.structs.astuple(found)[: len(short)] == tuple(short)
