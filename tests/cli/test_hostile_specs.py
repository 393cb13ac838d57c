"""Specs and config files that were spoilt: an error of one line that names its place, or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peloton.api.v0.job.job_pb2 import JobConfig
from peloton.api.v0.respool.respool_pb2 import ResourcePoolConfig
from peloton.sdk import specs
from peloton.sdk.errors import BadSpec
from peloton.sdk.yaml_text import load_yaml
from peloton.settings.config import BadSetting
from peloton.settings.daemon import read_settings
from tests.cli.terminal import terminal
from tests.conftest import ROOT

EXAMPLES = ROOT / "examples"
JOB = (EXAMPLES / "hello_world_job.yaml").read_text()
POOL = (EXAMPLES / "hello_world_pool.yaml").read_text()
CONFIGS = tuple((EXAMPLES / f"{name}.yaml").read_text() for name in ("minicluster", "daemon"))
IN_JSON = json.dumps(
    {
        "name": "a 🚲",
        "instanceCount": 2,
        "defaultConfig": {"resource": {"cpuLimit": 1.5}, "command": {"shell": True, "value": "x"}},
        "instanceConfig": {"0": {"ports": [{"name": "x", "value": 1}]}},
    }
)
PIECES = (
    "!!python/object/apply:os.system ['x']", "!!binary 'A'", "!!set {a}", "!!timestamp 2001-01-01",
    "? [a]\n: b", "<<: *x", "<<: 3", "&a", "*a", "!!int 0x", "1_000", "1e400", ".inf", ".nan",
    "\u2028", "\ufeff", "\x85", "%YAML 9.9\n", "---\n", "...\n", "\t", "'", '"', '"\\ud800"',
    '"\\ud83d\\ude80"', "[" * 101, "{" * 101, "|\n", ">\n", "-", ":", "#", "9" * 5000, "~", "-1",
    "2001-12-14t21:59:43.10-05:00", "\0", "\x1b[2J", "[]", "{}", "null", "1:2:3", "=", "\U0010ffff",
)  # fmt: skip


@st.composite
def spoilt(draw: Any, texts: tuple[str, ...]) -> str:
    """A file with pieces put in, cut out, or in the place of a value."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        piece = draw(st.sampled_from(PIECES))
        colon = text.find(":", at)
        if colon >= 0 and draw(st.booleans()):
            end = text.find("\n", colon)
            text = f"{text[: colon + 1]} {piece}{text[end if end > 0 else len(text) :]}"
        else:
            text = text[:at] + piece + text[at + draw(st.integers(0, 9)) :]
    return text


@pytest.mark.parametrize("kind", [JobConfig, ResourcePoolConfig])
@settings(max_examples=150, deadline=None, database=None)
@given(text=spoilt((JOB, POOL, IN_JSON)))
def test_a_spoilt_spec_is_a_bad_spec(kind: Any, text: str) -> None:
    try:
        specs.build(kind, load_yaml(text, name="x.yaml"))
    except BadSpec as error:
        assert error.field or str(error).startswith("x.yaml"), str(error)


@settings(
    max_examples=100,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=spoilt(CONFIGS))
def test_a_spoilt_config_file_is_a_bad_setting(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text, encoding="utf-8", newline="")
    try:
        read_settings(file)
    except BadSetting as error:
        assert "x.yaml" in str(error), str(error)


def test_the_command_prints_a_line_for_each_mistake_that_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    with terminal() as type_in:

        @settings(max_examples=60, deadline=None, database=None)
        @given(text=spoilt((JOB, IN_JSON)))
        def each(text: str) -> None:
            file.write_text(text, encoding="utf-8", newline="")
            printed = type_in("job", "create", "/HelloWorldPool", str(file))
            assert "Traceback" not in printed.err
            if printed.code == 65:
                lines = printed.err.splitlines()
                assert 1 <= len(lines) <= specs.MISTAKES_MAX, printed.err
                assert all("x.yaml" in line for line in lines), printed.err

        each()


@pytest.mark.parametrize(
    "text", ["just text " * 300_000, f"name: {'x' * 500_000}\ninstanceCount: {'y' * 500_000}\n"]
)
def test_a_wrong_file_is_not_repeated_whole(tmp_path: Path, text: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with terminal() as peloton:
        printed = peloton("job", "create", "/hello", str(path))
    assert printed.code == 65 and len(printed.err) < 10_000
    assert str(path) in printed.err and "characters left out" in printed.err
