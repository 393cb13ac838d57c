"""Sandboxes: the folders of the runs, made once, kept for a while, removed by a helper.

Turns a run id into `runs/<run id>`, the working folder of the run. The folder records the id: as
long as it exists the id cannot be started again, even if the journal has lost it. The folder of a
run whose end is not acknowledged must not be removed.

The run's folder has no other folder within it: a file system may need most of a launch's time for a
new one.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Collection

from .accounts import Account, AccountUnusable, closed_above
from .disk import DISK, Disk, make_folder, sync_folder
from .kept import AGE, BYTES, COUNT, FREE, KeepRules, KeptSandbox, KeptSandboxes
from .kinds import FAILED, LOST, Record
from .removed import failed_runs, note_failed, note_removed

_RUNS = "runs"
_TRASH = "trash"
# Removing is left to `rm`: a sandbox may hold a million files, and the loop must not wait. It walks
# by descriptors and follows no link, whatever a process of the sandbox's account changes meanwhile.
_TRASH_BATCH_MAX = 1024
FREE_PART_MAX = 0.05
"""The reserve of a disk is no larger part of it, however much it is to be."""
FILES_MIN, FILES_PART = 10_000, 0.01
"""Likewise of files that can still be made: so many, or this part of all."""
_FILES_KIB = 1024


class SandboxFolders:
    def __init__(self, folder: str, *, rules: KeepRules, disk: Disk = DISK) -> None:
        self._folder = folder
        self._disk = disk
        self.kept = KeptSandboxes(self.path, rules)
        self._unmade: set[str] = set()
        self._failed: list[str] = []  # to be noted
        self._synced = False
        self.helper_pid = 0

    def open(self, unfinished: Collection[str]) -> None:
        """Take over the folders of an earlier keeper.

        Folders of acknowledged runs may be removed one day. Those of other runs that a power cut
        has undone are made again: their ids must stay taken.
        """
        if make_folder(_RUNS, self._disk):
            sync_folder(".", self._disk)  # a power cut would take it along with all ids in it
        if not is_private(self._disk.stat(_RUNS)):
            self._disk.chmod(_RUNS, 0o700)
        ages = []
        missing = set(unfinished)
        with self._disk.scandir(_RUNS) as entries:
            for entry in entries:
                missing.discard(entry.name)
                found = entry.stat(follow_symlinks=False)
                if found.st_mode & 0o077 and stat.S_ISDIR(found.st_mode):
                    self._disk.chmod(entry.path, 0o700)
                if entry.name not in unfinished:
                    ages.append((found.st_mtime, entry.name))
        for run_id in missing:
            self.make(run_id)
        failed = self._known_failed() if ages else set()
        for ended_at, name in sorted(ages):
            self.kept.add(name, ended_at, failed=name in failed)
        if ages:
            self.kept.spare()

    def _known_failed(self) -> set[str]:
        try:
            return failed_runs(self._disk)
        except OSError:
            return set()  # they go with the others

    def make(self, run_id: str) -> None:
        """Make the folder of a run. Raises FileExistsError if the id was used; OSError."""
        self._synced = False
        try:
            self._disk.mkdir(f"{_RUNS}/{run_id}", 0o700)
        except FileExistsError:
            raise
        except OSError:
            self._unmade.add(run_id)
            raise

    def takes_id(self, run_id: str) -> bool:
        """Return whether the folder of this unfinished run exists, so that its id stays taken.

        A folder that could not be made for the run is made now.
        """
        if run_id in self._unmade:
            try:
                make_folder(self.path(run_id), self._disk)
            except OSError:
                return False
            self._unmade.discard(run_id)
            self._synced = False
        return True

    def open_way(self, account: Account) -> None:
        """Let other accounts pass through our folders to their own; they see no names.

        Raises AccountUnusable where a folder above ours does not let this one pass, and OSError.
        """
        for folder in (self._folder, f"{self._folder}/{_RUNS}"):
            if not self._disk.stat(folder).st_mode & stat.S_IXOTH:
                self._disk.chmod(folder, 0o711)
        closed = closed_above(f"{self._folder}/{_RUNS}", account)
        if closed:
            why = f"it must not pass {closed}, where its sandbox is"
            raise AccountUnusable(f"cannot run as {account.name}: {why}")

    def path(self, run_id: str) -> str:
        """Return the path within the keeper's folder."""
        return f"{_RUNS}/{run_id}"

    def sync(self) -> None:
        """Make the folders safe on disk."""
        if not self._synced:
            sync_folder(_RUNS, self._disk)
            self._synced = True

    def finish(self, run_id: str, end: Record) -> None:
        """Take the journaled end of a run, and keep its sandbox."""
        failed = end["outcome"] in (FAILED, LOST)
        self.kept.add(run_id, failed=failed)
        if failed:
            self._failed.append(run_id)

    def prune(self) -> None:
        """Move the sandboxes that are to go to the trash, which one helper at a time deletes."""
        self.kept.measure()
        self._note_failed()
        if self.helper_pid:
            return  # what it makes free is not known yet
        due = self.kept.take_due(_TRASH_BATCH_MAX, short_kib=self._short_kib())
        try:
            if due and self._make_trash(due) and self._move(due):
                self.helper_pid = self._remove_trash()
        except OSError:
            return  # no process to be had: the next round that moves something tries again

    def _short_kib(self) -> int:
        """Return what the disk lacks of its reserve."""
        wanted_mb = self.kept.rules.free_mb
        if not wanted_mb:
            return 0
        try:
            found = self._disk.statvfs(self._folder)
        except OSError:
            return 0  # the next round asks again
        wanted = min(wanted_mb << 20, int(found.f_blocks * found.f_frsize * FREE_PART_MAX))
        short = wanted - found.f_bavail * found.f_frsize
        if found.f_files and found.f_favail < min(FILES_MIN, found.f_files * FILES_PART):
            short = max(short, _FILES_KIB * 1024)
        return max(0, -(-short // 1024))

    def _note_failed(self) -> None:
        failed, self._failed = self._failed, []
        try:
            note_failed(failed, disk=self._disk)
        except OSError:
            return  # a later keeper takes them for others

    def _make_trash(self, due: list[tuple[KeptSandbox, str]]) -> bool:
        """Make the trash; on a full disk the next round tries again."""
        try:
            make_folder(_TRASH, self._disk)
        except OSError:
            for kept, _ in due:
                self.kept.put_back(kept)
            return False
        return True

    def _move(self, due: list[tuple[KeptSandbox, str]]) -> bool:
        filled, moved = False, []
        for kept, rule in due:
            try:
                self._disk.rename(f"{_RUNS}/{kept.run_id}", f"{_TRASH}/{kept.run_id}")
                moved.append((kept.run_id, rule))
            except FileNotFoundError:
                continue  # it was removed by others
            except OSError as trouble:
                # The trash may still have one of this name.
                filled = filled or trouble.errno in (errno.EEXIST, errno.ENOTEMPTY)
                self.kept.put_back(kept)
        self._note(moved)
        return filled or bool(moved)

    def _note(self, moved: list[tuple[str, str]]) -> None:
        rules = self.kept.rules
        counts = {COUNT: rules.most, BYTES: rules.mb, FREE: rules.free_mb}
        limits = {AGE: rules.age_s, **{rule: float(most) for rule, most in counts.items()}}
        try:
            note_removed(moved, limits=limits, now=time.time(), disk=self._disk)
        except OSError:
            return  # on a full disk: it is there for people, and what is removed makes room

    def _remove_trash(self) -> int:
        command = ["rm", "-rf", "--", f"{self._folder}/{_TRASH}"]
        environment = {"PATH": os.environ.get("PATH", os.defpath)}
        return os.posix_spawnp("rm", command, environment)


def is_private(folder: os.stat_result) -> bool:
    """Return whether no other user can list the folder; root's may be passed."""
    mode = stat.S_IMODE(folder.st_mode)
    return not mode & 0o077 or (folder.st_uid == 0 and mode == 0o711)
