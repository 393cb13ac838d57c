"""The port to files that come with jobs: what may come, and who keeps it where tasks find it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

FILE_BYTES_MAX, FILES_BYTES_MAX = 4 * 1024 * 1024, 32 * 1024 * 1024
"""Of one file, and of all that come with a job."""
FILES_MAX = 1000
"""Of a job: each is made safe on the disk by itself."""
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}", re.ASCII)


NO_FILES_OF = "there are no files of job {job}, or no longer"


class OtherFiles(Exception):
    """A job has files already, and they differ."""


class NoFilesOfOther(Exception):
    """The job whose files another job was to have has none."""


class JobFileStore(Protocol):
    """A store from which tasks get the files of their job."""

    def put(self, job: str, files: Mapping[str, bytes]) -> bool:
        """Keep the files of a job, by name; return False if they exist. Raises
        OtherFiles, OSError."""

    def share(self, job: str, of: str) -> bool:
        """Give a job another one's files; return False if it has them.

        The bytes are shared, and go with the last of the jobs that have them. Raises OtherFiles,
        NoFilesOfOther, OSError.
        """

    def remove(self, job: str) -> None:
        """Remove the files of a job, if there are any. Raises OSError."""


def problem_of(files: Mapping[str, bytes]) -> str:
    """Return what is wrong with the files of a request; empty if nothing is."""
    if len(files) > FILES_MAX:
        return f"{len(files)} files, the limit is {FILES_MAX}"
    for name, data in files.items():
        if not NAME.fullmatch(name):
            return f"{name[:100]!r} is no name of letters, digits and . _ -"
        if len(data) > FILE_BYTES_MAX:
            return f"{name} has {len(data)} bytes, the limit is {FILE_BYTES_MAX}"
    size_bytes = sum(map(len, files.values()))
    if size_bytes > FILES_BYTES_MAX:
        return f"{size_bytes} bytes in all, the limit is {FILES_BYTES_MAX}"
    return ""
