"""What a placer believes about hosts, as arrays with one row a host.

Takes summaries in, and subtracts the placer's own proposals until their hosts show that they were
decided: a summary counts the launches that its host has decided so far. It must never grant room:
the host does, and a belief that is wrong costs one refusal. It must not know constraints or
strategies.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from peloton.actors.resources import EPSILON
from peloton.placement.flights import Flights
from peloton.placement.labels import Ints, LabelTable
from peloton.placement.messages import HostSummary, Label, Shape
from peloton.placement.order import KeptOrder, OrderKey
from peloton.runtime.vocabulary import Key, key

Flags = npt.NDArray[np.bool_]

CPU, MEMORY, DISK, GPU, PORTS = range(5)
HOSTNAME = "hostname"
EXCLUSIVE = "peloton/exclusive"

KEPT_MAX = 16
"""Orders kept at once; each is told of every change."""

NO_ROW = -1


class Need(NamedTuple):
    """What one member takes of each column of room, and the least room that is enough."""

    shape: Shape
    amounts: tuple[int, int, int, int, int]
    least: tuple[int, int, int, int, int]
    vector: Ints  # amounts, as a column to multiply with counts
    nothing: bool  # within the epsilon of nothing: such a member would fit a host without room


class Fitting(NamedTuple):
    """Rows that would take one member now, ascending."""

    rows: Ints
    limits: Ints | None  # the most members that a constraint admits, by row of the index


def need_of(shape: Shape) -> Need:
    """The need of one member of `shape`."""
    of = shape.resources
    amounts = (of.cpu, of.memory, of.disk, of.gpu, shape.ports)
    slack = EPSILON - 1
    return Need(
        shape=shape,
        amounts=amounts,
        least=(of.cpu - slack, of.memory - slack, of.disk - slack, of.gpu - slack, shape.ports),
        vector=np.array(amounts, np.int64).reshape(5, 1),
        nothing=max(amounts[:PORTS]) < EPSILON,
    )


class HostIndex:
    """Hosts in rows that never move; a row that is free serves the next new host.

    Of several placers each begins in its own part, so that they seldom want the same host. Which
    part a host is of follows from its name, since each placer has its own rows. Rows without a
    host are simply down.
    """

    def __init__(
        self,
        part: int = 0,
        parts: int = 1,
        *,
        mend_rows: int | None = None,
    ) -> None:
        self.part, self.parts = 0, 1
        self._mend_rows = mend_rows
        self.room = np.zeros((5, 0), np.int64)  # free, less own proposals
        self._flying = np.zeros((5, 0), np.int64)  # proposals that their hosts do not show yet
        self.capacity = np.zeros((4, 0), np.int64)  # of an empty host; ports are not told
        self.has_host = np.zeros(0, np.bool_)
        self.up = np.zeros(0, np.bool_)
        self.has_gpu = np.zeros(0, np.bool_)
        self.exclusive = np.zeros(0, np.bool_)
        self.tells_tasks = np.zeros(0, np.bool_)
        self.group = np.zeros(0, np.int64)  # hosts without GPU first, own part first
        self.names: list[Key] = []
        self.rows: dict[Key, int] = {}
        self.host_labels, self.task_labels = LabelTable(), LabelTable()
        self.outlook = 0  # rises when anything but room has changed
        self._kept: dict[object, KeptOrder] = {}  # least recently asked for first
        self._position_of_room: list[int] = []
        self._position_of_rest: list[int] = []
        self._launches: list[int] = []  # decided by the host, as far as was heard
        self._labels: list[tuple[Label, ...]] = []
        self._inventory: list[Key] = []
        self._members: dict[Key, dict[int, None]] = {}  # inventory → its rows
        self._spare: list[int] = []  # descending, so the lowest is taken first
        self._flights: Flights[Need] = Flights()
        self._any_tells_tasks = False
        self.take_part(part, parts)

    @property
    def size(self) -> int:
        """Rows, those without a host included."""
        return len(self.names)

    @property
    def groups(self) -> int:
        """How many values `group` has."""
        return 2 * self.parts

    def take_part(self, part: int, parts: int) -> None:
        """Begin in part `part` of `parts` from now on."""
        if not 0 <= part < parts:
            raise ValueError(f"part {part} of {parts}")
        if (part, parts) != (self.part, self.parts):
            self.part, self.parts = part, parts
            for name, row in self.rows.items():
                self.group[row] = self._group(name, bool(self.has_gpu[row]))
            self._changed([*self.rows.values()])

    def host_counts(self, label: Label) -> Ints:
        """How many labels like this each host has; every host has its name as a label."""
        if label.key != HOSTNAME:
            return self.host_labels.counts(label, self.size)
        counts = np.zeros(self.size, np.int64)
        row = self.rows.get(key("host", label.value))
        if row is not None:
            counts[row] = 1
        return counts

    def task_counts(self, label: Label) -> Ints:
        """How many labels like this the tasks on each host have, own proposals included."""
        return self.task_labels.counts(label, self.size)

    # --- what inventories and refusals tell ---

    def receive(self, inventory: Key, hosts: Sequence[HostSummary], *, whole: bool = False) -> None:
        """Take summaries in; `whole` says that the inventory has no other hosts."""
        self._make_rows(inventory, hosts)
        rows: list[int] = []
        room: list[tuple[int, ...]] = []
        self._land([(self.rows[host.host], host.launches) for host in hosts])
        for host in hosts:
            row = self.rows[host.host]
            if host.position > self._position_of_rest[row]:
                self._position_of_rest[row] = host.position
                self._receive_labels(row, host)
            if host.position > self._position_of_room[row]:
                self._position_of_room[row] = host.position
                rows.append(row)
                room.append((*host.free.amounts(), host.ports))
        if rows:
            self._receive_free(rows, room)
        if whole:
            named = {host.host for host in hosts}
            gone = [row for row in self._members.get(inventory, ()) if self.names[row] not in named]
            self.drop([self.names[row] for row in gone])

    def receive_refusal(self, host: HostSummary) -> int | None:
        """Take a refusal in; its row, if nobody has told anything newer about that host.

        A refusal brings position and room. Its labels are not looked at: a host that refuses has
        no reason to repeat them, and their absence would lift a fence.
        """
        row = self.rows.get(host.host)
        if row is None or host.position < self._position_of_room[row]:
            return None
        self._land([(row, host.launches)])
        if host.position > self._position_of_room[row]:
            self._position_of_room[row] = host.position
            self._receive_free([row], [(*host.free.amounts(), host.ports)])
        if not host.up and self.up[row]:
            self.up[row] = False
            self._changed([row])
        return row

    def drop(self, hosts: Sequence[Key]) -> None:
        """Forget these hosts."""
        for name in hosts:
            row = self.rows.pop(name, None)
            if row is None:
                continue
            del self._members[self._inventory[row]][row]
            self.has_host[row] = self.up[row] = False
            self.host_labels.replace(row, ())
            self.task_labels.replace(row, ())
            self.tells_tasks[row] = False
            self._flights.drop(row)  # so that no proposal to this host is given back to the next
            self._flying[:, row] = 0
            self._labels[row] = ()
            self._spare.append(row)
            self._changed([row])
        self._spare.sort(reverse=True)

    def _receive_free(self, rows: list[int], room: list[tuple[int, ...]]) -> None:
        self.room[:, rows] = np.array(room, np.int64).T - self._flying[:, rows]
        self._touch(rows)

    def _receive_labels(self, row: int, host: HostSummary) -> None:
        """All but room. Labels are compared first: that they change is rare."""
        if host.running is not None or self.tells_tasks[row]:
            self.task_labels.replace(row, host.running or ())
            self.tells_tasks[row] = host.running is not None
            for flight in self._flights.of(row):
                self._label(flight.what, row, count=flight.members)
            self._any_tells_tasks = self._any_tells_tasks or host.running is not None
        has_gpu = host.capacity.gpu > 0
        self.capacity[:, row] = host.capacity.amounts()  # read only to say what is lacking
        if (
            host.labels == self._labels[row]
            and host.up == self.up[row]
            and has_gpu == self.has_gpu[row]
            and self.has_host[row]
        ):
            return
        self.has_host[row], self.up[row], self.has_gpu[row] = True, host.up, has_gpu
        self.exclusive[row] = any(label.key == EXCLUSIVE for label in host.labels)
        self.group[row] = self._group(host.host, has_gpu)
        self._labels[row] = host.labels
        told = [(label, 1) for label in host.labels if label.key != HOSTNAME]
        self.host_labels.replace(row, ())
        for label, count in told:  # one by one: an attribute may carry a value twice
            self.host_labels.change(row, label, by=count)
        self._changed([row])

    def _group(self, host: Key, has_gpu: bool) -> int:
        part = zlib.crc32(host.encode()) % self.parts
        return has_gpu * self.parts + (part - self.part) % self.parts

    def _changed(self, rows: list[int]) -> None:
        self.outlook += 1
        self._touch(rows)

    def _make_rows(self, inventory: Key, hosts: Sequence[HostSummary]) -> None:
        fresh = dict.fromkeys(host.host for host in hosts if host.host not in self.rows)
        if len(fresh) > len(self._spare):
            self._grow(max(len(fresh) - len(self._spare), 64, self.size // 8))
        members = self._members.setdefault(inventory, {})
        for name in fresh:
            row = self._spare.pop()
            self.rows[name], self.names[row] = row, name
            self._inventory[row] = inventory
            self._position_of_room[row] = self._position_of_rest[row] = NO_ROW
            self._launches[row] = NO_ROW
            members[row] = None

    def _grow(self, extra: int) -> None:
        size = self.size
        more_room = np.zeros((5, extra), np.int64)
        self.room = np.concatenate((self.room, more_room), axis=1)
        self._flying = np.concatenate((self._flying, more_room), axis=1)
        more_capacity = np.zeros((4, extra), np.int64)
        self.capacity = np.concatenate((self.capacity, more_capacity), axis=1)
        self.group = np.concatenate((self.group, np.zeros(extra, np.int64)))
        more = np.zeros(extra, np.bool_)
        self.has_host = np.concatenate((self.has_host, more))
        self.up = np.concatenate((self.up, more))
        self.has_gpu = np.concatenate((self.has_gpu, more))
        self.exclusive = np.concatenate((self.exclusive, more))
        self.tells_tasks = np.concatenate((self.tells_tasks, more))
        self.names += [Key("")] * extra
        self._inventory += [Key("")] * extra
        self._labels += [()] * extra
        self._position_of_room += [NO_ROW] * extra
        self._position_of_rest += [NO_ROW] * extra
        self._launches += [NO_ROW] * extra
        self._spare = [*range(size + extra - 1, size - 1, -1), *self._spare]
        self.outlook += 1

    # --- own proposals ---

    def propose(self, need: Need, rows: Ints, *, counts: Ints, now: float) -> None:
        """Subtract what was just proposed; each row is named once."""
        _add(self.room, need, rows=rows, counts=-counts)
        _add(self._flying, need, rows=rows, counts=counts)
        touched, members = rows.tolist(), counts.tolist()
        self._touch(touched)
        if need.shape.labels and self._any_tells_tasks:
            for row, count in zip(touched, members, strict=True):
                self._label(need, row, count=count)
        self._flights.add(need, touched, counts=members, now=now)

    def expire(self, now: float) -> None:
        """Give back what was proposed so long ago that it must have been lost on its way."""
        for row, need, count in self._flights.lost(now):
            self._arrived(need, row, count=count)

    def _land(self, decided: Sequence[tuple[int, int]]) -> None:
        """Rows with the launches that their hosts have decided: what was proposed has landed."""
        for row, launches in decided:
            before = self._launches[row]
            if launches <= before:
                continue  # an old word
            self._launches[row] = launches
            if before != NO_ROW:
                for need, count in self._flights.land(row, launches - before):
                    self._arrived(need, row, count=count)

    def _arrived(self, need: Need, row: int, *, count: int) -> None:
        """So many members are not on their way to this row any more. What the host has accepted of
        them, its room and its tasks show: it told them with the count, or tells them next."""
        for column, amount in enumerate(need.amounts):
            if amount:
                self.room[column, row] += amount * count
                self._flying[column, row] -= amount * count
        self._label(need, row, count=-count)
        self._touch([row])

    def _touch(self, rows: list[int]) -> None:
        for kept in self._kept.values():
            kept.touch(rows)

    def _label(self, need: Need, row: int, *, count: int) -> None:
        if self.tells_tasks[row]:
            for label in need.shape.labels:
                self.task_labels.change(row, label, by=count)

    # --- kept orders ---

    def kept_order(self, sign: int, among: object) -> KeptOrder:
        """The order by room, ascending (sign 1) or descending (-1), of the hosts `among` names.

        Orders that were not worth building yet leave first: a stream of constraints that are
        each asked for once (one host name each, say) must not drive out those in use.
        """
        name = (sign, among)
        kept = self._kept.pop(name, None)
        if kept is None:
            if len(self._kept) >= KEPT_MAX:
                idle = (name for name, order in self._kept.items() if not order.built)
                del self._kept[next(idle, next(iter(self._kept)))]
            kept = KeptOrder(sign, self._place_of, mend_rows=self._mend_rows)
        self._kept[name] = kept
        return kept

    def _place_of(self, row: int, sign: int) -> OrderKey:
        cpu, memory, disk, gpu, _ = self.room[:, row].tolist()
        group = int(self.group[row])
        if -EPSILON < gpu < 0:
            gpu = 0  # as good as none; but what is less fits nobody, and must not look as if
        return group, sign * gpu, sign * cpu, sign * memory, sign * disk, row


def _add(room: Ints, need: Need, *, rows: Ints, counts: Ints) -> None:
    """So many members' need, in these rows."""
    if len(rows) == 1:  # a scalar at a time is three times as fast as the general way
        row, count = int(rows[0]), int(counts[0])
        for column, amount in enumerate(need.amounts):
            if amount:
                room[column, row] += amount * count
    else:
        room[:, rows] += need.vector * counts
