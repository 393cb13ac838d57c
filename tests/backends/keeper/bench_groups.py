"""The control groups of a keeper that a test has killed: which are left, and away with them.

Only a successor would remove them, and the folder of a test gets none.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from peloton.backends.keeper.group_roots import find_root
from peloton.backends.keeper.processes import folder_number

DEADLINE_S = float(os.environ.get("PELOTON_TEST_DEADLINE_S", "60"))


def groups_left(path: Path) -> list[Path]:
    """The folders of its control groups, innermost first."""
    place = find_root("any").place
    name = f"peloton-*-{folder_number(str(path)).replace(':', '-')}"
    parents = {Path(one).parent for one in place.folders.values()} if place else set()
    found = [one for parent in parents for one in parent.glob(name)]
    return [*(one for base in found for one in base.iterdir() if one.is_dir()), *found]


def remove_groups(path: Path) -> None:
    """Those of a keeper that was killed, once what was in them has ended."""
    deadline = time.monotonic() + DEADLINE_S
    while (left := groups_left(path)) and time.monotonic() < deadline:
        for one in left:
            with contextlib.suppress(OSError):
                one.rmdir()
