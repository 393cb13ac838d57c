"""Reads YAML so that a scalar keeps its text as written.

Must not guess types: `value: 1.10`, `value: yes` and `value: 007` are texts where the field is a
text and numbers where it is a number, and only the field knows. So every scalar stays a `str`
here, except an empty or null one. A key that is given twice is an error: plain YAML silently
takes the last, and the writer looks at the first.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from peloton import yaml_limits
from peloton.sdk.errors import BadSpec

Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
TAG = "tag:yaml.org,2002:"
PART = re.compile(r"[^.\[\]]+")


class Loader(Base):
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
    """The same, whose errors give no more than the place."""


def secret_mapping(loader: Any, node: Any) -> dict[Any, Any]:
    key = yaml_limits.duplicate_key(node)
    if key is not None:
        raise yaml_limits.BadYaml("given twice", key.start_mark.line + 1)
    return mapping(loader, node)


SecretLoader.add_constructor(TAG + "map", secret_mapping)


def load_yaml(text: str, *, name: str = "the file", secret: bool = False) -> dict[str, Any]:
    """The document as plain Python, its top level a mapping. Errors repeat nothing of a `secret`
    one."""
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


def line_of(text: str, path: str) -> int | None:
    """The line, counted from 1, of a path of keys and indexes, or of its longest prefix.

    Case and underscores do not count, as in specs. Only asked once something is wrong, so the
    document is read anew rather than every value carrying its line.
    """
    node, line = yaml.compose(text, Loader), None
    for part in PART.findall(path):
        found = _below(node, part)
        if found is None:
            break
        mark, node = found
        line = mark.start_mark.line + 1
    return line


def _below(node: Any, part: str) -> tuple[Any, Any] | None:
    """The node that marks the position, and the value there."""
    if isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
        item = node.value[int(part)]
        return item, item
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if str(key.value).replace("_", "").lower() == part.replace("_", "").lower():
            return key, value
    return None


def describe(value: Any) -> str:
    """A value described in terms of YAML."""
    match value:
        case None:
            return "nothing"
        case dict():
            return "keys and values"
        case list() | tuple():
            return "a list"
        case _:
            return repr(value)
