"""Reads YAML so that a scalar keeps the letters its writer typed.

Must not guess types: `value: 1.10`, `value: yes` and `value: 007` are texts where the field is a
text and numbers where it is a number, and only the field knows. So every scalar stays a `str`
here, except an empty or null one. A key that is given twice is an error: plain YAML silently
takes the last, and the writer looks at the first.
"""

from __future__ import annotations

from typing import Any

import yaml

from peloton.sdk.errors import BadSpec

Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TAG = "tag:yaml.org,2002:"
MERGE = TAG + "merge"


class Loader(Base):
    """A safe loader whose scalars are texts."""


def scalar(loader: Any, node: Any) -> str:
    return loader.construct_scalar(node)


def mapping(loader: Any, node: Any) -> dict[Any, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        if key.tag != MERGE and isinstance(key.value, str):
            if key.value in seen:
                line = key.start_mark.line + 1
                raise BadSpec(f"given twice, the second time in line {line}", field=key.value)
            seen.add(key.value)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


for kind in ("int", "float", "bool", "timestamp", "str"):
    Loader.add_constructor(TAG + kind, scalar)
Loader.add_constructor(TAG + "map", mapping)


def load(text: str, *, name: str = "the file") -> dict[str, Any]:
    """The document as plain Python, its top level a mapping."""
    try:
        data = yaml.load(text, Loader)  # noqa: S506 - made from the safe one
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise BadSpec(f"{name}{where}: not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise BadSpec(f"{name}: not YAML: {error}") from None
    if not isinstance(data, dict):
        raise BadSpec(f"{name}: expected keys and values, found {describe(data)}")
    return data


def describe(value: Any) -> str:
    """A value in the words of someone who writes YAML."""
    match value:
        case None:
            return "nothing"
        case dict():
            return "keys and values"
        case list() | tuple():
            return "a list"
        case _:
            return repr(value)
