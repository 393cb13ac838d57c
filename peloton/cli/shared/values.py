"""Values typed on the command line: lists, labels, instance ranges, lengths of time, amounts.

Only their form is checked; whether they exist, the cluster says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
SPEC_FILE = click.Path(readable=False)
"""A file that a shell completes; whoever reads it says what is wrong with it."""
DURATION_S_MAX = 1e9
INSTANCE_MAX = 2**31 - 1
UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
PIECE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
UNITS_MB = {"": 1.0, "b": 1 / 1024**2, "k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024.0}
SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(?:([kmgt]?)(?:(?<=[kmgt])i?b)?|(b))", re.IGNORECASE)


def words(value: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return values separated by commas."""
    if isinstance(value, tuple):
        return value
    return tuple(part.strip() for part in value.split(",") if part.strip())


def labels(value: str | tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return key=value pairs separated by commas."""
    if isinstance(value, tuple):
        return value
    pairs = [pair.partition("=") for pair in words(value)]
    if not all(key and equals for key, equals, _ in pairs):
        raise click.BadParameter(f"{value!r} is not of the form key=value,key=value")
    return tuple((key, text) for key, _, text in pairs)


def from_to(value: str) -> tuple[int, int]:
    """Return FROM:TO, the second excluded; an omitted side is the first or the last there can be.

    A number alone is that instance.
    """
    if value.isascii() and value.isdecimal():
        value = f"{value}:{int(value) + 1}"
    first, colon, last = value.partition(":")
    try:
        low, high = int(first or 0), int(last or INSTANCE_MAX)
    except ValueError:
        low, high = -1, -1
    if not colon or low < 0 or high < 0:
        raise click.BadParameter(f"{value!r} is not of the form FROM:TO, such as 0:10 or 5:")
    if low > high:
        raise click.BadParameter(f"{value!r} ends before it begins")
    return min(low, INSTANCE_MAX), min(high, INSTANCE_MAX)


def range_text(some: tuple[int, int]) -> str:
    """Return a range as it is typed."""
    low, high = some
    if high == low + 1:
        return str(low)
    return f"{low}:" if high == INSTANCE_MAX else f"{low}:{high}"


def spans_text(instances: Iterable[int], most: int = 10) -> str:
    """Return instances as people read them, such as `0-2, 7`; of very many the first spans."""
    spans: list[list[int]] = []
    for one in sorted(instances):
        if spans and one == spans[-1][1] + 1:
            spans[-1][1] = one
        else:
            spans.append([one, one])
    texts = [str(low) if low == high else f"{low}-{high}" for low, high in spans[:most]]
    left = sum(high - low + 1 for low, high in spans[most:])
    return ", ".join([*texts, *([f"and {left} more"] if left else [])])


def duration(value: str | float) -> float:
    """Return seconds of a length of time as Go writes it (`20s`, `1m30s`); a bare number is
    seconds."""
    try:
        seconds = float(value)
    except ValueError:
        text = str(value)
        pieces = PIECE.findall(text)
        if not pieces or "".join(number + unit for number, unit in pieces) != text:
            text = f"{value!r} is not a duration, such as 20s or 1m30s"
            raise click.BadParameter(text) from None
        seconds = sum(float(number) * UNITS_S[unit] for number, unit in pieces)
    if not 0 <= seconds <= DURATION_S_MAX:  # nan is not in it either
        raise click.BadParameter(f"{value} is not between 0 and {DURATION_S_MAX:g} s")
    return seconds


def timeout(value: str | float) -> float:
    """Return a length of time in which a call can succeed."""
    seconds = duration(value)
    if not seconds:
        raise click.BadParameter("must be more than 0")
    return seconds


def header_text(value: str) -> str:
    """Return a text that is sent as metadata of a call, which gRPC wants in printable ASCII."""
    if not (value and value.isascii() and value.isprintable()):
        raise click.BadParameter(f"{value!r} is not text of printable ASCII characters")
    return value


def within(ranges: Iterable[tuple[int, int]], count: int) -> int:
    """Return how many of `count` instances lie in ranges, each counted once."""
    found, end = 0, 0
    for low, high in sorted(ranges):
        found += max(min(high, count) - max(low, end), 0)
        end = max(end, min(high, count))
    return found


COUNT = click.IntRange(0, INSTANCE_MAX)
LIMIT = click.IntRange(1, INSTANCE_MAX)
"""How many at most; a listing of none answers nothing."""
DAYS = click.IntRange(0, 36_500)
ALL_INSTANCES = (0, INSTANCE_MAX)
ranges_option = click.option(
    "-r",
    "--range",
    "ranges",
    type=from_to,
    multiple=True,
    metavar="FROM:TO",
    help="Instances FROM to TO (TO excluded), or one; repeatable.",
)


def range_option(what: str) -> Callable[[F], F]:
    """Return the option `--range` of a command that reads one range."""
    return click.option(
        "-r",
        "--range",
        "only",
        type=from_to,
        default=":",
        metavar="FROM:TO",
        help=f"{what} FROM to TO (TO excluded), or one.",
    )


opaque_option = click.option(
    "--opaque-data", "opaque", default="", help="Store this text with the workflow."
)


healthy_option = click.option(
    "--min-healthy-seconds", type=COUNT, show_default="5",
    help="Succeed only after every instance has stayed healthy for this long (0: do not wait).",
)  # fmt: skip


def numbers(values: Iterable[object]) -> str:
    """Return a list of numbers as Go prints it; the original's texts are made so."""
    return "[" + " ".join(str(value) for value in values) + "]"


def megabytes(value: str | float) -> float:
    """MB of 1024 * 1024 bytes, as the cluster counts them: `4g`, `1.5GiB` or `268435456b`; a bare
    number is MB."""
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
        raise click.BadParameter(f"{value!r} is not a number") from None
    if not 0 <= number < math.inf:
        raise click.BadParameter(f"{value} is not between 0 and infinity")
    return number
