"""A short storm over real daemons on real servers, as `script/nemesis` runs it.

What it may find is listed in `peloton/chaos/nemesis/verdict.py`; here only that it finds nothing,
that something happened, and that nothing of it is left.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

MINUTES = 1.5
SEED = 4
OPERATIONS_MIN = 150
WITHIN_S = 560


def left_over(folder: Path) -> list[str]:
    """Command lines of processes that know this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue  # it has just ended
        if str(folder).encode() in words:
            found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found


@pytest.mark.slow
@pytest.mark.timeout(WITHIN_S + 30)
def test_nothing_is_found_after_a_short_storm(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "storm"
    words = ["--minutes", str(MINUTES), "--seed", str(SEED), "--keep", str(folder)]
    done = subprocess.run(
        [sys.executable, str(root / "script" / "nemesis"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    told = (folder / "timeline.log").read_text()[-20_000:]
    assert done.returncode == 0, f"{done.stdout[-5000:]}\n{told}"
    line = done.stdout.splitlines()[-1]
    assert line.startswith("nemesis: ") and " 0 lost, 0 findings" in line, line
    operations = re.search(r"(\d+) operations", line)
    assert operations is not None and int(operations[1]) >= OPERATIONS_MIN, line
    assert left_over(folder) == []
