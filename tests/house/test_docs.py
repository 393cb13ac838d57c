"""What the documentation names is there.

Must not judge the prose: it looks for files that are named in backticks with a folder.
"""

from __future__ import annotations

import re

import pytest

from tests.house.tree import ROOT, hold

PLACES = ("", "docs", "peloton", "peloton/runtime")
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))
NAMED = re.compile(r"`((?:core|shells|adapters|simulation|gateway|actors|placement|backends|runtime"
                   r"|peloton|tests|script|docs|proto)/[\w/.-]*\w)")  # fmt: skip


def missing(text: str) -> list[str]:
    """Files and folders named in the text that are nowhere."""
    # A word in capitals stands for what the reader chooses.
    names = sorted(name for name in {*NAMED.findall(text)} if not re.search(r"\b[A-Z]{3,}\b", name))
    return [name for name in names if not any((ROOT / p / name).exists() for p in PLACES)]


@pytest.mark.parametrize("page", [*PAGES, "README.md"])
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    hold(f"{page} names `{name}`, which is not there: name it as it is" for name in missing(text))


def test_a_file_that_is_not_there_is_noticed() -> None:
    assert missing("`core/shard.py`, `core/nothing.py: f`") == ["core/nothing.py"]
