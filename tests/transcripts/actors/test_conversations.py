"""Every conversation of the real kinds reads as it did when a person last read it.

`REWRITE_TRANSCRIPTS=1 pytest tests/transcripts` writes them anew; then read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.transcripts.actors.conversation import retold

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_conversation_goes_as_it_is_written(path: Path):
    written = path.read_text()
    again = retold(written)
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(again)
        return
    assert again == written
