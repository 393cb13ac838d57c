"""CPython's own tests of executors and futures, run on ours.

Debian has them as `libpython3.11-testsuite`, which `script/setup --test` installs; other Pythons
come with them. Those about processes, and those that name classes of `concurrent.futures` in
another process, do not apply.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

WITHIN_S = 250.0
ROOT = Path(__file__).resolve().parents[3]
PROGRAM = Path(__file__).parent / "standard_suite.py"
DEBIAN = Path("/usr/lib/python{}.{}/test/test_concurrent_futures.py".format(*sys.version_info))


def suite() -> Path | None:
    """Where the tests are that are for this version of Python."""
    if sys.version_info[:2] != (3, 11):
        return None  # later versions have cut the file up
    spec = importlib.util.find_spec("test")
    folders = (spec.submodule_search_locations or ()) if spec is not None else ()
    own = [Path(folder) / DEBIAN.name for folder in folders]
    return next((path for path in (*own, DEBIAN) if path.is_file()), None)


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "count"), [("local", 45), ("workers", 24)])
def test_what_of_the_standard_suite_applies(backend: str, count: int) -> None:
    found = suite()
    if found is None:
        pytest.skip("CPython's test_concurrent_futures of 3.11 is not installed")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(found), backend],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=WITHIN_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"ran {count} tests" in done.stdout, done.stdout
