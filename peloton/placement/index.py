"""A placer's view of all hosts, as arrays with one row per host.

The index applies the summaries that hosts report, and subtracts the placer's own proposals until
their hosts have decided them: a summary counts the launches that its host has decided so far. The
view may be stale, which costs a refusal: only the host grants resources.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from peloton.placement.conditions import (
    BATCH_HOST_POOLS,
    EXCLUSIVE,
    HOST_POOL,
    HOSTNAME,
    pool_of,
)
from peloton.placement.flights import Flights
from peloton.placement.labels import Ints, LabelTable
from peloton.placement.messages import HostSummary, Label, Shape
from peloton.placement.needs import FREE_COLUMNS, ORDERED, PORTS, Need
from peloton.placement.news import HostNews
from peloton.placement.quarantines import Quarantines
from peloton.placement.sorted_cache import SortedRowsCache
from peloton.runtime.vocabulary import Key, key

Flags = npt.NDArray[np.bool_]

NO_ROW = -1

SINGLY_MAX = 8
"""Reports of so few hosts are applied one by one; arrays of them would take longer."""


class Fitting(NamedTuple):
    """Rows that would accept one member now, ascending."""

    rows: Ints
    limits: Ints | None  # the most members that a constraint allows, by row of the index


class HostIndex:
    """Hosts in rows that never move; an unused row is given to the next new host.

    Each of several placers starts with its own part of the hosts, so that they seldom choose the
    same one. The part of a host follows from its name, since each placer numbers its rows itself.
    Rows without a host are down.
    """

    def __init__(
        self,
        part: int = 0,
        parts: int = 1,
        *,
        mend_rows: int | None = None,
    ) -> None:
        self.part, self.parts = 0, 1
        self.free = np.zeros(
            (FREE_COLUMNS, 0), np.int64
        )  # less own proposals; the last row is ports
        self._in_flight = np.zeros(
            (FREE_COLUMNS, 0), np.int64
        )  # proposals not decided by their hosts
        self._free_cells = self.free.data  # reads one amount in half the time
        self._in_flight_cells = self._in_flight.data
        self.capacity = np.zeros((PORTS, 0), np.int64)  # of an empty host; without ports
        self.has_host = np.zeros(0, np.bool_)
        self.up = np.zeros(0, np.bool_)
        self.has_gpu = np.zeros(0, np.bool_)
        self.exclusive = np.zeros(0, np.bool_)
        self.pooled = np.zeros(0, np.bool_)  # in a pool of hosts that is not for every task
        self.knows_tasks = np.zeros(0, np.bool_)
        self.group = np.zeros(0, np.int64)  # quarantined last, without GPU first, own part first
        self.names: list[Key] = []
        self.rows: dict[Key, int] = {}
        self.host_labels, self.task_labels = LabelTable(), LabelTable()
        self.generation = 0  # rises when anything but free resources has changed
        self.layout = 0  # rises when an empty cluster would fit other members than before
        self.news = HostNews()
        self.sorted_rows = SortedRowsCache(self, mend_rows)
        self.quarantines = Quarantines()
        self._position_of_free: list[int] = []
        self._position_of_labels: list[int] = []
        self._position_of_tasks: list[int] = []
        self._launches: list[int] = []  # decided by the host, as last reported
        self._labels: list[tuple[Label, ...]] = []
        self._running: list[tuple[tuple[Label, int], ...] | None] = []  # as last reported
        self._inventory: list[Key] = []
        self._members: dict[Key, dict[int, None]] = {}  # inventory → its rows
        self._spare: list[int] = []  # descending, so the lowest is taken first
        self._flights: Flights[Need] = Flights()
        self.take_part(part, parts)

    @property
    def size(self) -> int:
        """Return the number of rows, those without a host included."""
        return len(self.names)

    @property
    def groups(self) -> int:
        """Return how many values `group` may have."""
        return 4 * self.parts

    def take_part(self, part: int, parts: int) -> None:
        """Make this index start its searches with part `part` of `parts`."""
        if not 0 <= part < parts:
            raise ValueError(f"part {part} of {parts}")
        if (part, parts) != (self.part, self.parts):
            self.part, self.parts = part, parts
            for name, row in self.rows.items():
                self.group[row] = self._group(name, row)
            self._changed([*self.rows.values()])

    def host_counts(self, label: Label) -> Ints:
        """Return how often each host has a label; every host has its name as a label."""
        if label.key != HOSTNAME:
            return self.host_labels.counts(label, self.size)
        counts = np.zeros(self.size, np.int64)
        row = self.rows.get(key("host", label.value))
        if row is not None:
            counts[row] = 1
        return counts

    def task_counts(self, label: Label) -> Ints:
        """Return how often the tasks on each host have a label, own proposals included."""
        return self.task_labels.counts(label, self.size)

    # --- reports of inventories and refusals ---

    def receive(self, inventory: Key, hosts: Sequence[HostSummary], *, whole: bool = False) -> None:
        """Apply host summaries; `whole` means that the inventory has no other hosts."""
        self._make_rows(inventory, hosts)
        rows: list[int] = []
        free: list[tuple[int, ...]] = []
        self._land([(self.rows[host.host], host.launches) for host in hosts])
        for host in hosts:
            row = self.rows[host.host]
            if (
                host.running is not self._running[row]
                or host.position < self._position_of_tasks[row]
            ):
                self._receive_tasks(row, host)
            else:
                self._position_of_tasks[row] = host.position
            if host.position > self._position_of_labels[row]:
                self._position_of_labels[row] = host.position
                self._receive_labels(row, host)
            if host.position > self._position_of_free[row]:
                self._position_of_free[row] = host.position
                rows.append(row)
                free.append((*host.free.amounts(), host.ports))
        if rows:
            self._receive_free(rows, free)
        if whole:
            named = {host.host for host in hosts}
            gone = [row for row in self._members.get(inventory, ()) if self.names[row] not in named]
            self.drop([self.names[row] for row in gone])

    def receive_refusals(self, hosts: Sequence[HostSummary]) -> list[int]:
        """Apply the refusals of one wish.

        Returns the rows about which nothing newer was reported. If these seem to have enough free,
        they refused for a reason that no summary shows, and proposing them again at once might
        repeat for ever.
        """
        rows = [self._receive_refusal(host) for host in hosts]
        return [row for row in rows if row is not None]

    def _receive_refusal(self, host: HostSummary) -> int | None:
        """Apply a refusal; return its row if nothing newer was reported about that host.

        Only position, free resources and tasks are used. Labels are ignored: a refusal need not
        repeat them, and without its label an exclusive host would be open to all.
        """
        row = self.rows.get(host.host)
        if row is None or host.position < self._position_of_free[row]:
            return None
        self._land([(row, host.launches)])
        if host.position > self._position_of_free[row]:
            self._position_of_free[row] = host.position
            self._receive_free([row], [(*host.free.amounts(), host.ports)])
        if host.running is not None:
            self._receive_tasks(row, host)
        if not host.up and self.up[row]:
            self.up[row] = False
            self._changed([row])
        return row

    def drop(self, hosts: Sequence[Key]) -> None:
        """Remove hosts from the index."""
        for name in hosts:
            row = self.rows.pop(name, None)
            if row is None:
                continue
            del self._members[self._inventory[row]][row]
            self.has_host[row] = self.up[row] = False
            self.sorted_rows.touch([row])  # by the labels it had
            self.quarantines.mark(row, False)
            self.host_labels.replace(row, ())
            self.task_labels.replace(row, ())
            self._running[row] = None
            self.knows_tasks[row] = False
            self._flights.drop(row)  # or they would be credited to the next host of this row
            self._in_flight[:, row] = 0
            self._labels[row] = ()
            self._spare.append(row)
            self._changed([row])
            self.layout += 1
        self._spare.sort(reverse=True)

    def _receive_free(self, rows: list[int], free: list[tuple[int, ...]]) -> None:
        if len(rows) <= SINGLY_MAX:
            more = [row for row, amounts in zip(rows, free, strict=True) if self._set(row, amounts)]
            if more:
                self.news.more_reported(more)
            self.sorted_rows.touch(rows)
            return
        reported = np.array(free, np.int64).T - self._in_flight[:, rows]
        risen = (reported > self.free[:, rows]).any(axis=0)
        self.free[:, rows] = reported
        if risen.any():
            self.news.more_reported(np.array(rows)[risen].tolist())
        self.sorted_rows.touch(rows)

    def _set(self, row: int, amounts: tuple[int, ...]) -> bool:
        """Record what a host reports as free; return whether any amount has risen."""
        free, in_flight = self._free_cells, self._in_flight_cells
        risen = False
        for column, amount in enumerate(amounts):
            left = amount - in_flight[column, row]
            risen = risen or left > free[column, row]
            free[column, row] = left
        return risen

    def _receive_labels(self, row: int, host: HostSummary) -> None:
        """Apply all of a summary but free resources and tasks.

        Labels are compared first: they seldom change.
        """
        has_gpu = host.capacity.gpu > 0
        capacity, before = [*host.capacity.amounts()], self.capacity[:, row].tolist()
        resized = capacity[:ORDERED] != before[:ORDERED]  # slack comes and goes
        if resized or not self.has_host[row] or host.labels != self._labels[row]:
            self.layout += 1
        if capacity != before:
            self.capacity[:, row] = capacity  # read only to explain what is missing
        if (
            host.labels == self._labels[row]
            and host.up == self.up[row]
            and has_gpu == self.has_gpu[row]
            and host.quarantined == self.quarantines.marked[row]
            and self.has_host[row]
        ):
            return
        self.has_host[row], self.up[row], self.has_gpu[row] = True, host.up, has_gpu
        self.exclusive[row] = any(label.key == EXCLUSIVE for label in host.labels)
        pool = pool_of(host.labels)
        self.pooled[row] = pool not in BATCH_HOST_POOLS
        self.quarantines.mark(row, host.quarantined)
        self.group[row] = self._group(host.host, row)
        self._labels[row] = host.labels
        self.sorted_rows.touch([row])  # by the labels it had
        self.host_labels.replace(row, ())
        for label in host.labels:  # one by one: an attribute may have a value twice
            if label.key not in (HOSTNAME, HOST_POOL):
                self.host_labels.change(row, label, by=1)
        self.host_labels.change(row, Label(HOST_POOL, pool), by=1)
        self._changed([row])

    def _receive_tasks(self, row: int, host: HostSummary) -> None:
        """Apply the labels of a host's tasks.

        The table also has those of own proposals, which stay.
        """
        before = self._running[row]
        if host.position <= self._position_of_tasks[row]:
            return
        self._position_of_tasks[row] = host.position
        if host.running == before:
            return
        self._running[row] = host.running
        self.knows_tasks[row] = host.running is not None
        changes = dict(host.running or ())
        for label, count in before or ():
            changes[label] = changes.get(label, 0) - count
        for label, count in changes.items():
            if count:
                self.task_labels.change(row, label, by=count)
        self.news.more_reported([row])  # a constraint may hold now
        self.sorted_rows.touch([row])

    def _group(self, host: Key, row: int) -> int:
        part = zlib.crc32(host.encode()) % self.parts
        after = 2 * int(self.quarantines.marked[row]) + int(self.has_gpu[row])
        return after * self.parts + (part - self.part) % self.parts

    def _changed(self, rows: list[int]) -> None:
        self.generation += 1
        before = self.quarantines.left_out
        self.news.more_reported([*rows, *self.quarantines.judge(self.up)])
        if self.quarantines.left_out is not before:
            self.sorted_rows.touch(np.flatnonzero(before != self.quarantines.left_out).tolist())
        self.sorted_rows.touch(rows)

    def _make_rows(self, inventory: Key, hosts: Sequence[HostSummary]) -> None:
        fresh = dict.fromkeys(host.host for host in hosts if host.host not in self.rows)
        if len(fresh) > len(self._spare):
            self._grow(max(len(fresh) - len(self._spare), 64, self.size // 8))
        members = self._members.setdefault(inventory, {})
        for name in fresh:
            row = self._spare.pop()
            self.rows[name], self.names[row] = row, name
            self._inventory[row] = inventory
            self._position_of_free[row] = self._position_of_labels[row] = NO_ROW
            self._position_of_tasks[row] = NO_ROW
            self._launches[row] = NO_ROW
            members[row] = None

    def _grow(self, extra: int) -> None:
        size = self.size
        more_free = np.zeros((FREE_COLUMNS, extra), np.int64)
        self.free = np.concatenate((self.free, more_free), axis=1)
        self._in_flight = np.concatenate((self._in_flight, more_free), axis=1)
        more_capacity = np.zeros((PORTS, extra), np.int64)
        self.capacity = np.concatenate((self.capacity, more_capacity), axis=1)
        self.group = np.concatenate((self.group, np.zeros(extra, np.int64)))
        self._free_cells = self.free.data
        self._in_flight_cells = self._in_flight.data
        self.news.grow(extra)
        self.quarantines.grow(extra)
        more = np.zeros(extra, np.bool_)
        self.has_host = np.concatenate((self.has_host, more))
        self.up = np.concatenate((self.up, more))
        self.has_gpu = np.concatenate((self.has_gpu, more))
        self.exclusive = np.concatenate((self.exclusive, more))
        self.pooled = np.concatenate((self.pooled, more))
        self.knows_tasks = np.concatenate((self.knows_tasks, more))
        self.names += [Key("")] * extra
        self._inventory += [Key("")] * extra
        self._labels += [()] * extra
        self._position_of_free += [NO_ROW] * extra
        self._position_of_labels += [NO_ROW] * extra
        self._position_of_tasks += [NO_ROW] * extra
        self._running += [None] * extra
        self._launches += [NO_ROW] * extra
        self._spare = [*range(size + extra - 1, size - 1, -1), *self._spare]
        self.generation += 1

    # --- own proposals ---

    def propose(self, need: Need, rows: Ints, *, counts: Ints, now: float) -> None:
        """Subtract a new proposal; each row is named once."""
        self.free[:, rows] -= need.vector * counts
        self._in_flight[:, rows] += need.vector * counts
        self._proposed(need, rows.tolist(), counts=counts.tolist(), now=now)

    def propose_few(self, need: Need, rows: list[int], *, counts: list[int], now: float) -> None:
        """Subtract a proposal of so few members that arrays of them would take longer."""
        for row, count in zip(rows, counts, strict=True):
            self._take(need, row, count=count)
        self._proposed(need, rows, counts=counts, now=now)

    def _take(self, need: Need, row: int, *, count: int) -> None:
        free, in_flight = self._free_cells, self._in_flight_cells
        for column, amount in need.taken:
            free[column, row] -= amount * count
            in_flight[column, row] += amount * count

    def _proposed(self, need: Need, rows: list[int], *, counts: list[int], now: float) -> None:
        self.sorted_rows.touch(rows)
        if need.labels:
            for row, count in zip(rows, counts, strict=True):
                self._label(need, row, count=count)
        self._flights.add(need, rows, counts=counts, now=now)

    def decline(self, need: Need, hosts: Sequence[Key]) -> None:
        """Add back proposals that the slice does not use; a host is named once per member."""
        for host, count in Counter(hosts).items():
            row = self.rows.get(host)
            if row is not None:
                found = self._flights.cancel(row, _of_shape(need.shape), count=count)
                if found:
                    self._arrived(need, row, count=found)

    def expire(self, now: float) -> None:
        """Add back proposals that are so old that they are considered lost."""
        for row, need, count in self._flights.lost(now):
            self._arrived(need, row, count=count)

    def _land(self, decided: Sequence[tuple[int, int]]) -> None:
        """Apply how many launches hosts have decided, by row: their proposals have landed."""
        for row, launches in decided:
            before = self._launches[row]
            if launches <= before:
                continue  # an old report
            self._launches[row] = launches
            if before != NO_ROW:
                for need, count in self._flights.land(row, launches - before):
                    self._arrived(need, row, count=count)

    def _arrived(self, need: Need, row: int, *, count: int) -> None:
        """Stop counting members as in flight to a row.

        Those that the host accepted are part of the free resources and tasks that it reported
        together with the count, or reports next.
        """
        self._take(need, row, count=-count)
        self._label(need, row, count=-count)
        self.news.own_proposals_over([row])
        self.sorted_rows.touch([row])

    def _label(self, need: Need, row: int, *, count: int) -> None:
        for label in need.labels:
            self.task_labels.change(row, label, by=count)


def _of_shape(shape: Shape) -> Callable[[Need], bool]:
    return lambda need: need.shape == shape
