"""The environment variables that tell a run its gpus.

Turns device indices into variables of its environment, in the words of the libraries that read
them. The variables do not keep a program from other devices: a run that unsets them sees all of the
machine. Without devices (None) the run's own variables stand.
"""

from __future__ import annotations

from collections.abc import Sequence

CUDA, CUDA_ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
NVIDIA = "NVIDIA_VISIBLE_DEVICES"
"""Read by runtimes of containers; images with CUDA set it to all."""
NO_GPU = "void"


def gpu_variables(devices: Sequence[int] | None, *, contained: bool) -> dict[str, str]:
    """Return the variables of a run with these devices; `contained`: it has no others."""
    if devices is None:
        return {}
    indices = ",".join(map(str, devices))
    # In a container its devices are numbered anew.
    seen = ",".join(map(str, range(len(devices)))) if contained else indices
    return {
        CUDA: seen,
        # So that an index means the same device as in the lists of the driver.
        CUDA_ORDER: "PCI_BUS_ID",
        NVIDIA: indices or NO_GPU,
    }
