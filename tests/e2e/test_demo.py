"""The demo does what it promises."""

from __future__ import annotations

import subprocess
import sys


def test_hello_world() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "peloton.demo"], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "HelloWorld: 10 of 10 SUCCEEDED" in done.stdout
