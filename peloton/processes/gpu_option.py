"""The value of `--host-gpus`: a whole number of gpus, or all that this machine has.

Turns a word into either. It must not look at the machine.
"""

from __future__ import annotations

import click

AUTO = "auto"


class GpuCount(click.ParamType[float | str]):
    """A number, or `auto`. Whether the number is whole is checked with the other sizes."""

    name = "gpus"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | str:
        """AUTO or the number."""
        if value == AUTO:
            return AUTO
        try:
            return float(str(value))
        except ValueError:
            self.fail(f"{value!r} is neither a number nor {AUTO}", param, ctx)
