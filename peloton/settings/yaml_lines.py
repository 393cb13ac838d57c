"""The line of a value in a YAML file, for errors that name its path of keys.

Turns a path such as `hosts[1].cpus` into a line. It is used only once something is wrong, so the
document is read anew rather than every value carrying its line. The text must have passed
`yaml_limits`: it is composed without limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

PART = re.compile(r"[^.\[\]]+")
FIELD = re.compile(r"(?P<path>\w[^\s:]*): .", re.DOTALL)
UNKNOWN = re.compile(r"(?:(?P<path>\w[^\s:]*): )?unknown field `(?P<name>[^`]+)`")


def line_of(text: str, path: str, *, loader: Any) -> int | None:
    """Return the line, counted from 1, of a path of keys and indexes, or of its longest prefix.

    Case and underscores do not count, as in specs.
    """
    return lines_of(text, (path,), loader=loader)[0]


def lines_of(text: str, paths: Iterable[str], *, loader: Any) -> list[int | None]:
    """Return the lines of several paths; the document is read once."""
    root = yaml.compose(text, loader)
    return [_line_below(root, path) for path in paths]


def _line_below(root: Any, path: str) -> int | None:
    node, line = root, None
    for part in PART.findall(path):
        found = _below(node, part)
        if found is None:
            break
        mark, node = found
        line = mark.start_mark.line + 1
    return line


def with_line(error: str, text: str, *, loader: Any) -> str:
    """Return an error about a field behind its line; as it is without one."""
    unknown = UNKNOWN.match(error)
    named = FIELD.match(error)
    if unknown is not None:
        path = f"{unknown['path'] or ''}.{unknown['name']}"
    elif named is not None:
        path = named["path"].partition("[...]")[0]
    else:
        return error
    line = line_of(text, path, loader=loader)
    return error if line is None else f"line {line}: {error}"


def _below(node: Any, part: str) -> tuple[Any, Any] | None:
    """Return the node that marks the position, and the value there."""
    if isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
        item = node.value[int(part)]
        return item, item
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if str(key.value).replace("_", "").lower() == part.replace("_", "").lower():
            return key, value
    return None
