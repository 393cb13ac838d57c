"""`script/nemesis` as a developer types it, for tests of what it says and what it leaves behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import processes

WITHIN_S = 560


def nemesis(root: Path, *words: str, folder: Path) -> str:
    """Its last line; an exit code other than 0 fails, with what it said and its timeline."""
    done = subprocess.run(
        [sys.executable, str(root / "script" / "nemesis"), *words, "--keep", folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    told = (folder / "timeline.log").read_text()[-20_000:]
    assert done.returncode == 0, f"{done.stdout[-5000:]}\n{told}"
    return done.stdout.splitlines()[-1]


def left_over(folder: Path) -> list[str]:
    """Command lines of processes that know this folder."""
    found = [one.words for one in processes.naming(folder)]
    return [words.replace(b"\0", b" ").decode(errors="replace") for words in found]
