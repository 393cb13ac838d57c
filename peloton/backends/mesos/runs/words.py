"""Resources in the form of Mesos, in offers and in tasks.

Mesos counts scalars in thousandths. What a task needs is rounded up to these, so it is never given
less than it was promised; sums of offers are rounded down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import index
from typing import Any

from peloton.actors.resources import UNIT, Resources

Json = Mapping[str, Any]
_KINDS = {"cpus": "cpu", "mem": "memory", "disk": "disk", "gpus": "gpu"}
_NAMES = {"cpu": "cpus", "memory": "mem", "disk": "disk", "gpu": "gpus", "slack": "cpus"}
_THOUSANDTH = UNIT // 1000


class NotOffered(ValueError):
    """A task needs more than the offers have; the text says of what."""


def kind_of(entry: Json) -> str | None:
    """Return the kind of resource of an entry; None if it is not used here.

    Volumes, separate disks and what the operator lends of other kinds than cpu are not used.
    """
    name = entry.get("name", "")
    if entry.get("disk") or entry.get("type") != "SCALAR":
        return None
    if "revocable" in entry:
        return "slack" if name == "cpus" else None
    return _KINDS.get(name)


def sum_of(entries: Iterable[Json]) -> Resources:
    """Return the sum of these entries."""
    found = dict.fromkeys(Resources.KINDS, 0)
    for entry in entries:
        kind = kind_of(entry)
        if kind is not None:
            found[kind] += _thousandths(entry) * _THOUSANDTH
    return Resources(**found)


def of_others(entries: Iterable[Json], role: str) -> list[Json]:
    """Return the entries that another role has, or has reserved."""
    return [entry for entry in entries if _owner(entry) not in ("*", role)]


def reserved_by(entry: Json) -> str:
    """Return the role that has reserved an entry; "*" if none has."""
    reservations = entry.get("reservations") or ()
    return str(reservations[-1].get("role", "*") if reservations else entry.get("role", "*"))


def ranges(entries: Iterable[Json]) -> list[tuple[int, int]]:
    """Return the ports of these entries: first, and one past the last, in order, none twice."""
    found: list[tuple[int, int]] = []
    for entry in entries:
        if entry.get("name") == "ports" and entry.get("type") == "RANGES":
            for each in entry["ranges"]["range"]:
                # What is no whole number raises TypeError: a host is told of these.
                found.append((index(each["begin"]), index(each["end"]) + 1))
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(found):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


class Bundle:
    """The resources that the offers of one agent have left; tasks take from it."""

    def __init__(self, entries: Iterable[Json]) -> None:
        self._entries = [dict(entry) for entry in entries]
        self._left = [_thousandths(entry) if kind_of(entry) else 0 for entry in self._entries]
        self._places: dict[str, list[int]] = {}  # of each kind, in the order in which they are used
        # What is reserved for our role comes first: others cannot use it.
        for reserved in (True, False):
            for place, entry in enumerate(self._entries):
                kind = kind_of(entry)
                if kind is not None and (reserved_by(entry) != "*") == reserved:
                    self._places.setdefault(kind, []).append(place)
        self._ports = [
            [[each["begin"], each["end"]] for each in entry["ranges"]["range"]]
            if entry.get("name") == "ports" and entry.get("type") == "RANGES"
            else []
            for entry in self._entries
        ]

    @property
    def amounts(self) -> Resources:
        """The amounts that are left."""
        left = zip(self._entries, self._left, strict=True)
        return sum_of(_scalar(entry, some) for entry, some in left if some)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Take everything within this context as a whole: if it raises, nothing is taken."""
        before = self._left, self._ports
        try:
            yield
        except Exception:
            self._left, self._ports = before
            raise

    def take(self, need: Resources, ports: Sequence[int]) -> list[dict[str, Any]]:
        """Return the entries of a task that needs this. Raises `NotOffered`, and takes nothing."""
        left, taken = [*self._left], [0] * len(self._left)
        for kind in Resources.KINDS:
            wanted = -(-getattr(need, kind) // _THOUSANDTH)
            for place in self._places.get(kind, ()) if wanted else ():
                some = min(left[place], wanted)
                left[place] -= some
                taken[place] += some
                wanted -= some
            if wanted > 0:
                raise NotOffered(f"{wanted / 1000:g} {_NAMES[kind]} are missing in the offers")
        found = [
            _scalar(entry, some) for entry, some in zip(self._entries, taken, strict=True) if some
        ]
        found += self._take_ports(ports)
        self._left = left
        return found

    def _take_ports(self, ports: Sequence[int]) -> list[dict[str, Any]]:
        left, places = [*self._ports], dict[int, list[int]]()
        for port in ports:
            place = next((k for k, some in enumerate(left) if _has(some, port)), None)
            if place is None:
                raise NotOffered(f"port {port} is missing in the offers")
            left[place] = _without(left[place], port)
            places.setdefault(place, []).append(port)
        self._ports = left
        found = []
        for place, some in places.items():
            listed = [{"begin": port, "end": port} for port in sorted(some)]
            found.append({**self._entries[place], "ranges": {"range": listed}})
        return found


def _has(ranges_: list[list[int]], port: int) -> bool:
    return any(begin <= port <= end for begin, end in ranges_)


def _without(ranges_: list[list[int]], port: int) -> list[list[int]]:
    kept = []
    for begin, end in ranges_:
        if not begin <= port <= end:
            kept.append([begin, end])
            continue
        kept += [part for part in ([begin, port - 1], [port + 1, end]) if part[0] <= part[1]]
    return kept


def _thousandths(entry: Json) -> int:
    scalar = entry.get("scalar") or {}
    return round(float(scalar.get("value", 0.0)) * 1000)


def _scalar(entry: Json, thousandths: int) -> dict[str, Any]:
    return {**entry, "scalar": {"value": thousandths / 1000}}


def _owner(entry: Json) -> str:
    """Return the role that has reserved an entry, or else has it."""
    reserved = reserved_by(entry)
    if reserved != "*":
        return reserved
    return str((entry.get("allocation_info") or {}).get("role", "*"))
