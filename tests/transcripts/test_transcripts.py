"""Every transcript prints what it printed when a person last read it.

`REWRITE_TRANSCRIPTS=1 pytest tests/transcripts` writes them anew; then read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.transcripts.teller import replayed

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_transcript_replays_to_the_same_text(path: Path):
    written = path.read_text()
    again = replayed(written)
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        path.write_text(again)
        return
    assert again == written
