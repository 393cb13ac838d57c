"""What the documentation names is there.

It looks for what is named in backticks, a file with a folder of ours before it, or a module by the
end of its path, as in `slice/parking.py`; and for what such a module defines,
as in `slice/parking.py: park` and "`park` of `slice/parking.py`".
"""

from __future__ import annotations

import re

import pytest

from tests.house.tree import ROOT, defines, hold

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


SYMBOL = re.compile(r"`((?:[\w-]+/)*\w+\.py):{1,2} ?(\w+)`")
SYMBOL_OF = re.compile(r"`(?:\w+\.)?(\w+)`\s(?:of|in|\()\s?`((?:[\w-]+/)*\w+\.py)`")


def undefined(text: str) -> list[str]:
    """Names that the text says are in a module, and that none of the modules so called defines."""
    named = {*SYMBOL.findall(text), *((path, name) for name, path in SYMBOL_OF.findall(text))}
    return sorted(
        f"{path}: {name}"
        for path, name in named
        if not any(
            defines((ROOT / one[1:]).read_text(encoding="utf-8"), name)
            for one in MODULES
            if one.endswith(f"/{path}")
        )
    )


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
    absent = [*missing(text), *undefined(text)]
    hold(f"{page} names `{name}`, which is not there: name it as it is" for name in absent)


def test_a_file_that_is_not_there_is_noticed() -> None:
    assert missing("`core/shard.py`, `core/nothing: f`") == ["core/nothing"]
    assert missing("`slice/parking.py`, `slice/nothing.py: f`") == ["slice/nothing.py"]


def test_a_name_that_its_module_does_not_define_is_noticed() -> None:
    text = "`house/test_docs.py: undefined`, `house/test_docs.py: defined_nowhere`"
    assert undefined(text) == ["house/test_docs.py: defined_nowhere"]
    text = "`undefined` of `house/test_docs.py`, `NOWHERE` in `house/test_docs.py`"
    assert undefined(text) == ["house/test_docs.py: NOWHERE"]
    assert undefined("`house/nothing.py: f`") == ["house/nothing.py: f"]
