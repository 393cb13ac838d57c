"""A nemesis of the machine under the runs: it kills their keeper, and fills its disk.

Turns a keeper's folder into one on a disk of its own, if this process may mount one, and back into
a plain folder at the end. The disk of the machine must not be filled: if nothing can be mounted,
the keeper's files are limited in size instead, which its writes notice in the same way.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
from pathlib import Path

DISK_BYTES = 64 * 1024 * 1024
FILE_BYTES_MAX = 512
"""The limit on files: too small for a journal with runs, enough for what a run writes."""
_FILLER = "filler"
_BLOCK = bytes(1 << 16)


class KeeperMachine:
    """The keeper of one folder, and the disk that the folder is on."""

    def __init__(self, folder: Path, *, mount: bool = True) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)
        self.mounted = mount and self._mount()
        """Whether the folder has a disk of its own."""
        self._limited = 0

    def _mount(self) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tmpfs"]
        try:
            done = subprocess.run([*command, str(self.folder)], capture_output=True, check=False)
        except FileNotFoundError:
            return False
        return done.returncode == 0

    def keeper(self) -> int:
        """Return the pid of the keeper that runs; 0 if there is none."""
        with contextlib.suppress(OSError, ValueError):
            pid = int((self.folder / "lock").read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            return pid if os.fsencode(self.folder.resolve()) in command else 0
        return 0

    def kill_keeper(self) -> int:
        """Kill the keeper, as a crash would; return its pid, or 0 if there was none."""
        pid = self.keeper()
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return pid

    def fill(self) -> str:
        """Let the keeper's writes fail from now on; return how that was done."""
        if self.mounted:
            with (self.folder / _FILLER).open("ab", buffering=0) as file:
                for block in (_BLOCK, _BLOCK[:1]):
                    with contextlib.suppress(OSError):
                        while file.write(block):
                            pass
            return "its disk is full"
        self._limited = self.keeper()
        self._limit(FILE_BYTES_MAX)
        return f"its files are limited to {FILE_BYTES_MAX} bytes"

    def empty(self) -> None:
        """Let the keeper write again."""
        (self.folder / _FILLER).unlink(missing_ok=True)
        self._limit(resource.RLIM_INFINITY)
        self._limited = 0

    def _limit(self, size: int) -> None:
        """Set the soft limit; a keeper that was killed has a successor without one."""
        if self._limited and self._limited == self.keeper():
            with contextlib.suppress(ProcessLookupError):
                _, hard = resource.prlimit(self._limited, resource.RLIMIT_FSIZE)
                resource.prlimit(self._limited, resource.RLIMIT_FSIZE, (size, hard))

    def close(self) -> None:
        """Put the files of the disk into the folder. No process may use the disk any more."""
        if not self.mounted:
            return
        self.mounted = False
        (self.folder / _FILLER).unlink(missing_ok=True)
        aside = self.folder.with_name(f"{self.folder.name}.kept")
        try:
            # The socket of a keeper is no file that could be copied.
            shutil.copytree(self.folder, aside, ignore=shutil.ignore_patterns("socket"))
        except shutil.Error:
            pass  # it names what could not be copied; the rest is there, and the disk has to go
        finally:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)
        self.folder.rmdir()
        aside.rename(self.folder)
