"""Packing: messages between daemons as bytes, and back.

Turns envelopes and answers into MessagePack by the numbers that kinds registered, and defines the
batches that carry them, each for one route. A value without a number here raises `Unpackable` at
the sender and becomes an `UnreadableMessage` at the receiver, so that whoever waits for an answer
gets one.

A daemon may be older than the sender. Fields that were added later are skipped by msgspec; a
message of an unknown number becomes an `UnreadableMessage`, with its reply address, and nothing
else of its batch is lost. A page of a listing is an exception: see `_Page`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from peloton.runtime.core.entities.encoding import UNREADABLE, decode, encode
from peloton.runtime.core.reading import inspection
from peloton.runtime.core.reading.listing import FieldCounts, Listed
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.kinds import Kind
from peloton.runtime.ports import ShardId
from peloton.runtime.vocabulary import (
    Absent,
    Bits,
    DeadLettered,
    Due,
    Key,
    Message,
    Pursue,
    Refused,
    Seen,
    ShardDamaged,
    Unavailable,
    kind_of,
)

Route = ShardId | str
"""Where a batch goes: a shard, or an ephemeral service by the prefix of its keys."""

WIRE_MESSAGES: dict[int, type] = {900: Due, 901: Pursue, 902: Seen}
WIRE_ANSWERS: dict[int, type] = {
    900: Refused,
    901: Unavailable,
    902: Absent,
    903: DeadLettered,
    905: ShardDamaged,  # 904 is None among the stored answers, see `codec.py`
}
"""Messages of the runtime to any kind, and its answers for any kind."""
_OWN_ANSWER_NUMBERS = {cls: number for number, cls in WIRE_ANSWERS.items()}

PLAIN, LIST, TUPLE, VALUE, LISTED = range(5)  # forms of an answer
_PLAIN = (type(None), bool, int, float, str, bytes)


class Unpackable(Exception):
    """A value without a number cannot be sent: its kind did not register its class."""


class UnreadableMessage(Message, frozen=True, gc=False, array_like=True):
    """Stands for a message that cannot be read here: it is dropped, and an ask gets an error."""

    number: int
    text: str


class _Wire(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An envelope on the wire; sets are bytes, because MessagePack has no wide integers."""

    to: Key
    number: int
    message: msgspec.Raw
    reply_to: int = 0
    members: bytes = b""
    sender: Key | None = None
    origin: bytes = b""
    values: tuple[str | int | float | bool | None, ...] = ()
    origins: tuple[tuple[bytes, Key], ...] = ()
    request: tuple[str, bytes] | None = None
    who: str = ""


class _Page(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A `Listed` on the wire: its items are answers of their kind."""

    kind: str
    items: list[msgspec.Raw]
    matched: int
    tallies: tuple[FieldCounts, ...]
    after: Key
    after_rank: float = 0.0


class MailBatch(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """Envelopes for one route, of one sender shard under one epoch (or of no shard at all)."""

    route: Route
    sender: ShardId | None
    epoch: int
    envelopes: list[msgspec.Raw]


class AskReply(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=2):
    """An answer to an ask, by the number the asking daemon gave it."""

    reply_to: int
    answer: msgspec.Raw


class WrongRoute(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=3):
    """The refusal of a batch whose route is not here in this view, with its asks."""

    route: Route
    view: int
    asks: list[int]


Batch = MailBatch | AskReply | WrongRoute
_BATCHES: msgspec.msgpack.Decoder[Batch] = msgspec.msgpack.Decoder(Batch)
_WIRES = msgspec.msgpack.Decoder(_Wire)
_PAGES = msgspec.msgpack.Decoder(_Page)
_ANSWERS = msgspec.msgpack.Decoder(tuple[int, int, msgspec.Raw])


def read_batch(data: bytes | msgspec.Raw) -> Batch:
    """Decode a batch. Raises one of `UNREADABLE`."""
    return _BATCHES.decode(data)


class Packing:
    """The numbers of all kinds and ephemeral services; `services` is key prefix → messages."""

    def __init__(
        self, kinds: Mapping[str, Kind], services: Mapping[str, Mapping[int, type]] | None = None
    ) -> None:
        self._numbers: dict[tuple[str, type], int] = {}
        self._classes: dict[tuple[str, int], type] = {}
        self._answer_numbers: dict[tuple[str, type], int] = {}
        self._answers: dict[tuple[str, int], type] = {}
        for prefix, messages in (services or {}).items():
            self._register(prefix, messages, answers={})
        self._register(
            inspection.SHARD_KIND,
            {**inspection.SHARD_MESSAGES, **inspection.QUERIES},
            answers=inspection.SHARD_ANSWERS,
        )
        for kind in kinds.values():
            both = sorted(kind.messages.keys() & kind.queries.keys())
            if both:
                raise ValueError(f"{kind.name} has messages and queries of the numbers {both}")
            self._register(kind.name, {**kind.messages, **kind.queries}, answers=kind.answers)

    def pack(self, envelope: Envelope, reply_to: int = 0) -> bytes:
        """Encode an envelope; `reply_to` is our number of the ask, 0 if it is none."""
        kind, message = kind_of(envelope.to), envelope.message
        number = self._numbers.get((kind, type(message)))
        if number is None:
            raise Unpackable(f"{kind} has no number for {type(message).__name__}")
        return encode(
            _Wire(
                to=envelope.to,
                number=number,
                message=msgspec.Raw(encode(message)),
                reply_to=reply_to,
                members=_pack_bits(envelope.members),
                sender=envelope.sender,
                origin=_pack_bits(envelope.origin),
                values=envelope.values,
                origins=tuple((_pack_bits(raw), key) for raw, key in envelope.origins),
                request=envelope.request,
                who=envelope.who,
            )
        )

    def unpack(self, data: bytes | msgspec.Raw) -> Envelope:
        """Decode an envelope, with the sender's number as `reply_to`. Raises one of `UNREADABLE`.

        An unknown or malformed message in a readable envelope becomes an `UnreadableMessage`.
        """
        wire = _WIRES.decode(data)
        return Envelope(
            to=wire.to,
            message=self._message(wire),
            members=_unpack_bits(wire.members),
            sender=wire.sender,
            origin=_unpack_bits(wire.origin),
            values=wire.values,
            origins=tuple((_unpack_bits(raw), key) for raw, key in wire.origins),
            reply_to=wire.reply_to or None,
            request=wire.request,
            who=wire.who,
        )

    def pack_answer(self, asked: Key, answer: Any) -> bytes:
        """Encode an answer of the entity `asked`, or a list or tuple of answers."""
        return encode(self._form(kind_of(asked), answer))

    def unpack_answer(self, asked: Key, data: bytes | msgspec.Raw) -> Any:
        """Decode an answer; return `Unavailable` if it cannot be read here."""
        try:
            return self._read_answer(kind_of(asked), data)
        except (*UNREADABLE, LookupError) as error:
            return Unavailable(f"the answer cannot be read here: {error}")

    def _register(
        self, prefix: str, messages: Mapping[int, type], *, answers: Mapping[int, type]
    ) -> None:
        for number, cls in {**messages, **WIRE_MESSAGES}.items():
            self._numbers[prefix, cls] = number
            self._classes[prefix, number] = cls
        for number, cls in answers.items():
            self._answer_numbers[prefix, cls] = number
            self._answers[prefix, number] = cls

    def _message(self, wire: _Wire) -> Message:
        kind = kind_of(wire.to)
        cls = self._classes.get((kind, wire.number))
        if cls is None:
            return UnreadableMessage(
                wire.number, f"{kind} knows no message of number {wire.number} here"
            )
        try:
            message: Message = decode(wire.message, cls)
        except UNREADABLE as error:
            return UnreadableMessage(
                wire.number, f"a {cls.__name__} that cannot be read here: {error}"
            )
        return message

    def _form(self, kind: str, answer: Any) -> tuple[int, int, Any]:
        cls = type(answer)
        if cls is Listed:
            items = [self._form(answer.kind, item) for item in answer.items]
            return LISTED, 0, (answer.kind, items, *answer[2:])
        if cls is list or cls is tuple:
            form = LIST if cls is list else TUPLE
            return form, 0, [self._form(kind, item) for item in answer]
        number = _OWN_ANSWER_NUMBERS.get(cls) or self._answer_numbers.get((kind, cls))
        if number is not None:
            return VALUE, number, answer
        if cls in _PLAIN:
            return PLAIN, 0, answer
        raise Unpackable(f"{kind} has no number for the answer {cls.__name__}")

    def _read_answer(self, kind: str, data: bytes | msgspec.Raw) -> Any:
        form, number, raw = _ANSWERS.decode(data)
        if form == PLAIN:
            return msgspec.msgpack.decode(raw)
        if form == VALUE:
            return decode(raw, WIRE_ANSWERS.get(number) or self._answers[kind, number])
        if form == LISTED:
            page = _PAGES.decode(raw)
            rows = tuple(self._read_answer(page.kind, row) for row in page.items)
            return Listed(page.kind, rows, *msgspec.structs.astuple(page)[2:])
        items = msgspec.msgpack.decode(raw, type=list[msgspec.Raw])
        found = [self._read_answer(kind, item) for item in items]
        return found if form == LIST else tuple(found)


def _pack_bits(raw: int) -> bytes:
    return Bits(raw).pack() if raw else b""


def _unpack_bits(data: bytes) -> int:
    return int.from_bytes(data, "little") if data else 0
