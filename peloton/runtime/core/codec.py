"""Stored values as bytes: entries of a frame, states of a checkpoint, dead letters.

Turns values into MessagePack and back, by the numbers that kinds registered for their messages
and facts. The bytes of a type must not change except by fields added at the end; a test keeps
golden bytes of every type. An unknown fact raises, and the shard stops.

A type that changed in more than that has a schema number, written beside the value if above 1, and
is read through the kind's upcasters: facts, states, remembered answers, dead letters. Below the
feature level of a schema it is written in an older one, through the kind's downcasters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from peloton.runtime.core.columns import Columns
from peloton.runtime.core.crowd import Crowd
from peloton.runtime.core.downcasting import (
    AboveLevel,
    check_schemas,
    downcast,
    downcast_columns,
    known_level,
    written_schema,
)
from peloton.runtime.core.encoding import convert, decode, decoder_of, encode, untyped
from peloton.runtime.core.records import RECORDS
from peloton.runtime.core.upcasting import UnknownFact, upcast, upcast_columns
from peloton.runtime.vocabulary import (
    Bits,
    Due,
    Fact,
    Key,
    Kind,
    Message,
    Pursue,
    Refused,
    kind_of,
)

__all__ = [
    "AboveLevel", "Codec", "Entry", "RawEntry", "UnknownFact", "convert", "decode", "encode",
    "known_level",
]  # fmt: skip

FRAME_FORMAT = 1
CELL, CROWD = 0, 1

RUNTIME_MESSAGES: dict[int, type] = {900: Due, 901: Pursue}
"""Messages of the runtime to any kind: they can fail and become dead letters like all others."""
STORED_ANSWERS: dict[int, type] = {900: Refused, 904: type(None)}
_OWN_NUMBERS = {cls: number for number, cls in RUNTIME_MESSAGES.items()}


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The facts of one turn: of a cell, or of members of a crowd."""

    key: Key
    facts: tuple[Fact, ...]
    members: int = 0
    values: tuple[Any, ...] = ()
    cause: str = ""
    because: str = ""
    who: str = ""


class Numbered(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A fact or an answer as it is stored: by the number of its class, and its schema."""

    number: int
    raw: msgspec.Raw
    schema: int = 1


_ENTITY = msgspec.msgpack.Decoder(tuple[int, str, int, msgspec.Raw])
_NUMBERED = msgspec.msgpack.Decoder(Numbered)
RawEntry = tuple[str, list[Numbered], bytes, list[Any], str, str, str]
"""Key, facts, members, values, cause, because, who."""
_RawFrame = tuple[int, float, list[RawEntry]]


class Codec:
    """The encoding of all registered kinds."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self._kinds = kinds
        self._numbers: dict[type, int] = {cls: number for number, cls in RECORDS.items()}
        self._decoders: dict[tuple[str, int], msgspec.msgpack.Decoder[Any]] = {}
        self._message_numbers: dict[tuple[str, type], int] = {}
        self._frames = msgspec.msgpack.Decoder(_RawFrame)
        self._rows = msgspec.msgpack.Decoder(RawEntry)
        self._schemas: dict[type, int] = {}  # of classes whose schema is above 1
        self._changed: dict[type, Kind] = {}  # the kinds of these classes
        self._since: dict[type, int] = {}
        self._plain: dict[type, int] = {}  # numbers of facts written as they are
        for number, cls in RECORDS.items():
            self._decoders["shard", number] = decoder_of(cls)
        for kind in kinds.values():
            check_schemas(kind)
            for number, cls in kind.facts.items():
                self._numbers[cls] = number
                self._decoders[kind.name, number] = decoder_of(cls)
            for number, cls in RECORDS.items():
                self._decoders[kind.name, number] = decoder_of(cls)
            for number, cls in kind.messages.items():
                self._message_numbers[kind.name, cls] = number
            changed = {cls: form for cls, form in kind.schemas.items() if form > 1}
            self._schemas.update(changed)
            self._changed.update(dict.fromkeys(changed, kind))
            self._since.update(kind.since)
        self.known_level = known_level(kinds)
        self.level = self.known_level

    @property
    def level(self) -> int:
        """The feature level in force: a daemon of a cluster sets this to the cluster's."""
        return self._level

    @level.setter
    def level(self, level: int) -> None:
        self._level = level
        self._plain = {
            cls: number
            for cls, number in self._numbers.items()
            if cls not in self._schemas and self._since.get(cls, 0) <= level
        }

    def encode_entry(self, entry: Entry) -> bytes:
        """One row of a frame."""
        key, facts, members, values, cause, because, who = msgspec.structs.astuple(entry)
        plain, rows = self._plain, []
        for fact in facts:
            number = plain.get(type(fact))
            rows.append(self._numbered(fact) if number is None else (number, fact))
        packed = members.to_bytes((members.bit_length() + 7) // 8, "little") if members else b""
        return encode((key, rows, packed, values, cause, because, who))

    def _numbered(self, fact: Fact) -> tuple[Any, ...]:
        self._allowed(type(fact))
        return _numbered(self._numbers[type(fact)], self._written(fact))

    def _written(self, value: Any) -> tuple[Any, int]:
        """What is encoded for a value, and in which schema: below its level in an older one."""
        cls = type(value)
        today, schema = self._schemas.get(cls, 1), self.schema_of(cls)
        if schema == today:
            return value, today
        kind = self._changed[cls]
        raw = downcast(untyped(value), kind.downcasters[cls], forms=(today, schema))
        if self._read(kind, cls, stored=(encode(raw), schema)) != value:
            raise self._cannot_hold(f"{cls.__name__} {value}", schema)
        return raw, schema

    def _cannot_hold(self, what: str, schema: int) -> AboveLevel:
        text = f"schema {schema} cannot hold it, and at the cluster's feature level {self.level}"
        return AboveLevel(f"{what}: {text} no later one may be written")

    def _allowed(self, cls: type) -> None:
        since = self._since.get(cls, 0)
        if since > self.level:
            text = f"may be written from feature level {since} on, the cluster's is {self.level}"
            raise AboveLevel(f"{cls.__name__} {text}")

    def encode_frame(self, now: float, rows: list[bytes]) -> bytes:
        """The body of a frame, of rows that `encode_entry` made."""
        return encode((FRAME_FORMAT, now, [msgspec.Raw(row) for row in rows]))

    def decode_frame(self, body: bytes) -> tuple[float, list[Entry]]:
        """When a frame was made, and its entries."""
        _, now, rows = self._frames.decode(body)
        return now, [self.entry(row) for row in rows]

    def decode_entry(self, row: bytes) -> Entry:
        """The inverse of `encode_entry`."""
        return self.entry(self._rows.decode(row))

    def raw_frame(self, body: bytes) -> tuple[float, list[RawEntry]]:
        """As `decode_frame`, with facts undecoded: for tools, which may not know all of them."""
        _, now, rows = self._frames.decode(body)
        return now, rows

    def entry(self, row: RawEntry) -> Entry:
        """The inverse of `encode_entry`, of what `raw_frame` found."""
        name, facts, members, values, cause, because, who = row
        kind = kind_of(Key(name))
        return Entry(
            key=Key(name),
            facts=tuple([self.fact(name, each) for each in facts]),
            members=int.from_bytes(members, "little"),
            values=self._typed_values(kind, facts, values=values) if values else (),
            cause=cause,
            because=because,
            who=who,
        )

    def encode_message(self, to: Key, message: Message) -> tuple[int, bytes]:
        """Number and bytes of a message to `to`; number -1 when its class was never registered.

        The bytes are in the schema that `schema_of` names.
        """
        number = _OWN_NUMBERS.get(type(message))
        if number is None:
            number = self._message_numbers.get((kind_of(to), type(message)), -1)
        return number, encode(self._written(message)[0])

    def schema_of(self, cls: type) -> int:
        """The schema in which values of a fact, message or answer class are written."""
        today = self._schemas.get(cls, 1)
        if today == 1 or self.level == self.known_level:
            return today
        levels = self._changed[cls].schemas_since[cls]
        return written_schema(today, levels, level=self.level)

    def decode_message(self, to: Key, number: int, *, body: bytes, schema: int = 1) -> Message:
        """The inverse of `encode_message`; `schema` is that of the class when it was encoded."""
        kind = self._kinds[kind_of(to)]
        message: Message = self._read(
            kind, {**kind.messages, **RUNTIME_MESSAGES}[number], stored=(body, schema)
        )
        return message

    def encode_answer(self, key: Key, answer: Any) -> bytes:
        """Bytes of an answer to a command, by the number its kind registered for the class."""
        for number, cls in {**STORED_ANSWERS, **self._kinds[kind_of(key)].answers}.items():
            if cls is type(answer):
                self._allowed(cls)
                return encode(_numbered(number, self._written(answer)))
        raise UnknownFact(f"{key}: {type(answer).__name__} is not a registered answer")

    def decode_answer(self, key: Key, body: bytes) -> Any:
        """The inverse of `encode_answer`."""
        kind, stored = self._kinds[kind_of(key)], _NUMBERED.decode(body)
        cls = {**STORED_ANSWERS, **kind.answers}[stored.number]
        return self._read(kind, cls, stored=(stored.raw, stored.schema))

    def encode_cell(self, key: Key, state: Any, *, since: float = 0.0) -> bytes:
        """Bytes of one cell's state, its schema number, and when its deadline began."""
        kind = self._kinds[kind_of(key)]
        schema = self._state_schema(kind)
        if schema == kind.schema:
            return encode((CELL, key, schema, (state, since)))
        body = encode((CELL, key, schema, (self._older(kind, state, schema=schema), since)))
        if self.decode_entity(body)[1] != (state, since):
            raise self._cannot_hold(f"{key}: {state}", schema)
        return body

    def _state_schema(self, kind: Kind) -> int:
        if kind.schema == 1 or self.level == self.known_level:
            return kind.schema
        return written_schema(kind.schema, kind.schemas_since[kind.state], level=self.level)

    def _older(self, kind: Kind, state: Any, *, schema: int) -> Any:
        steps = kind.downcasters[kind.state]
        return downcast(untyped(state), steps, forms=(kind.schema, schema))

    def encode_crowd(self, crowd: Crowd) -> bytes:
        """Bytes of a crowd: classes by their lowest member, and columns."""
        classes = sorted(crowd.classes.items(), key=lambda item: item[1] & -item[1])
        rows = [(state, Bits(raw)) for state, raw in classes]
        same, each, present = crowd.columns.dump()
        kind, schema = crowd.kind, self._state_schema(crowd.kind)
        if schema == kind.schema:
            return encode((CROWD, crowd.key, schema, (rows, same, each, Bits(present))))
        rows = [(self._older(kind, state, schema=schema), bits) for state, bits in rows]
        same, each = downcast_columns(kind, untyped(same), each=untyped(each), schema=schema)
        body = encode((CROWD, crowd.key, schema, (rows, same, each, Bits(present))))
        again: Crowd = self.decode_entity(body)[1]
        if again.classes != crowd.classes or again.columns != crowd.columns:
            raise self._cannot_hold(f"{crowd.key}: states {list(crowd.classes)}", schema)
        return body

    def decode_entity(self, body: bytes) -> tuple[Key, Any]:
        """Key and (state, since) of a cell, or key and `Crowd`: what was encoded above."""
        form, name, schema, raw = _ENTITY.decode(body)
        key = Key(name)
        kind = self._kinds[kind_of(key)]
        current = schema == kind.schema
        if form == CELL:
            wanted = tuple[kind.state, float]  # type: ignore[name-defined]
            if current:
                return key, decode(raw, wanted)
            state, since = msgspec.msgpack.decode(raw, type=tuple[Any, float])
            return key, convert((self._upcast_state(kind, state, schema=schema), since), wanted)
        return key, self._crowd(kind, key, stored=(raw, schema))

    def _upcast_state(self, kind: Kind, raw: Any, *, schema: int) -> Any:
        steps = kind.upcasters.get(kind.state, {})
        return upcast(raw, steps, what=f"{kind.name}: state", forms=(schema, kind.schema))

    def _crowd(self, kind: Kind, key: Key, *, stored: tuple[msgspec.Raw, int]) -> Crowd:
        raw, schema = stored
        assert kind.crowd is not None
        old = schema != kind.schema
        state_type: Any = Any if old else kind.state
        wanted: Any = tuple[
            list[tuple[state_type, Bits]],
            dict[str, Any],
            dict[str, list[Any]],
            Bits,
        ]
        classes, same, each, present = decode(raw, wanted)
        if old:
            classes = [
                (convert(self._upcast_state(kind, state, schema=schema), kind.state), bits)
                for state, bits in classes
            ]
            same, each = upcast_columns(kind, same, each=each, schema=schema)
        # None where a column was never written.
        columns: dict[str, Any] = {"since": float, **kind.crowd.columns}
        one = {name: wanted | None for name, wanted in columns.items()}
        many = {name: _list_of(wanted) for name, wanted in one.items()}
        crowd = Crowd(kind, key)
        for state, bits in classes:
            # Classes that a later version distinguishes by a field unknown here become one.
            crowd.classes[state] = crowd.classes.get(state, 0) | bits.raw
        crowd.columns = Columns.load(
            # As fields at the end, columns of a later version are skipped.
            {name: convert(value, one[name]) for name, value in same.items() if name in one},
            {name: convert(values, many[name]) for name, values in each.items() if name in many},
            present=present.raw,
        )
        return crowd

    def fact(self, name: str, stored: Numbered) -> Fact:
        """A fact of an entry of the key `name`. Raises UnknownFact, which names the key."""
        kind = kind_of(Key(name))
        decoder = self._decoders.get((kind, stored.number))
        if decoder is None:
            raise UnknownFact(f"{name}: {kind} has no fact of number {stored.number}")
        cls: type = decoder.type
        try:
            fact: Fact = (
                decoder.decode(stored.raw)
                if stored.schema == self._schemas.get(cls, 1)
                else self._read(self._kinds[kind], cls, stored=(stored.raw, stored.schema))
            )
        except msgspec.DecodeError as error:
            number = stored.number
            raise UnknownFact(f"{name}: fact {number} of {kind} cannot be read: {error}") from error
        return fact

    def _read(self, kind: Kind, cls: type, *, stored: tuple[bytes | msgspec.Raw, int]) -> Any:
        """A stored value of the class, in whichever schema it was written."""
        raw, schema = stored
        today = self._schemas.get(cls, 1)
        if schema == today:
            return decode(raw, cls)
        what, steps = f"{kind.name}: {cls.__name__}", kind.upcasters.get(cls, {})
        value = msgspec.msgpack.decode(raw)
        return convert(upcast(value, steps, what=what, forms=(schema, today)), cls)

    def _typed_values(
        self, kind: str, facts: list[Numbered], *, values: list[Any]
    ) -> tuple[Any, ...]:
        known = self._kinds[kind].facts
        classes = (known.get(each.number) for each in facts)
        return self.typed_values(kind, classes, values=values)

    def typed_values(
        self, kind: str, facts: Iterable[type | None], *, values: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Values per member, converted to the type of the column that these facts write."""
        crowd = self._kinds[kind].crowd
        assert crowd is not None
        for cls in facts:
            column = crowd.per_member.get(cls) if cls is not None else None
            if column is not None:
                wanted = crowd.columns[column]
                return tuple(convert(values, list[wanted]))  # type: ignore[valid-type]
        return tuple(values)


def _numbered(number: int, written: tuple[Any, int]) -> tuple[Any, ...]:
    """A fact or an answer as it is encoded; see `Numbered`."""
    value, schema = written
    return (number, value, schema) if schema > 1 else (number, value)


def _list_of(wanted: Any) -> Any:
    return list[wanted]
