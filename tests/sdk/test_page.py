"""The code of docs/sdk.md does what the page says, block after block, on a real minicluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e import cluster as c
from tests.house.tree import ROOT

PAGE = ROOT / "docs" / "sdk.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
OTHER = re.compile(r"^```(?!python$)\w+", re.M)


@pytest.mark.slow
def test_every_block_runs(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = BLOCK.findall(text)
    assert len(blocks) >= 6 and not OTHER.search(text), "a block of another language runs nowhere"
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks), encoding="utf-8")
    with c.running(tmp_path) as cluster:
        done = subprocess.run(
            [sys.executable, program],
            env=os.environ | {"PELOTON_API": cluster.address},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=c.WAIT_MAX_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("SUCCEEDED {'SUCCEEDED': 3}\n"), done.stdout
    assert "hello\n" in done.stdout and "job not found ('NOT_FOUND'" not in done.stdout
    for said in ("1024\n332833500\n", "hello ada", "8\n8\n", "[1, 2]\n", "[5, 4, 3, 2, 1]\n"):
        assert said in done.stdout, "of the section on the executor"
    assert done.stdout.endswith("1000\n")
