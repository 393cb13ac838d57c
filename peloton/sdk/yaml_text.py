"""Reads YAML so that a scalar keeps its text as written.

No type is guessed: `value: 1.10`, `value: yes` and `value: 007` are texts where the field is a text
and numbers where it is a number, and only the field knows. So every scalar stays a `str` here,
except an empty or null one. A key that is given twice is an error: plain YAML silently takes the
last, and the writer looks at the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

from peloton.sdk.errors import BadSpec
from peloton.settings import yaml_limits, yaml_lines

Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TAG = "tag:yaml.org,2002:"


# An escape of JSON; the first alternative is a character beyond 16 bits, in two halves.
ESCAPE = re.compile(r"\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|\\.", re.IGNORECASE | re.DOTALL)


class Loader(Base):  # type: ignore[misc]
    """A safe loader whose scalars are texts."""


def scalar(loader: Any, node: Any) -> str:
    return loader.construct_scalar(node)


def mapping(loader: Any, node: Any) -> dict[Any, Any]:
    key = yaml_limits.duplicate_key(node)
    if key is not None:
        line = key.start_mark.line + 1
        raise BadSpec(f"given twice, the second time in line {line}", field=key.value)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


for kind in ("int", "float", "bool", "timestamp", "str"):
    Loader.add_constructor(TAG + kind, scalar)
Loader.add_constructor(TAG + "map", mapping)


class SecretLoader(Loader):
    """A loader whose errors give no more than the place."""


def secret_mapping(loader: Any, node: Any) -> dict[Any, Any]:
    key = yaml_limits.duplicate_key(node)
    if key is not None:
        raise yaml_limits.BadYaml("given twice", key.start_mark.line + 1)
    return mapping(loader, node)


SecretLoader.add_constructor(TAG + "map", secret_mapping)


def load_yaml(text: str, *, name: str = "the file", secret: bool = False) -> dict[str, Any]:
    """Return the document as plain Python, its top level a mapping.

    Errors repeat nothing of a `secret` one.
    """
    if text.lstrip().startswith("{"):
        text = ESCAPE.sub(whole_escape, text)
    try:
        data = (
            yaml_limits.load_secret(text, SecretLoader)
            if secret
            else yaml_limits.load(text, Loader)
        )
    except yaml_limits.BadYaml as error:
        where = f", line {error.line}" if error.line else ""
        raise BadSpec(f"{name}{where}: {error.text}") from None
    if not isinstance(data, dict):
        found = "" if secret else f", found {describe(data)}"
        raise BadSpec(f"{name}: expected keys and values{found}")
    return data


def whole_escape(found: re.Match[str]) -> str:
    """Return an escape as YAML writes it: only JSON has characters in two halves."""
    if not found[1]:
        return found[0]
    number = 0x10000 + ((int(found[1], 16) - 0xD800) << 10) + int(found[2], 16) - 0xDC00
    return f"\\U{number:08x}"


def lines_of(text: str, paths: Iterable[str]) -> list[int | None]:
    """Return the line of each path of keys and indexes, or of its longest prefix."""
    return yaml_lines.lines_of(text, paths, loader=Loader)


def describe(value: Any) -> str:
    """Return a value described in terms of YAML."""
    match value:
        case None:
            return "nothing"
        case dict():
            return "keys and values"
        case list() | tuple():
            return "a list"
        case _:
            return repr(value)
