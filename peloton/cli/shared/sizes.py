"""Amounts of memory and disk as people type them, such as `4g`, `1.5GiB` or `268435456b`.

A bare number is MB.
"""

from __future__ import annotations

import math
import re

import click

UNITS_MB = {"": 1.0, "b": 1 / 1024**2, "k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024.0}
SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(?:([kmgt]?)(?:(?<=[kmgt])i?b)?|(b))", re.IGNORECASE)


def megabytes(value: str | float) -> float:
    """Return MB of 1024 * 1024 bytes, as the cluster counts them."""
    if isinstance(value, float):
        return value
    found = SIZE.fullmatch(value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is not a size, such as 512m or 4g")
    return float(found[1]) * UNITS_MB[(found[2] or found[3] or "").lower()]


def quantity(value: str | float) -> float:
    """Return a number of cpus or gpus."""
    try:
        number = float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no number") from None
    if not 0 <= number < math.inf:
        raise click.BadParameter(f"{value} is not between 0 and infinity")
    return number
