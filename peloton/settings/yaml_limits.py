"""Limits of YAML input: its size, its depth, and the expansion of aliases.

Turns a file into text and a text into "may be loaded", event by event, before any loader builds a
tree: the loader of libyaml recurses in C, and a file of 100 KB that nests 100,000 lists ends the
process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import yaml

FILE_BYTES_MAX = 128 * 1024 * 1024
DEPTH_MAX = 100
"""The deepest spec that has a meaning nests less than twenty levels."""
TOO_DEEP = f"nested more than {DEPTH_MAX} levels deep"
TOO_DEEP_OF_LIBYAML = "exceeded maximum nesting depth"
"""What newer ones say, whose scanner looks ahead of the events, and has a higher limit."""
MERGE = "tag:yaml.org,2002:merge"
SECRET = "not YAML, a tag, or a key given twice; not repeated here, as it may be a secret"
ALIASED_NODES_MAX = 1_000_000
"""Nodes that aliases expand to, counted at each use."""


class BadYaml(Exception):
    """The text cannot be used; `line` is counted from 1, 0 if there is none."""

    def __init__(self, text: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {text}" if line else text)
        self.text = text
        self.line = line


class _Open(NamedTuple):
    """A list or mapping that has begun; `counts` has the counts so far."""

    anchor: str | None
    counts: list[int]  # nodes, height


def text_of(path: Path) -> str:
    """Return the text of a file. Raises BadYaml, OSError."""
    with path.open("rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise BadYaml(f"larger than {FILE_BYTES_MAX // 1024 // 1024} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadYaml("no text in UTF-8", line) from None


def load(text: str, loader: Any) -> Any:
    """Return what the loader makes of the text. Raises BadYaml."""
    try:
        check(text, loader)
        return yaml.load(text, loader)  # noqa: S506 - callers pass safe ones
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        if error.problem == TOO_DEEP_OF_LIBYAML:
            raise BadYaml(TOO_DEEP, line) from None
        raise BadYaml(f"not YAML: {error.problem}", line) from None
    except yaml.YAMLError as error:
        raise BadYaml(f"not YAML: {error}") from None
    except (ValueError, OverflowError) as error:
        # A value in the form of a number or a date that is invalid: 2026-13-45.
        raise BadYaml(f"not YAML: {error}") from None
    except (AttributeError, LookupError, TypeError):
        # The loader fails so at `!!timestamp x`, `!!bool x` and `!!int ''`.
        raise BadYaml("not YAML: a value does not have the form of its tag") from None


def load_secret(text: str, loader: Any) -> Any:
    """Load a text with secrets: BadYaml has the line, and repeats nothing of the text."""

    class Marked(loader):  # type: ignore[misc]
        """A loader that has the place of a value without the form of a number or a date."""

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            try:
                return super().construct_object(node, deep)
            except (ValueError, OverflowError, AttributeError, LookupError, TypeError):
                raise yaml.MarkedYAMLError(problem_mark=node.start_mark) from None

    try:
        return load(text, Marked)
    except BadYaml as error:
        raise BadYaml(SECRET, error.line) from None


def duplicate_key(node: Any) -> Any | None:
    """Return the node of the first key that a mapping has twice; None if there is none.

    A loader would silently take the last value, while the writer may look at the first.
    """
    seen: set[str] = set()
    for key, _ in node.value:
        if key.tag == MERGE or not isinstance(key.value, str):
            continue
        if key.value in seen:
            return key
        seen.add(key.value)
    return None


def check(text: str, loader: Any) -> None:
    """Refuse a text that nests too deep, or expands too far. Raises BadYaml, YAMLError."""
    anchors: dict[str, tuple[int, int]] = {}
    inside: list[_Open] = []
    aliased = 0
    for event in yaml.parse(text, loader):
        if isinstance(event, yaml.CollectionStartEvent):
            inside.append(_Open(event.anchor, [1, 1]))
            height = 0
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, (nodes, height) = inside.pop()
            if anchor:
                anchors[anchor] = nodes, height
            _add(inside, nodes, height=height)
            continue
        elif isinstance(event, yaml.AliasEvent):
            if any(one.anchor == event.anchor for one in inside):
                raise BadYaml(f"*{event.anchor} contains itself", _line(event))
            nodes, height = anchors.get(str(event.anchor), (1, 0))
            aliased += nodes
            _add(inside, nodes, height=height)
        elif isinstance(event, yaml.ScalarEvent):
            if event.anchor:
                anchors[event.anchor] = 1, 0
            _add(inside, 1, height=0)
            continue
        else:
            continue
        if len(inside) + height > DEPTH_MAX:
            raise BadYaml(TOO_DEEP, _line(event))
        if aliased > ALIASED_NODES_MAX:
            text = f"aliases expand to more than {ALIASED_NODES_MAX:,} values"
            raise BadYaml(text, _line(event))


def _add(inside: list[_Open], nodes: int, *, height: int) -> None:
    """Add the counts of what has ended to the innermost node that is still open."""
    if inside:
        counts = inside[-1].counts
        counts[0] += nodes
        counts[1] = max(counts[1], height + 1)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1
