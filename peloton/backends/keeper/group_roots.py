"""The places where a keeper may make control groups, from the mounts and the keeper's own group.

Turns /proc/self/mountinfo and /proc/self/cgroup into a place for groups, or into why there is none.
Looking changes nothing; `prepare` makes the place and tries a group in it. The place must lie in
the subtree that the keeper was started in unless the machine allows no other: a limit of the
machine for this subtree counts for its runs as well.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import NamedTuple

from .disk import DISK, Disk, read_file
from .groups import CONTROLLERS, MEMORY, ControlGroups, GroupLimits, GroupRoot

# No run has such a name. More than one: that of a killed keeper may not be gone at once.
_TRIALS = ("trial", "trial.1", "trial.2")
_TRIAL_LIMITS = GroupLimits(memory_bytes=64 * 1024 * 1024, cpus=1.0, pids=64)


class FoundRoot(NamedTuple):
    """A place, or None and the reason; `why` also names the controllers that the place lacks."""

    place: GroupRoot | None
    why: str = ""


class NotLeft(OSError):
    """The trial group was entered and cannot be left: this process is still in it."""

    def __init__(self, groups: ControlGroups, why: OSError) -> None:
        super().__init__(why.errno, why.strerror, why.filename)
        self.groups = groups


class Hierarchy(NamedTuple):
    """A mounted hierarchy: version, options or controllers, mount point, and our group."""

    version: int
    options: frozenset[str]
    mounted: str
    own: str


def hierarchies(mounts: str, groups: str) -> Iterator[Hierarchy]:
    """Yield the hierarchies in the contents of /proc/self/mountinfo and /proc/self/cgroup."""
    own: dict[str, str] = {}
    for line in groups.splitlines():
        number, names, path = line.split(":", 2)
        for name in names.split(",") if number != "0" else [""]:
            own[name] = path
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), after.split(maxsplit=2)
        if kind not in ("cgroup", "cgroup2"):
            continue
        known = frozenset(options.split(","))
        keys = [""] if kind == "cgroup2" else [name for name in own if name and name in known]
        for key in [key for key in keys if key in own][:1]:
            top = fields[3].rstrip("/")
            inside = own[key] == top or own[key].startswith(f"{top}/")
            below = own[key][len(top) :].rstrip("/") if inside else ""
            mounted = fields[4].replace("\\040", " ")
            yield Hierarchy(2 if kind == "cgroup2" else 1, known, mounted, f"{mounted}{below}")


def find_root(name: str, *, proc: str = "/proc/self", disk: Disk = DISK) -> FoundRoot:
    """Return the place of the keeper of this name. Raises OSError."""
    mounts = read_file(f"{proc}/mountinfo", disk).decode()
    found = [*hierarchies(mounts, read_file(f"{proc}/cgroup", disk).decode())]
    for hierarchy in found:
        if hierarchy.version == 2:
            place = _unified(hierarchy, name, disk=disk)
            if place is not None:
                return _told(place)
    place = _separate([one for one in found if one.version == 1], name)
    if place is not None:
        return _told(place)
    return FoundRoot(None, "no group with a limit of memory that this user may divide")


def prepare(found: FoundRoot, disk: Disk = DISK) -> ControlGroups:
    """Return the groups of the place, after a trial in one. Raises OSError.

    It raises NotLeft if nothing may be started until `leave` of its groups succeeds.
    """
    assert found.place is not None
    groups = ControlGroups(found.place, disk)
    groups.open()
    name = _trial_name(groups)
    groups.make(name, _TRIAL_LIMITS)
    try:
        groups.enter(name)
    finally:
        try:
            groups.leave()
        except OSError as trouble:
            try:
                groups.remove(name)  # the parts that were left
            finally:
                raise NotLeft(groups, trouble) from trouble
        groups.remove(name)
    return groups


def _trial_name(groups: ControlGroups) -> str:
    """Return the name of a trial group that does not exist.

    The group of a keeper that was killed during its trial is removed; processes in it are killed,
    and the next look or keeper removes it.
    """
    there = groups.names()
    for name in _TRIALS:
        if name not in there or groups.remove(name):
            return name
        groups.kill(name)
    raise OSError(errno.EBUSY, "the groups of earlier trials cannot be removed")


def _told(place: GroupRoot) -> FoundRoot:
    lacks = [name for name in CONTROLLERS if name not in place.folders]
    return FoundRoot(place, f"no limit of {' and '.join(lacks)}" if lacks else "")


def _separate(found: list[Hierarchy], name: str) -> GroupRoot | None:
    """Return the place of version 1: our own group of each controller, if it can be divided."""
    folders: dict[str, str] = {}
    homes: dict[str, None] = {}
    for hierarchy in found:
        for controller in CONTROLLERS:
            if controller not in hierarchy.options or not _may_divide(hierarchy.own):
                continue
            if os.access(f"{hierarchy.own}/tasks", os.W_OK):
                folders[controller] = f"{hierarchy.own}/{name}"
                homes[hierarchy.own] = None
    return GroupRoot(1, folders, tuple(homes)) if MEMORY in folders else None


def _unified(hierarchy: Hierarchy, name: str, *, disk: Disk) -> GroupRoot | None:
    """Return the place of version 2: the nearest group above with memory for its children.

    A group with processes cannot give any, so it is seldom our own. The keeper must be able to
    return to its own.
    """
    if not os.access(f"{hierarchy.own}/cgroup.procs", os.W_OK):
        return None
    group = hierarchy.own
    while True:
        if _may_divide(group) and os.access(f"{group}/cgroup.procs", os.W_OK):
            given = _controllers(group, disk)
            if MEMORY in given:
                folders = dict.fromkeys(given, f"{group}/{name}")
                return GroupRoot(2, folders, (hierarchy.own,))
        if group == hierarchy.mounted or len(group) < len(hierarchy.mounted):
            return None
        group = os.path.dirname(group)


def _controllers(group: str, disk: Disk) -> list[str]:
    """Return the controllers that the group's children have, or will have.

    A group without processes may still give all that it has, and so may the root.
    """
    empty = not read_file(f"{group}/cgroup.procs", disk).strip()
    is_root = not os.path.exists(f"{group}/cgroup.type")
    file = "cgroup.controllers" if empty or is_root else "cgroup.subtree_control"
    given = read_file(f"{group}/{file}", disk).decode().split()
    return [name for name in CONTROLLERS if name in given]


def _may_divide(group: str) -> bool:
    return os.access(group, os.W_OK | os.X_OK)
