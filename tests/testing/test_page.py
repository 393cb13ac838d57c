"""Every block of code of the page about testing is run, in their order, as one module of a user."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

# Of what an inner run loads pytester leaves nothing, and numpy cannot be loaded twice.
import peloton.testing.cluster  # noqa: F401

pytest_plugins = ["pytester"]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def blocks(root: Path) -> list[str]:
    found = BLOCK.findall((root / "docs" / "testing.md").read_text(encoding="utf-8"))
    assert found and {language for language, _ in found} == {"python"}
    return [code for _, code in found]


@pytest.mark.slow
def test_the_blocks_of_the_page_pass(root: Path, pytester: pytest.Pytester) -> None:
    code = "\n".join(blocks(root))
    tests = re.findall(r"^def (test_\w+)", code, re.M)
    assert len(tests) == len(set(tests)) > 8
    pytester.makepyfile(test_page=code)
    result = pytester.runpytest("--strict-markers", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=len(tests))
