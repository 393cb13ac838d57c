"""YAML that is too deep, too large by aliases, or none at all: a typed error, and soon.

The loader of libyaml recurses in C: without the limits some of these end the whole process, so each
is tried in a process of its own as well.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from peloton.sdk.errors import BadSpec
from peloton.sdk.yaml_text import Loader, load_yaml
from peloton.settings import yaml_limits
from peloton.settings.config import SAFE, BadSetting
from peloton.settings.daemon import read_settings

EVENTS_MAX = 1000
"""Of the parser, until the text is refused; it has up to hundreds of thousands."""


def laughs(levels: int = 12, width: int = 12) -> str:
    """Each level lists the one before many times."""
    lines = ["a0: &a0 [x]"]
    for at in range(1, levels):
        lines.append(f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * width)}]")
    return "\n".join(lines)


def merged(levels: int = 12, width: int = 12) -> str:
    """The same with merge keys, which the loader itself expands."""
    lines = ["a0: &a0 {x: 1}"]
    for at in range(1, levels):
        lines.append(f"a{at}: &a{at} {{<<: [{', '.join([f'*a{at - 1}'] * width)}]}}")
    return "\n".join(lines)


def chain(links: int = 100_000) -> str:
    """Flat text that is deep all the same."""
    return "\n".join(["a0: &a0 [x]"] + [f"a{at}: &a{at} [*a{at - 1}]" for at in range(1, links)])


BAD = {
    "flow lists": ("a: " + "[" * 100_000, "nested more than 100 levels deep"),
    "flow mappings": ("{a: " * 100_000, "nested more than 100 levels deep"),
    "block mappings": (
        "\n".join(" " * at + "a:" for at in range(2000)),
        "nested more than 100 levels deep",
    ),
    "compact lists": ("- " * 100_000 + "a", "nested more than 100 levels deep"),
    "laughs": (laughs(), "aliases expand to more than 1,000,000 values"),
    "merged": (merged(), "aliases expand to more than 1,000,000 values"),
    "chain": (chain(), "nested more than 100 levels deep"),
    "itself": ("a: &a [*a]", "contains itself"),
    "unknown alias": ("a: *b", "undefined alias"),
    "control characters": ("a: \x00", "not YAML"),
    "not YAML": ("a: [", "not YAML"),
}
each = pytest.mark.parametrize(("text", "why"), BAD.values(), ids=BAD.keys())


@each
def test_it_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadSpec, match=why):
        load_yaml(text, name="x.yaml")


@pytest.mark.parametrize("loader", [Loader, SAFE])
@pytest.mark.parametrize("name", sorted({*BAD} - {"unknown alias"}))
def test_it_is_refused_early_and_no_tree_is_made(loader: Any, name: str) -> None:
    """But of one alias that the loader itself refuses."""
    (text, why), events = BAD[name], 0

    class Counted(loader):  # type: ignore[misc]
        """Counts what it is asked for."""

        def get_event(self) -> Any:
            nonlocal events
            events += 1
            return super().get_event()

        def get_single_node(self) -> Any:
            raise AssertionError("a tree is made")

    with pytest.raises(yaml_limits.BadYaml, match=why):
        yaml_limits.load(text, Counted)
    assert events <= EVENTS_MAX
    with pytest.raises(AssertionError, match="a tree is made"):
        yaml_limits.load("a: b", Counted)


@each
def test_settings_refuse_it_too(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(BadSetting, match=why):
        read_settings(file)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["daemon", "--config"], 64),
        (["minicluster", "--cluster"], 64),
        (["job", "create", "/pool"], 65),
        (["respool", "create", "/pool"], 65),
    ],
)
def test_no_command_is_ended_by_a_deep_file(command: list[str], code: int, tmp_path: Path) -> None:
    file = tmp_path / "deep.yaml"
    file.write_text(BAD["flow lists"][0])
    line = [sys.executable, "-m", "peloton", *command, str(file)]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert ended.returncode == code, ended.stderr
    assert "nested more than 100 levels" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1 and "Traceback" not in ended.stderr


def test_what_is_honest_is_loaded() -> None:
    shared = "base: &b {c: 1, d: [2, 3]}\nlist:\n" + "- *b\n" * 20_000
    assert len(load_yaml(shared)["list"]) == 20_000
    deep = "[" * 90 + "]" * 90
    assert yaml_limits.load(f"a: {deep}", Loader)


@pytest.mark.parametrize(
    "text",
    [
        "2026-13-45",
        "0b_",
        "9" * 5000,
        "!!int x",
        "!!float x",
        "!!timestamp x",
        "!!bool x",
        "!!int ''",
        "!!int []",
    ],
)
def test_a_value_that_only_looks_like_one_is_refused(text: str) -> None:
    with pytest.raises(yaml_limits.BadYaml, match="not YAML"):
        yaml_limits.load(f"a: {text}", SAFE)


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"a: \xff\xfe", "line 1: no text in UTF-8"), (b"a: 1\nb: \x80", "line 2: no text in UTF-8")],
)
def test_what_is_no_text_is_refused(data: bytes, why: str, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(data)
    with pytest.raises(BadSetting, match=why):
        read_settings(file)


def test_a_file_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_limits, "FILE_BYTES_MAX", 1024 * 1024)
    with pytest.raises(yaml_limits.BadYaml, match="larger than 1 MiB"):
        yaml_limits.text_of(Path("/dev/zero"))
