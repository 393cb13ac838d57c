"""The program: `peloton`, or `python -m peloton`.

Holds the commands that start or inspect a process and hands all others to the command line.
Imports neither before it knows which.
"""

from __future__ import annotations

import io
import sys

from peloton.cli.lazy import LazyCommand
from peloton.cli.main import root, run

PROCESSES = {
    "daemon": LazyCommand(
        "peloton.daemon:command", "Run one daemon of a cluster, in the foreground."
    ),
    "minicluster": LazyCommand(
        "peloton.minicluster:command", "Run a whole cluster in this process, in the foreground."
    ),
    "schema": LazyCommand("peloton.schema:command", "Make the journal's tables on Cassandra."),
    "journal": LazyCommand("peloton.journal:command", "Look into a journal, running or stopped."),
    "features": LazyCommand(
        "peloton.features:command", "Raise what a fleet may write after an upgrade."
    ),
    "doctor": LazyCommand(
        "peloton.doctor:command", "Look whether the store keeps what we rely on."
    ),
}


def main() -> None:
    # A name that the terminal's encoding lacks is shown escaped, as on stderr.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run(root(PROCESSES)))


if __name__ == "__main__":
    main()
