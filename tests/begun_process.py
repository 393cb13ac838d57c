"""A process that waits, of any name, whose words and variables are to be seen in /proc.

`Popen` returns before the kernel shows them, so that a test which looks at once sees none. This
one has spoken before it is returned.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path


def begun_process(
    name: str, *, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """It lives until it is killed, or until its input is closed."""
    process = subprocess.Popen(
        [name, "-c", "echo begun; read word"], executable="/bin/sh",
        cwd=cwd, env=dict(env or {}), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == b"begun\n"
    return process
