"""`docs/extensions.md` and the lock's README do as they say: each of their blocks is run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.sdk.kit.checking import problems
from peloton.settings.permissions_file import OF_KIND, read_access
from tests.conftest import ROOT
from tests.e2e.cluster import running
from tests.e2e.extensions.distributions import LEASE_LOCK, lease_lock

PAGE = (ROOT / "docs" / "extensions.md").read_text()
README = (LEASE_LOCK / "README.md").read_text()
ADDRESS = '"localhost:5392"'


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


KIND, USE, LIMITS = blocks(PAGE, "python")
(TOML,) = blocks(PAGE, "toml")
(INSTALL,) = blocks(PAGE, "bash")
(RULES,) = blocks(PAGE, "yaml")


@pytest.fixture
def vote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder that the page says to make."""
    folder = tmp_path / "votes"
    folder.mkdir()
    (folder / "vote.py").write_text(KIND)
    (folder / "pyproject.toml").write_text(TOML)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop("vote", None)


def test_every_block_of_the_pages_is_known_here() -> None:
    assert len(re.findall(r"^```\w", PAGE, re.MULTILINE)) == 6
    assert len(re.findall(r"^```\w", README, re.MULTILINE)) == 2


def test_the_kind_of_the_page_and_its_limits_can_work(vote: Path) -> None:
    names: dict[str, object] = {}
    exec(LIMITS, names)
    import vote as module  # type: ignore[import-not-found]

    for kind in (module.VOTE, names["SMALL"]):
        wrong = [line for line in problems(kind) if "it decides no message" not in line]  # type: ignore[arg-type]
        assert not wrong
    assert problems(module.VOTE) == []
    entries = tomllib.loads(TOML)["project"]["entry-points"]
    assert entries == {"peloton.kinds": {module.VOTE.name: "vote:VOTE"}}


def test_the_rules_of_the_page_are_rules(tmp_path: Path) -> None:
    file = tmp_path / "access.yaml"
    file.write_text(RULES)
    assert read_access(file)[f"{OF_KIND}vote"].keys() == {"submit", "see"}


@pytest.mark.slow  # pip, and a cluster
def test_the_first_extension_runs_as_the_page_says(
    tmp_path: Path, vote: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip, cluster_ = (shlex.split(line) for line in INSTALL.splitlines())
    assert pip[:2] == ["pip", "install"] and cluster_ == ["peloton", "minicluster"]
    site = tmp_path / "site"
    # Into a folder of its own, and without a network.
    more = ["--target", str(site), "--no-deps", "--no-build-isolation", "--no-index", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", *pip, *more],
        cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("PYTHONPATH", str(site))
    with running(tmp_path) as cluster:
        assert USE.count(ADDRESS) == 1
        exec(USE.replace(ADDRESS, repr(cluster.address)), {})
        with cluster.client() as client:
            votes = client.actors("vote")
            story = cluster.cli("story", "vote/lunch").stdout
            assert "ann voted" in story and "bob voted" in story
            assert [name for name, _ in votes.all()] == ["lunch"]


@pytest.mark.slow  # a cluster
def test_the_readme_of_the_lock_does_as_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (use,) = blocks(README, "python")
    (install,) = blocks(README, "bash")
    assert (ROOT / install.split()[2] / "pyproject.toml").is_file()
    monkeypatch.setenv("PYTHONPATH", str(lease_lock(tmp_path / "site")))
    written: list[tuple[str, int]] = []

    class Store:
        def write(self, part: str, *, token: int) -> None:
            written.append((part, token))

    with running(tmp_path) as cluster:
        assert use.count(ADDRESS) == 1
        names = {"parts": ("a", "b"), "store": Store()}
        exec(use.replace(ADDRESS, repr(cluster.address)), names)
        assert written == [("a", 1), ("b", 1)]
