"""Files that come with jobs, in the keeper's folder: scripts too long for a config.

Turns the files of a job into a folder that its tasks find as `$PELOTON_KEEPER/files/JOB`, whole or
not at all. The files are there before the job is, and no keeper knows of them. A file that a run
may be reading is never changed.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from peloton.backends.keeper.disk import sync_folder, write_all
from peloton.runtime.job_files import NO_FILES_OF, NoFilesOfOther, OtherFiles

FOLDER = "files"
FREE_BYTES_MIN = 256 * 1024 * 1024
"""What stays free on the disk: the journal may be on the same."""
_DRAFT = "."
_PASSED, _RUN = 0o711, 0o755
"""Tasks may run as other accounts; who may not pass the folders above finds nothing here."""


class JobFileFolder:
    """A JobFileStore in the folder of one keeper."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER

    def put(self, job: str, files: Mapping[str, bytes]) -> bool:
        """Keep the files of a job, by name; return False if they exist. Raises
        OtherFiles, OSError."""
        self._folder.mkdir(exist_ok=True)
        self._folder.chmod(_PASSED)  # whatever the umask: tasks may run as other accounts

        def same(name: str, path: Path) -> bool:
            return path.read_bytes() == files[name]

        def write(draft: str) -> None:
            size_bytes = sum(map(len, files.values()))
            if shutil.disk_usage(draft).free < size_bytes + FREE_BYTES_MIN:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), draft)
            for name, data in files.items():
                _write(os.path.join(draft, name), data)

        return self._placed(job, names={*files}, same=same, fill=write)

    def share(self, job: str, of: str) -> bool:
        """Give a job another one's files; return False if it has them.

        The bytes are shared, and go with the last of the jobs that have them. Raises OtherFiles,
        NoFilesOfOther, OSError.
        """
        source = self._folder / of
        try:
            names = {*os.listdir(source)}

            def same(name: str, path: Path) -> bool:
                return path.samefile(source / name)

            def link(draft: str) -> None:
                for name in names:
                    os.link(source / name, os.path.join(draft, name))

            return self._placed(job, names=names, same=same, fill=link)
        except FileNotFoundError:
            raise NoFilesOfOther(NO_FILES_OF.format(job=of)) from None

    def _placed(
        self,
        job: str,
        *,
        names: set[str],
        same: Callable[[str, Path], bool],
        fill: Callable[[str], None],
    ) -> bool:
        """Fill a folder and make it the job's, unless the job has one with the same files."""
        draft = tempfile.mkdtemp(prefix=_DRAFT, dir=self._folder)
        try:
            if self._has(job, names, same=same):
                return False
            fill(draft)
            os.chmod(draft, _PASSED)
            sync_folder(draft)
            os.rename(draft, self._folder / job)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY):  # another copy of the request
                if self._has(job, names, same=same):
                    return False
                return self._placed(job, names=names, same=same, fill=fill)  # it was withdrawn
            raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        sync_folder(str(self._folder))
        return True

    def remove(self, job: str) -> None:
        """Remove the files of a job, if there are any. Raises OSError."""
        gone = tempfile.mkdtemp(prefix=_DRAFT, dir=self._folder)
        try:
            os.rename(self._folder / job, gone)  # whole or not at all, as they came
        except FileNotFoundError:
            pass
        finally:
            shutil.rmtree(gone)

    def made(self) -> dict[str, float]:
        """Return when each job's files were stored, in seconds since the epoch. Raises OSError.

        Drafts that a crash left count as files of jobs that nobody knows.
        """
        try:
            with os.scandir(self._folder) as found:
                return {one.name: one.stat().st_mtime for one in found}
        except FileNotFoundError:
            return {}

    def _has(self, job: str, names: set[str], *, same: Callable[[str, Path], bool]) -> bool:
        folder = self._folder / job
        if not folder.is_dir():
            return False
        if {*os.listdir(folder)} != names or not all(same(name, folder / name) for name in names):
            raise OtherFiles(f"there are other files of job {job}")
        return True


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _RUN)
    try:
        write_all(fd, data)
        os.fchmod(fd, _RUN)  # whatever the umask of a daemon
        os.fsync(fd)
    finally:
        os.close(fd)
