"""The gpus of this machine, as its driver lists them.

Turns files of the kernel into their number. Must not start a program of the driver: where that
hangs, so would the daemon. Tests name another root.
"""

from __future__ import annotations

import re
from pathlib import Path

MACHINE_ROOT = Path("/")
DRIVER = "proc/driver/nvidia/gpus"
"""One folder for each device that the driver runs, by its place on the bus."""
DEVICES = "dev"
_DEVICE = re.compile("nvidia[0-9]+")


def gpu_count(root: Path = MACHINE_ROOT) -> int:
    """What the driver lists; where it lists nothing (a container), the device files."""
    try:
        return len([*(root / DRIVER).iterdir()])
    except OSError:
        pass
    try:
        return sum(bool(_DEVICE.fullmatch(one.name)) for one in (root / DEVICES).iterdir())
    except OSError:
        return 0
