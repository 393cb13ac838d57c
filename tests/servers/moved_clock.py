"""`peloton` with another wall clock than the machine's: `moved_clock.py SECONDS WORD…`.

Turns a number of seconds into the wall time that a daemon reads when it starts, and whenever it
tells people the time. The monotonic clock, which no operator can set, is left as it is, and so is
what is compared with the clock of gRPC's core. Only for tests.
"""

from __future__ import annotations

import os
import runpy
import sys
import time

OWN = (
    "peloton.runtime.adapters.system_clock",
    "peloton.gateway.server.audit",
    "peloton.gateway.server.execution",
    "peloton.gateway.http_server",
    "peloton.gateway.ops.metrics",
    "peloton.gateway.v1alpha.service_changes",
    "peloton.assembly.owner_rights",
    "peloton.backends.health_loop",
    "peloton.backends.keeper_folder",
)
"""The modules of a daemon that read the wall clock for itself."""


class MovedTime:
    """The module `time`, with the wall clock moved."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)

    def time_ns(self) -> int:
        return time.time_ns() + int(self._seconds * 1e9)

    def time(self) -> float:
        """As in `time`, and so many seconds more."""
        return time.time() + self._seconds


def move(seconds: float) -> None:
    """Move the clock of each module that reads it."""
    for name in OWN:
        module = __import__(name, fromlist=["time"])
        assert module.time is time, f"{name} does not read the clock as it did"
        module.time = MovedTime(seconds)


def main() -> None:
    """Move the clock; then be `python -m peloton`."""
    # As `-m` does: the folder of the program is the one that it is started in.
    sys.path[0] = os.getcwd()
    move(float(sys.argv[1]))
    sys.argv[:] = ["peloton", *sys.argv[2:]]
    runpy.run_module("peloton", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
