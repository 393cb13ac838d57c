"""When a disk counts as full, and when as almost full."""

from __future__ import annotations

import pytest

from peloton.runtime.core.disk_room import DiskRoom
from peloton.runtime.core.health import DISK, JOURNAL, SANDBOXES, DaemonHealth
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.shells.routing import RoutingTable
from peloton.runtime.shells.status import Status

MB, GB, TB = 10**6, 10**9, 10**12


@pytest.mark.parametrize(
    ("free", "size", "full", "scarce"),
    [
        (0, 40 * MB, True, True),
        (399_999, 40 * MB, True, True),
        (400_000, 40 * MB, False, True),
        (2 * MB, 40 * MB, False, False),
        (3_999_999, TB, True, True),
        (4 * MB, TB, False, True),
        (GB - 1, TB, False, True),
        (GB, TB, False, False),
        (0, 0, False, False),
    ],
)
def test_the_smaller_of_a_part_and_a_number_of_bytes_counts(
    free: int, size: int, full: bool, scarce: bool
) -> None:
    room = DiskRoom((JOURNAL,), free, size)
    assert (room.is_full, room.is_scarce) == (full, scarce)


def test_a_disk_that_takes_no_more_files_is_full() -> None:
    room = DiskRoom((JOURNAL, SANDBOXES), GB, TB, files_left=0)
    assert room.is_full
    assert str(room) == "full under the journal and the sandboxes: no file more can be made"
    assert not DiskRoom((JOURNAL,), GB, TB, files_left=1).is_full


def condition(*rooms: DiskRoom) -> DaemonHealth:
    status = Status(RoutingTable({}, Sharding({}, {})), {})
    status.rooms = lambda: rooms
    return status.daemon_health()


def texts(found: DaemonHealth) -> tuple[list[str], list[str]]:
    return [*map(str, found.reasons)], [*map(str, found.remarks)]


def of_disk(found: DaemonHealth) -> tuple[bool, bool]:
    """Whether the disk is a reason against being ready, or a remark."""
    blocks = any(reason.component == DISK for reason in found.reasons)
    return blocks, any(reason.component == DISK for reason in found.remarks)


@pytest.mark.parametrize(
    ("of", "free", "wanted"),
    [
        ((JOURNAL,), 0, (True, False)),
        ((JOURNAL, SANDBOXES), 0, (True, False)),
        ((SANDBOXES,), 0, (False, True)),
        ((JOURNAL,), MB, (False, True)),
        ((JOURNAL,), 20 * MB, (False, False)),
    ],
)
def test_only_a_full_disk_under_the_journal_is_a_reason_against_being_ready(
    of: tuple[str, ...], free: int, wanted: tuple[bool, bool]
) -> None:
    assert of_disk(condition(DiskRoom(of, free, 40 * MB))) == wanted


def test_its_texts_name_what_lies_there_and_how_much_is_left() -> None:
    found = condition(DiskRoom((JOURNAL,), 100_000, 40 * MB), DiskRoom((SANDBOXES,), MB, 40 * MB))
    reasons, remarks = texts(found)
    assert "the disk: full under the journal: 0.1 MB of 40 MB are free" in reasons
    assert remarks == ["the disk: almost full under the sandboxes: 1.0 MB of 40 MB are free"]


def test_commands_are_refused_while_the_store_says_that_it_is_full() -> None:
    status = Status(RoutingTable({}, Sharding({}, {})), {})
    status.away(DISK, "busy")
    assert status.no_room() is None, "one that is busy may answer yet"
    status.away(DISK, "database or disk is full", full=True)
    status.away(DISK, "unable to open the file")
    refusal = status.no_room()
    assert refusal is not None and "the disk under the journal is full" in refusal.text
    status.answered(DISK)
    assert status.no_room() is None
