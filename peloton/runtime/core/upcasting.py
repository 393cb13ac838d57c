"""Upcasting: converts stored values of older schemas to today's, step by step.

A class that changes in more than fields added at the end gets a higher schema number, and one step
(upcaster) from each older number to the next. A step is a pure function of the decoded but untyped
value (lists, strings, numbers, bytes). It must not guess: a schema without a step is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peloton.runtime.vocabulary import Kind, Upcast


class UnknownFact(Exception):
    """Stored bytes that this program cannot read: an unknown number, or an unknown schema."""


class MissingUpcaster(UnknownFact):
    """Stored bytes of an older schema, without a registered step to today's."""


def upcast(raw: Any, steps: Mapping[int, Upcast], *, what: str, forms: tuple[int, int]) -> Any:
    """The untyped value in today's schema; `forms` is its schema and today's."""
    schema, today = forms
    if schema > today:
        raise UnknownFact(f"{what} of schema {schema}, this program knows {today}")
    for form in range(schema, today):
        step = steps.get(form)
        if step is None:
            text = f"no upcaster leads from {form} to {form + 1}"
            raise MissingUpcaster(f"{what} of schema {schema}, today's is {today}: {text}")
        raw = step(raw)
    return raw


def upcast_columns(
    kind: Kind, same: dict[str, Any], *, each: dict[str, list[Any]], schema: int
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Columns of an older schema in today's; columns that do not exist any more are left out."""
    assert kind.crowd is not None
    known = {"since": None, **kind.crowd.columns}

    def today(name: str, value: Any) -> Any:
        steps = kind.crowd.upcasters.get(name, {}) if kind.crowd is not None else {}
        for form in range(schema, kind.schema):
            if form in steps and value is not None:
                value = steps[form](value)
        return value

    return (
        {name: today(name, value) for name, value in same.items() if name in known},
        {
            name: [today(name, value) for value in values]
            for name, values in each.items()
            if name in known
        },
    )
