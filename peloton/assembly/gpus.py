"""The gpus of this machine, as its driver lists them.

Turns files of the kernel into their number and their model. No program of the driver is started: if
it hangs, so would the daemon. Tests name another root.
"""

from __future__ import annotations

import re
from pathlib import Path

MACHINE_ROOT = Path("/")
DRIVER = "proc/driver/nvidia/gpus"
"""One folder for each device that the driver runs, by its place on the bus."""
MODEL_FILE, MODEL_LINE = "information", "Model:"
GPU_MODEL = "peloton.gpu.model"
"""The label of a host with the model of its gpus."""
MODEL_LENGTH_MAX = 100
DEVICES = "dev"
_DEVICE = re.compile("nvidia[0-9]+")


def gpu_count(root: Path = MACHINE_ROOT) -> int:
    """Return the number of gpus that the driver lists, or of device files in a container."""
    try:
        return len([*(root / DRIVER).iterdir()])
    except OSError:
        pass
    try:
        return sum(bool(_DEVICE.fullmatch(one.name)) for one in (root / DEVICES).iterdir())
    except OSError:
        return 0


def gpu_labels(root: Path = MACHINE_ROOT) -> dict[str, str]:
    """Return the model as an attribute of the host; none if the driver names none, or several."""
    found = {_model(device / MODEL_FILE) for device in _devices(root)}
    model = found.pop() if len(found) == 1 else ""
    return {GPU_MODEL: model} if model else {}


def _devices(root: Path) -> list[Path]:
    try:
        return sorted((root / DRIVER).iterdir())
    except OSError:
        return []


def _model(file: Path) -> str:
    """Return a model such as `Tesla T4`."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    for line in text.splitlines():
        if line.startswith(MODEL_LINE):
            words = " ".join(line.removeprefix(MODEL_LINE).split())
            return words[:MODEL_LENGTH_MAX] if words.isprintable() else ""
    return ""
