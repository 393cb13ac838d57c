"""What the descriptors of a process lead to."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def held_by(pid: int) -> list[str]:
    """The targets of all; some may be opened or closed meanwhile."""
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed meanwhile
            found.append(os.readlink(link))
    return found
