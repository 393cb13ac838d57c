"""What the documentation names is there.

It looks for what is named in backticks, a file with a folder of ours before it, or a module by the
end of its path, as in `slice/parking.py`.
"""

from __future__ import annotations

import re

import pytest

from tests.house.tree import ROOT, hold

PLACES = ("", "docs", "peloton", "peloton/runtime")
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))
NAMED = re.compile(r"`((?:core|shells|adapters|simulation|gateway|actors|placement|backends|runtime"
                   r"|peloton|tests|script|docs|proto)/[\w/.-]*\w)")  # fmt: skip

# A module may be named by the end of its path.
MODULE = re.compile(r"`((?:[\w-]+/)*\w+\.py)\b")
MODULES = [
    f"/{path.relative_to(ROOT).as_posix()}"
    for top in ("peloton", "tests", "bench")
    for path in (ROOT / top).rglob("*.py")
]


def missing(text: str) -> list[str]:
    """Files and folders named in the text that are nowhere."""
    # A word in capitals stands for what the reader chooses.
    named = {*NAMED.findall(text), *MODULE.findall(text)}
    names = sorted(name for name in named if not re.search(r"\b[A-Z]{3,}\b", name))
    return [name for name in names if not is_there(name)]


def is_there(name: str) -> bool:
    """Whether there is a file of this name in one of the places, or a module that ends in it."""
    places = any((ROOT / place / name).exists() for place in PLACES)
    return places or any(one.endswith(f"/{name}") for one in MODULES)


@pytest.mark.parametrize("page", [*PAGES, "README.md"])
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    hold(f"{page} names `{name}`, which is not there: name it as it is" for name in missing(text))


def test_a_file_that_is_not_there_is_noticed() -> None:
    assert missing("`core/shard.py`, `core/nothing: f`") == ["core/nothing"]
    assert missing("`slice/parking.py`, `slice/nothing.py: f`") == ["slice/nothing.py"]
