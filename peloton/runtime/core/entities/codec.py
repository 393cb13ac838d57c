"""Stored values as bytes: entries of a frame, states of a checkpoint, dead letters.

Turns values into MessagePack and back, by the numbers that kinds registered for their messages
and facts. The bytes of a type must not change except by fields added at the end; a test keeps
golden bytes of every type; what changes in more than that is a new type with a new number. An
unknown fact raises, and the shard stops. A class of a later feature level than the cluster's is not
written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from peloton.runtime.core.entities.columns import Columns
from peloton.runtime.core.entities.crowd import Crowd
from peloton.runtime.core.entities.encoding import convert, decode, decoder_of, encode
from peloton.runtime.core.entities.records import RECORDS
from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import Bits, Due, Fact, Key, Message, Pursue, Refused, kind_of

FRAME_FORMAT, STATE_FORMAT = 1, 1
CELL, CROWD = 0, 1

RUNTIME_MESSAGES: dict[int, type] = {900: Due, 901: Pursue}
"""Messages of the runtime to any kind: they can fail and become dead letters like all others."""
STORED_ANSWERS: dict[int, type] = {900: Refused, 904: type(None)}
_OWN_NUMBERS = {cls: number for number, cls in RUNTIME_MESSAGES.items()}


class UnknownFact(Exception):
    """Stored bytes that this program cannot read: an unknown number, or an unknown format."""


class AboveLevel(Exception):
    """A class of a later feature level than the cluster's, which must not be written."""


def known_level(kinds: Mapping[str, Kind]) -> int:
    """Return the highest feature level that these kinds know."""
    classes = (level for kind in kinds.values() for level in kind.since.values())
    return max([*classes, *(kind.level for kind in kinds.values())], default=0)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The facts of one turn, of a cell or of members of a crowd."""

    key: Key
    facts: tuple[Fact, ...]
    members: int = 0
    values: tuple[Any, ...] = ()
    cause: str = ""
    because: str = ""
    who: str = ""


class Numbered(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A fact or an answer as it is stored: by the number of its class."""

    number: int
    raw: msgspec.Raw


_ENTITY = msgspec.msgpack.Decoder(tuple[int, str, int, msgspec.Raw])
_NUMBERED = msgspec.msgpack.Decoder(Numbered)
RawEntry = tuple[str, list[Numbered], bytes, list[Any], str, str, str]
"""Key, facts, members, values, cause, because, who."""
_RawFrame = tuple[int, float, list[RawEntry]]


class Codec:
    """Encodes and decodes the messages, facts, states and answers of all registered kinds."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self._kinds = kinds
        self._numbers: dict[type, int] = {cls: number for number, cls in RECORDS.items()}
        self._decoders: dict[tuple[str, int], msgspec.msgpack.Decoder[Any]] = {}
        self._message_numbers: dict[tuple[str, type], int] = {}
        self._frames = msgspec.msgpack.Decoder(_RawFrame)
        self._rows = msgspec.msgpack.Decoder(RawEntry)
        self._since: dict[type, int] = {}
        self._plain: dict[type, int] = {}  # numbers of facts written as they are
        for number, cls in RECORDS.items():
            self._decoders["shard", number] = decoder_of(cls)
        for kind in kinds.values():
            for number, cls in kind.facts.items():
                self._numbers[cls] = number
                self._decoders[kind.name, number] = decoder_of(cls)
            for number, cls in RECORDS.items():
                self._decoders[kind.name, number] = decoder_of(cls)
            for number, cls in kind.messages.items():
                self._message_numbers[kind.name, cls] = number
            self._since.update(kind.since)
        self.known_level = known_level(kinds)
        self.level = self.known_level

    @property
    def level(self) -> int:
        """The feature level in force; a daemon sets it to the cluster's."""
        return self._level

    @level.setter
    def level(self, level: int) -> None:
        self._level = level
        self._plain = {
            cls: number for cls, number in self._numbers.items() if self._since.get(cls, 0) <= level
        }

    def encode_entry(self, entry: Entry) -> bytes:
        """Encode one entry, which is a row of a frame."""
        key, facts, members, values, cause, because, who = msgspec.structs.astuple(entry)
        plain, rows = self._plain, []
        for fact in facts:
            number = plain.get(type(fact))
            if number is None:
                self._allowed(type(fact))
                number = self._numbers[type(fact)]
            rows.append((number, fact))
        packed = members.to_bytes((members.bit_length() + 7) // 8, "little") if members else b""
        return encode((key, rows, packed, values, cause, because, who))

    def _allowed(self, cls: type) -> None:
        since = self._since.get(cls, 0)
        if since > self.level:
            text = f"may be written from feature level {since} on, the cluster's is {self.level}"
            raise AboveLevel(f"{cls.__name__} {text}")

    def encode_frame(self, now: float, rows: list[bytes]) -> bytes:
        """Encode the body of a frame, of rows that `encode_entry` made."""
        return encode((FRAME_FORMAT, now, [msgspec.Raw(row) for row in rows]))

    def decode_frame(self, body: bytes) -> tuple[float, list[Entry]]:
        """Return when a frame was made, and its entries."""
        _, now, rows = self._frames.decode(body)
        return now, [self.entry(row) for row in rows]

    def decode_entry(self, row: bytes) -> Entry:
        """The inverse of `encode_entry`."""
        return self.entry(self._rows.decode(row))

    def raw_frame(self, body: bytes) -> tuple[float, list[RawEntry]]:
        """Decode a frame but not its facts: for tools, which may not know all of them."""
        _, now, rows = self._frames.decode(body)
        return now, rows

    def entry(self, row: RawEntry) -> Entry:
        """Decode an entry that `raw_frame` found."""
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
        """Return number and bytes of a message to `to`; number -1 if its class is not
        registered."""
        number = _OWN_NUMBERS.get(type(message))
        if number is None:
            number = self._message_numbers.get((kind_of(to), type(message)), -1)
        return number, encode(message)

    def decode_message(self, to: Key, number: int, *, body: bytes) -> Message:
        """The inverse of `encode_message`."""
        message: Message = decode(body, self.messages_of(to)[number])
        return message

    def messages_of(self, to: Key) -> Mapping[int, type]:
        """Return the classes of messages that `to` may be sent, by number."""
        return {**self._kinds[kind_of(to)].messages, **RUNTIME_MESSAGES}

    def encode_answer(self, key: Key, answer: Any) -> bytes:
        """Encode an answer to a command, with the number that its kind registered for the class."""
        for number, cls in {**STORED_ANSWERS, **self._kinds[kind_of(key)].answers}.items():
            if cls is type(answer):
                self._allowed(cls)
                return encode((number, answer))
        raise UnknownFact(f"{key}: {type(answer).__name__} is not a registered answer")

    def decode_answer(self, key: Key, body: bytes) -> Any:
        """The inverse of `encode_answer`."""
        kind, stored = self._kinds[kind_of(key)], _NUMBERED.decode(body)
        cls = {**STORED_ANSWERS, **kind.answers}[stored.number]
        return decode(stored.raw, cls)

    def encode_cell(self, key: Key, state: Any, *, since: float = 0.0) -> bytes:
        """Encode a cell's state, and when its deadline began."""
        return encode((CELL, key, STATE_FORMAT, (state, since)))

    def encode_crowd(self, crowd: Crowd) -> bytes:
        """Encode a crowd: classes by their lowest member, and columns."""
        classes = sorted(crowd.classes.items(), key=lambda item: item[1] & -item[1])
        rows = [(state, Bits(raw)) for state, raw in classes]
        same, each, present = crowd.columns.dump()
        return encode((CROWD, crowd.key, STATE_FORMAT, (rows, same, each, Bits(present))))

    def decode_entity(self, body: bytes) -> tuple[Key, Any]:
        """Return key and (state, since) of a cell, or key and `Crowd`."""
        form, name, written, raw = _ENTITY.decode(body)
        key = Key(name)
        kind = self._kinds[kind_of(key)]
        if written != STATE_FORMAT:
            text = f"state of format {written}, this program knows {STATE_FORMAT}"
            raise UnknownFact(f"{kind.name}: {text}")
        if form == CELL:
            wanted = tuple[kind.state, float]  # type: ignore[name-defined]
            return key, decode(raw, wanted)
        return key, self._crowd(kind, key, raw=raw)

    def _crowd(self, kind: Kind, key: Key, *, raw: msgspec.Raw) -> Crowd:
        assert kind.crowd is not None
        wanted: Any = tuple[
            list[tuple[kind.state, Bits]],  # type: ignore[name-defined]
            dict[str, Any],
            dict[str, list[Any]],
            Bits,
        ]
        classes, same, each, present = decode(raw, wanted)
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
        """Decode a fact of an entry of the key `name`. Raises UnknownFact, which names the key."""
        kind = kind_of(Key(name))
        decoder = self._decoders.get((kind, stored.number))
        if decoder is None:
            raise UnknownFact(f"{name}: {kind} has no fact of number {stored.number}")
        try:
            fact: Fact = decoder.decode(stored.raw)
        except msgspec.DecodeError as error:
            number = stored.number
            raise UnknownFact(f"{name}: fact {number} of {kind} cannot be read: {error}") from error
        return fact

    def _typed_values(
        self, kind: str, facts: list[Numbered], *, values: list[Any]
    ) -> tuple[Any, ...]:
        known = self._kinds[kind].facts
        classes = (known.get(each.number) for each in facts)
        return self.typed_values(kind, classes, values=values)

    def typed_values(
        self, kind: str, facts: Iterable[type | None], *, values: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Convert values per member to the type of the column that these facts write."""
        crowd = self._kinds[kind].crowd
        assert crowd is not None
        for cls in facts:
            column = crowd.per_member.get(cls) if cls is not None else None
            if column is not None:
                wanted = crowd.columns[column]
                return tuple(convert(values, list[wanted]))  # type: ignore[valid-type]
        return tuple(values)


def _list_of(wanted: Any) -> Any:
    return list[wanted]
