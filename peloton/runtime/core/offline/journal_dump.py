"""Dumps a journal as JSON values, for people and for tools without our types.

Turns frames and recovered states into lines with the names of fields. What this program does not
know, such as a fact of a later version, is shown as it is stored. `journal_check` checks journals.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator
from typing import Any

import immutables
import msgpack
import msgspec

from peloton.runtime.core.entities.codec import Codec, RawEntry
from peloton.runtime.core.entities.encoding import encode
from peloton.runtime.core.offline.journal_reading import Contents, StoredFrame
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.turning.supervision import Failure, attempt
from peloton.runtime.ports import ShardId
from peloton.runtime.vocabulary import Bits, Key, kind_of, members_of

Line = dict[str, Any]


def name_of(shard: ShardId) -> str:
    """Return the name of a shard for people, such as `jobmgr-3`."""
    return f"{shard.group}-{shard.number}"


# ---- frames ----


def lines(contents: Contents, codec: Codec, *, start: int = 0) -> Iterator[Line]:
    """Yield one line for each entry of each frame from position `start` on."""
    for frame in contents.frames:
        if frame.position < start:
            continue
        head = {
            "shard": name_of(contents.shard),
            "position": frame.position,
            "epoch": frame.epoch,
        }
        for line in _entries(frame, codec):
            yield {**head, **line}


def _entries(frame: StoredFrame, codec: Codec) -> Iterator[Line]:
    raw = attempt(codec.raw_frame, frame.body)
    if isinstance(raw, Failure):
        yield {"unreadable": raw.error, "raw": untyped(frame.body)}
        return
    now, rows = raw
    for row in rows:
        key, _, members, values, cause, because, who = row
        line: Line = {"time": now, "key": key}
        if members:
            line["members"] = ranges(int.from_bytes(members, "little"))
        line |= {"cause": cause, "because": because, "who": who}
        if values:
            line["values"] = plain(values)
        yield {**line, "facts": _facts(codec, row)}


def _facts(codec: Codec, row: RawEntry) -> list[Line]:
    found = []
    for stored in row[1]:
        fact = attempt(codec.fact, kind_of(Key(row[0])), stored)
        line: Line = {"number": stored.number}
        if isinstance(fact, Failure):
            line |= {"fact": None, "unknown": fact.error, "raw": untyped(stored.raw)}
        else:
            line |= {"fact": type(fact).__name__, "fields": plain(fact)}
        found.append(line)
    return found


# ---- states ----


def states(shard: Shard) -> Iterator[Line]:
    """Yield one line for each cell and each crowd of a recovered shard, by their keys."""
    head = {"shard": name_of(shard.id), "position": shard.position}
    population = shard.population
    for key in sorted(population.cells):
        yield {**head, "key": key, "state": plain(population.cells.peek(key))}
    for key in sorted(population.crowds):
        crowd = population.crowds.peek(key)
        assert crowd is not None
        rows = sorted(crowd.classes.items(), key=lambda item: item[1] & -item[1])
        same, each, present = crowd.columns.dump()
        columns = {
            name: [
                {"members": ranges(raw), "value": plain(value)}
                for value, raw in crowd.columns.groups(name, present)
            ]
            for name in sorted({**same, **each})
        }
        classes = [{"members": ranges(raw), "state": plain(state)} for state, raw in rows]
        yield {**head, "key": key, "classes": classes, "columns": columns}


def concerns(line: Line, key: str | None, *, member: int | None = None) -> bool:
    """Return whether a line is about this actor, of a crowd about this member. None: any."""
    if key is None:
        return True
    if line.get("key") != key:
        return False
    if member is None:
        return True
    if "classes" in line:
        return any(_holds(each["members"], member) for each in line["classes"])
    return _holds(line.get("members", ""), member)


def _holds(written: str, member: int) -> bool:
    pairs = (part.partition("-") for part in written.split(",") if part)
    return any(int(first) <= member <= int(last or first) for first, _, last in pairs)


# ---- figures ----


def figures(contents: Contents, codec: Codec) -> Line:
    """Return sizes of a shard, and counts of what its frames hold."""
    row, frames, tail = contents.register, contents.frames, contents.tail
    facts: Counter[str] = Counter()
    entries = 0
    for frame in frames:
        for line in _entries(frame, codec):
            entries += 1
            kind = kind_of(Key(line.get("key", "?")))
            for fact in line.get("facts", ()):
                facts[f"{kind} {fact['fact'] or fact['number']}"] += 1
    return {
        "shard": name_of(contents.shard),
        "epoch": row.epoch,
        "owner": row.owner,
        "last_position": row.last_position,
        "floor": row.floor,
        "floor_epoch": row.floor_epoch,
        "frames": len(frames),
        "frame_bytes": sum(len(frame.body) for frame in frames),
        "entries": entries,
        "tail_frames": len(tail),
        "tail_bytes": sum(len(frame.body) for frame in tail),
        "checkpoint_parts": len(contents.parts),
        "checkpoint_bytes": sum(len(part) for part in contents.parts),
        "facts": dict(sorted(facts.items())),
    }


# ---- values ----


def untyped(raw: bytes | msgspec.Raw) -> Any:
    """Decode MessagePack bytes without a known type."""
    value = attempt(msgpack.unpackb, bytes(raw), strict_map_key=False)
    return bytes(raw).hex() if isinstance(value, Failure) else plain(value)


def plain(value: Any) -> Any:
    """Convert a value to JSON's types: records by the names of their fields, sets as ranges."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Bits):
        return ranges(value.raw)
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, immutables.Map):
        pairs = sorted(value.items(), key=lambda item: encode(item[0]))
        return {_name(key): plain(item) for key, item in pairs}
    if isinstance(value, dict):
        return {_name(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (str, int, float)) or value is None:
        return value
    return str(value)


def _name(value: Any) -> str:
    found = plain(value)
    return found if isinstance(found, str) else str(found)


def ranges(raw: int) -> str:
    """Return members as ranges, such as `0-9,12`."""
    found, members = [], members_of(raw)
    at = 0
    while at < len(members):
        end = at
        while end + 1 < len(members) and members[end + 1] == members[end] + 1:
            end += 1
        found.append(f"{members[at]}-{members[end]}" if end > at else str(members[at]))
        at = end + 1
    return ",".join(found)
