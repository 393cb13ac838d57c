"""The option `--host-gpus`: a number of gpus, or all that this machine has.

Turns its word into the size of hosts. Must not check whether a number is whole: it is checked with
the other sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from peloton.assembly.gpus import GPU_MODEL, gpu_count, gpu_labels
from peloton.settings.config import BadSetting, HostSetting, labelled

AUTO = "auto"
_Optioned = TypeVar("_Optioned", bound=Callable[..., Any])


def number_or_auto(value: str) -> float | str:
    """AUTO or the number. Raises ValueError."""
    return AUTO if value == AUTO else float(value)


def gpu_option(command: _Optioned) -> _Optioned:
    """Add the option to a command."""
    return click.option(
        "--host-gpus",
        type=number_or_auto,
        metavar="N|auto",
        help="GPUs per host. auto: those of this machine, for its one host.  [default: auto for "
        "the host that is this machine, else 0]",
    )(command)


def sizes_given(options: Mapping[str, object], sizes: Sequence[str]) -> dict[str, float]:
    """Those of the options that name a number."""
    found = {name: options[f"host_{name}"] for name in sizes}
    return {name: size for name, size in found.items() if isinstance(size, (int, float))}


def auto_gpus(options: Mapping[str, object], *, hosts: int) -> dict[str, float]:
    """The size that `auto` is; nothing where another word stands."""
    if options["host_gpus"] != AUTO:
        return {}
    if hosts > 1:
        raise BadSetting("--host-gpus: auto is for one host: several would share the gpus")
    return {"gpus": float(gpu_count())}


def with_model(host: HostSetting, options: Mapping[str, object]) -> HostSetting:
    """The host with the model of this machine's gpus, if these are its gpus and no number given."""
    if options["host_gpus"] == AUTO:
        return labelled(host, gpu_labels())
    own = {name: value for name, value in host.attributes.items() if name != GPU_MODEL}
    return host if options["host_gpus"] is None else labelled(host, own)
