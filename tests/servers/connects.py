"""Counts the TCP connections that a Python program makes, by port.

The program runs in a process of its own, because an audit hook cannot be removed.
"""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, sys
from collections import Counter

made = Counter()

def hook(event, args):
    if event == "socket.connect" and isinstance(args[1], tuple):
        made[args[1][1]] += 1

sys.addaudithook(hook)
{program}
print(json.dumps(made))
"""


def made_by(program: str) -> dict[int, int]:
    """How often it connected to which port, whether or not anybody listens there."""
    words = [sys.executable, "-c", PROGRAM.format(program=program)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    return {int(port): count for port, count in found.items()}


def made_by_check(config: str) -> dict[int, int]:
    """The same of `daemon --check` on a file."""
    return made_by(f"""
from pathlib import Path
from peloton.processes.preflight import of_daemon
from peloton.settings.daemon import read_settings

of_daemon(read_settings(Path({config!r})))
""")


def made_by_opening_cassandra(config: str) -> dict[int, int]:
    """The same of one connection to the Cassandra of that file."""
    return made_by(f"""
from pathlib import Path
from peloton.failures import CannotStart
from peloton.assembly.servers import open_cassandra
from peloton.settings.daemon import read_settings

try:
    open_cassandra(read_settings(Path({config!r})).journal.cassandra, connect_s=3.0).close()
except CannotStart:
    pass
""")
