"""The program: `peloton`, or `python -m peloton`.

Holds the commands that start or inspect a process and hands all others to the command line.
Imports neither before it knows which.
"""

from __future__ import annotations

import io
import signal
import sys

from peloton.cli.main import root, run_cli
from peloton.cli.shared.lazy import LazyCommand

PROCESSES = {
    "daemon": LazyCommand(
        "peloton.processes.daemon:command",
        "Run one daemon of a cluster, in the foreground.",
    ),
    "minicluster": LazyCommand(
        "peloton.processes.minicluster:command",
        "Run a whole cluster in this process, in the foreground.",
    ),
    "schema": LazyCommand(
        "peloton.commands.schema:command",
        "Create the journal's tables in Cassandra.",
    ),
    "journal": LazyCommand(
        "peloton.commands.journal:command",
        "Read a journal, running or stopped.",
    ),
    "backup": LazyCommand(
        "peloton.commands.backup:command",
        "Back up a data folder, also of a running cluster.",
    ),
    "restore": LazyCommand(
        "peloton.commands.backup:restore_command",
        "Restore a backup into a new data folder.",
    ),
    "features": LazyCommand(
        "peloton.commands.features:command",
        "Show or raise the feature level of a fleet after an upgrade.",
    ),
    "chaos": LazyCommand(
        "peloton.commands.chaos:command",
        "Play storms of faults over the kinds of an extension.",
    ),
    "doctor": LazyCommand(
        "peloton.commands.doctor:command",
        "Check that the store guarantees what the journal needs.",
    ),
}


LONG_LIVED = ("daemon", "minicluster")


def main() -> None:
    # To be told to reload must not end what is just starting, and reads its files anyway. An end
    # of the terminal that is to be ignored (`nohup`) stays so.
    stays = sys.argv[1:2] and sys.argv[1] in LONG_LIVED
    if stays and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda *_: None)
    # Characters that the terminal's encoding does not have are escaped, as on stderr.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run_cli(root(PROCESSES)))


if __name__ == "__main__":
    main()
