"""A small daemon for the kill test: it keeps runs going, and a ledger that survives it.

Turns reports into ledger lines, as a host actor would: launched is written before the launch, an
end before its acknowledgement. It remembers only what is in the ledger.

    kill_daemon.py FOLDER LEDGER EPOCH
"""

from __future__ import annotations

import json
import queue
import sys
import time
from pathlib import Path

from peloton.backends.keeper_messages import (
    KeeperRunEnded,
    KeeperRunsListed,
    KeeperUp,
    RunReport,
    RunRequest,
    RunStarted,
)
from peloton.backends.process_runs import KeeperSettings, ProcessRuns

HOST = "host-1"
IN_FLIGHT = 10


def command(number: int, folder: Path) -> str:
    note = f"echo {number} >> {folder.parent}/started; "
    if number % 5 == 0:
        return note + "sleep 300 & wait"
    if number % 5 == 1:
        return note + f"sleep 300 & setsid sleep 300 & exit {number % 7}"
    return note + f"sleep 0.0{number % 10}; exit {number % 7}"


class Daemon:
    def __init__(self, folder: Path, ledger: Path, epoch: int) -> None:
        self.folder = folder
        self.epoch = epoch
        self.open_runs: set[int] = set()
        self.doomed: set[int] = set()
        self.next_number = 1
        self._read(ledger)
        self.ledger = ledger.open("a", buffering=1)
        self.inbox: queue.Queue[RunReport] = queue.Queue()
        self.runs = ProcessRuns(folder, self.inbox.put, settings=KeeperSettings(1, round_s=0.2))
        self.runs.hello(HOST, epoch)
        self.runs.list(HOST)

    def _read(self, ledger: Path) -> None:
        """A killed daemon may leave half a line; what it said did not happen then. The newline
        keeps the next line whole."""
        text = ledger.read_text() if ledger.exists() else ""
        if text and not text.endswith("\n"):
            with ledger.open("a") as file:
                file.write("\n")
        for line in text.splitlines():
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if "launched" in said:
                self.open_runs.add(said["launched"])
                self.next_number = max(self.next_number, said["launched"] + 1)
            elif "ended" in said:
                self.open_runs.discard(said["ended"])

    def write(self, **line: object) -> None:
        self.ledger.write(json.dumps({**line, "at": time.time()}) + "\n")

    def work(self) -> None:
        ready = False
        while True:
            stopping = (self.folder.parent / "stop").exists()
            if stopping and ready and not self.open_runs:
                self.runs.close()
                return
            if ready and not stopping:
                self._fill()
            self._kill_marked()
            try:
                report = self.inbox.get(timeout=0.01)
            except queue.Empty:
                continue
            if isinstance(report, KeeperRunsListed):
                ready = True
                self._reconcile(report)
            elif isinstance(report, RunStarted):
                self._started(report.run_id)
            elif isinstance(report, KeeperRunEnded):
                self._ended(report)
            elif isinstance(report, KeeperUp):
                self.write(up=self.epoch)

    def _fill(self) -> None:
        new = range(self.next_number, self.next_number + IN_FLIGHT - len(self.open_runs))
        for number in new:
            self.write(launched=number)
            self.open_runs.add(number)
            self.next_number = number + 1
        self._launch(list(new))

    def _launch(self, numbers: list[int]) -> None:
        requests = [
            RunRequest(f"job-{number}-1", HOST, command(number, self.folder)) for number in numbers
        ]
        self.runs.launch(HOST, self.epoch, runs=requests)

    def _reconcile(self, listing: KeeperRunsListed) -> None:
        known = {int(run.run_id.split("-")[1]): run for run in listing.runs}
        for run in known.values():
            if run.ended is not None:
                self._ended(run.ended)
            elif run.state == "running":
                self._started(run.run_id)
        self._launch(sorted(self.open_runs - known.keys()))

    def _kill_marked(self) -> None:
        """The kill must find a task that has made its mark: without one, nobody could tell
        later whether it ever ran."""
        if self.doomed:
            marks = (self.folder.parent / "started").read_text().split()
            for number in sorted(self.doomed.intersection(map(int, marks))):
                self.doomed.discard(number)
                self.runs.kill(HOST, f"job-{number}-1", grace_s=5)

    def _started(self, run_id: str) -> None:
        number = int(run_id.split("-")[1])
        if number % 5 == 0:
            self.doomed.add(number)

    def _ended(self, end: KeeperRunEnded) -> None:
        number = int(end.run_id.split("-")[1])
        if number in self.open_runs:
            self.open_runs.discard(number)
            status = [end.outcome, end.exit_code, end.signal, end.reason]
            self.doomed.discard(number)
            self.write(ended=number, status=status, over=end.at)
        self.runs.ack([end.run_id])


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder.parent / "started").touch()
    Daemon(folder, Path(sys.argv[2]), int(sys.argv[3])).work()
