"""A keeper's folder and the cluster that it serves: claimed by one journal, and by no second one.

Turns (folder, cluster) into a folder that may be used, or into an error that names both clusters. A
folder must not be taken from another cluster by itself. Otherwise:

1. A keeper obeys the highest epoch it received for a host; its cluster's journal is lost.
2. A new journal begins with epoch 1; the keeper refuses every request that carries it.
3. Every host waits for ever for a list of its runs, and the runs of the old cluster live on.

A person may give the folder to another cluster (`adopt`): the runs in it end, because no task owns
them.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from peloton.backends.keeper import identity
from peloton.backends.keeper.journal import KeeperJournal, KeeperJournalFailed
from peloton.backends.keeper.kinds import LOST, KeeperRun, Memory, end_of
from peloton.backends.keeper.supervised import LOCK
from peloton.backends.keeper_calling import KeeperUnavailable, start_keeper
from peloton.runtime.adapters import private_folder

GENERATION_NAME = "generation"
LEAVE_S_MAX = 30.0
"""How long the keeper of a replaced folder may take to end its runs."""
_POLL_EVERY_S = 0.05
_NONE = {"value": "", "shell": False, "arguments": []}
_LOG = logging.getLogger("peloton.keeper")


class KeeperOwner(NamedTuple):
    """The cluster recorded in a keeper's folder: the id of its journal, and its name."""

    cluster_id: str
    name: str

    @property
    def mark(self) -> str:
        """The content of the folder's file."""
        return f"{self.cluster_id} {self.name}".strip()

    @property
    def text(self) -> str:
        """The cluster's name and id for people."""
        return f"cluster {self.name or '(without a name)'} (id {self.cluster_id or 'unknown'})"

    @classmethod
    def read(cls, mark: str) -> KeeperOwner:
        """Return the owner in the content of the folder's file."""
        cluster_id, _, name = mark.partition(" ")
        return cls(cluster_id, name)


class KeeperSeen(NamedTuple):
    """The cluster as the keeper's own journal has it: a witness of the daemon's journal.

    `epochs`: the highest epoch that it obeyed, by the name of the host.
    """

    owner: KeeperOwner
    epochs: dict[str, int]


class OwnedByAnother(Exception):
    """The folder was claimed by another cluster, or by another journal of the same name."""

    def __init__(self, folder: Path, *, known: KeeperOwner, wanted: KeeperOwner) -> None:
        super().__init__(f"keeper folder {folder} serves {known.text}, this is {wanted.text}")
        self.folder = folder
        self.known = known
        self.wanted = wanted


def claim(folder: Path, owner: KeeperOwner) -> None:
    """Bind the folder to this cluster. Raises OwnedByAnother, OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    known = KeeperOwner.read(identity.cluster_of(str(folder), owner.mark))
    # A name may be given to a cluster later; its journal's id is for good.
    if known.cluster_id != owner.cluster_id:
        raise OwnedByAnother(folder, known=known, wanted=owner)


def seen(folder: Path) -> KeeperSeen:
    """Return what the folder's keeper has seen, running or not. Raises OSError."""
    try:
        mark = (folder / identity.CLUSTER_NAME).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return KeeperSeen(KeeperOwner("", ""), {})
    epochs: dict[str, int] = {}
    for record in KeeperJournal(str(folder / "journal")).read():
        if record["is"] == "epoch":
            epochs[record["host"]] = record["epoch"]
    return KeeperSeen(KeeperOwner.read(mark), epochs)


def begin_generation(folder: Path, generation: int) -> None:
    """Let runs have ids of this generation of the cluster from now on. Raises OSError."""
    if generation <= generation_of(folder):
        return
    # Two daemons of a machine may begin at once.
    draft = f".{os.getpid()}"
    private_folder.replace(folder / GENERATION_NAME, f"{generation}\n", draft=draft)
    private_folder.sync(folder)


def generation_of(folder: Path) -> int:
    """Return how often a rollback of the cluster's journal was accepted."""
    try:
        return int((folder / GENERATION_NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return 0


def adopt(folder: Path, owner: KeeperOwner) -> Path:
    """End all runs of the folder, and begin an empty one for this cluster in its place.

    The old files are kept under another name, which is returned. Raises KeeperUnavailable if the
    runs cannot be ended, and OSError. The folder's keeper ends its runs by itself when its folder
    is gone; where no keeper is left, one is started to find them.
    """
    folder = folder.resolve()
    # Even if one seems to run: its socket accepts connections while it is being killed, and then
    # nobody would end the runs. A second keeper exits at once if the folder is locked.
    start_keeper(folder, [])
    fresh, aside = _free_name(folder, "new"), _free_name(folder, "old")
    claim(fresh, owner)
    folder.rename(aside)
    # Already claimed: a daemon of the other cluster that still runs is refused here.
    fresh.rename(folder)
    _await_end(aside)
    _LOG.warning("the runs of keeper folder %s were ended; its files are in %s", folder, aside)
    return aside


def disown(folder: Path, reason: str, *, runs: Iterable[tuple[str, str]] = ()) -> None:
    """End the runs of a folder that was copied or restored; no process is looked for.

    Its records are of processes that belong to the original: a keeper would adopt and kill them.
    The runs end as lost, for this reason, and the folder serves nobody. Runs that had ended keep
    their ends, and ids that were used stay taken. `runs` (ids, with their hosts) end as lost too
    where they are unknown: a host whose order seems to be lost would repeat it, and the original
    may have run it. Raises KeeperUnavailable, OSError.
    """
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (folder / "socket").unlink(missing_ok=True)
        memory = Memory("")
        records = KeeperJournal(str(folder / "journal"))
        memory.fold(records.read())
        # The owners of the hosts in another cluster begin with lower epochs than those recorded.
        memory.epochs.clear()
        for run_id, host in runs:
            if run_id not in memory.runs:
                memory.runs[run_id] = KeeperRun(run_id, host, command=_NONE, memory_mb=0.0)
                memory.runs[run_id].recorded = True
        for run in memory.runs.values():
            if run.end is None:
                run.end = end_of(LOST, reason=reason, at=time.time())
        records.rewrite(memory.records())
        records.close()
        (folder / identity.CLUSTER_NAME).unlink(missing_ok=True)
    except BlockingIOError:
        raise KeeperUnavailable(f"a keeper runs in {folder}") from None
    except KeeperJournalFailed as error:
        raise KeeperUnavailable(f"{folder}: {error}") from error
    finally:
        os.close(descriptor)


def _free_name(folder: Path, suffix: str) -> Path:
    number = 1
    while (found := folder.with_name(f"{folder.name}.{suffix}-{number}")).exists():
        number += 1
    return found


def _await_end(aside: Path) -> None:
    """Wait until the keeper and its supervisor have exited.

    The keeper exits when none of its runs is alive; until then the supervisor would start another
    one.
    """
    until = time.monotonic() + LEAVE_S_MAX
    for name in (LOCK, "lock"):
        _await_lock(aside / name, until)


def _await_lock(lock: Path, until: float) -> None:
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    text = (
                        f"the keeper of {lock.parent} has not ended its runs in {LEAVE_S_MAX:g} s"
                    )
                    raise KeeperUnavailable(text) from None
                time.sleep(_POLL_EVERY_S)
            else:
                return
    finally:
        os.close(descriptor)
