"""What instances have printed is passed on, and little of it is held meanwhile."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import Any

from peloton.cli.outputs import FETCHERS, Collected
from tests.sdk.fakes import JOB


class Fetched(Collected):
    """Instances that have printed one line each."""

    def __init__(self) -> None:
        nobody: Any = None
        super().__init__(nobody, JOB, count=100)
        self.fetched = 0

    def fetch(self, instance: int, names: tuple[str, ...] = ()) -> dict[str, bytes]:
        self.fetched += 1
        return {"stdout": b"%d" % instance}


class Reader(io.BytesIO):
    """Somebody who reads, and looks how much is held for him."""

    def __init__(self, files: Fetched) -> None:
        super().__init__()
        self.files, self.read_lines, self.held_max = files, 0, 0

    def write(self, data: Any) -> int:
        self.held_max = max(self.held_max, self.files.fetched - self.read_lines)
        self.read_lines += 1
        return super().write(data)


def test_only_a_few_outputs_are_held() -> None:
    files = Fetched()
    reader = Reader(files)
    with redirect_stdout(io.TextIOWrapper(reader, write_through=True)) as shown:
        files._print(range(100))
        assert reader.getvalue().split() == [b"%d" % number for number in range(100)]
        assert reader.held_max <= FETCHERS
        shown.detach()
