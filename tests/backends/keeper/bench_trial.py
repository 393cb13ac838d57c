"""One trial of the keeper bench: a small history under one planned fault, and what must hold.

Turns a fault of the keeper's disk, or a step at which the daemon is killed, into a whole history:
launches, ends, a kill, acknowledgements, and repeats of what was acknowledged. Real keepers, real
sockets, real tasks; the daemon is a model of a host that writes a ledger, over the client's own
parts. What is checked at every answer holds under every fault.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from peloton.backends.keeper import kinds, processes, wire
from peloton.backends.keeper.adoption import kill_marked
from peloton.backends.keeper.journal import KeeperJournal
from peloton.backends.keeper.kinds import Memory
from peloton.backends.keeper_calling import UnansweredRequests, dial
from tests.backends.keeper.bench_disk import PlannedFault, cut_power, make_bench, safe_file
from tests.backends.keeper.bench_groups import groups_left, remove_groups

HOST = "host-1"
DEADLINE_S = float(os.environ.get("PELOTON_TEST_DEADLINE_S", "60"))
ROUND_S = 0.03
FAILS_S = 0.1
"""How long a fault lasts that lasts."""
ROOT = Path(__file__).parents[3]
CODES = {"r-quick-1": 0, "r-fails-1": 3, "r-doomed-1": None, "r-long-1": 5, "r-late-1": 7}
"""The runs, with the exit codes of those that end by themselves."""
LIMITED = {
    "r-long-1": {
        "limits": {
            "mode": "try", "memory_mb": 64, "cpu": 1, "cpu_quota": False, "pids": 64, "disk_mb": 0
        }
    }
}  # fmt: skip
"""Runs with limits. One is enough: each file call of its group is a point."""
FIRST = ("r-quick-1", "r-fails-1", "r-doomed-1", "r-long-1")
NO_FAULT = PlannedFault()


class Trial(NamedTuple):
    """What happens in one trial, and when.

    cut: what a power cut leaves, where the keeper's death is one; `cut_later`: another one, later.
    step, how: the daemon's step at which it is killed, and how; step 0: it is not.
    """

    fault: PlannedFault = NO_FAULT
    cut: str = ""
    cut_later: str = ""
    step: int = 0
    how: str = "alone"
    kept: int = 1000


class Broken(AssertionError):
    """Something that must hold does not."""


class DaemonKilled(Exception):
    """The planned step was reached."""


class Lives:
    """The process that forks keepers."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("bench_lives.py"))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    def ask(self, **wanted: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Bench:
    """What outlives the daemon and the keeper: the ledger, the tasks' marks, what was told."""

    def __init__(self, lives: Lives, base: Path, trial: Trial) -> None:
        self.trial = trial
        self.base = base.resolve()
        self.folder = make_bench(self.base)
        # Of a folder that is gone, and had the number that this one has now.
        remove_groups(self.folder)
        self._lives = lives
        self._fault = trial.fault
        self.keeper_pid = 0
        self.deaths = 0
        self.vain_starts = 0
        self.steps = 0
        self.step_names: list[str] = []
        self.epoch = 0
        self.launched: list[str] = []
        self.ended: dict[str, dict[str, Any]] = {}
        self.told: dict[str, dict[str, Any]] = {}
        self.at_risk: set[str] = set()
        self.wanted_kills: list[str] = []
        self.identity = ""
        self.acked: set[str] = set()
        os.mkfifo(base / "go")
        self._mend_at_s = 0.0
        self._go = os.open(base / "go", os.O_RDWR)

    # ---- the machine ----

    def command(self, run_id: str) -> str:
        note = f"echo {run_id} >> {self.base}/marks; "
        if run_id == "r-doomed-1":
            return f"{note}exec sleep 600"
        wait = f"read x < {self.base}/go; " if run_id == "r-long-1" else ""
        return f"{note}{wait}exit {CODES[run_id]}"

    def marks(self, run_id: str) -> int:
        path = self.base / "marks"
        return path.read_text().split().count(run_id) if path.exists() else 0

    def release(self) -> None:
        """Lets the long run end."""
        os.write(self._go, b"go\n")

    def mend_in_time(self) -> None:
        """Ends a fault that lasts, once tasks have ended and been heard of meanwhile, or not."""
        if not self._mend_at_s and self.struck:
            self._mend_at_s = time.monotonic() + FAILS_S
        if self._mend_at_s and time.monotonic() > self._mend_at_s:
            (self.base / "mended").touch()

    @property
    def struck(self) -> bool:
        """Whether the planned call was reached."""
        return (self.base / "failing").exists()

    def start_keeper(self) -> None:
        """The next life; the fault is in the first one. One that does not start is tried again."""
        settings = [600.0, self.trial.kept, ROUND_S]
        fault, self._fault = self._fault, NO_FAULT
        born = self._lives.ask(bench=str(self.base), fault=fault, settings=settings)
        self.keeper_pid = born["pid"]
        if born["status"] is None:
            self.bury()
            self.vain_starts += 1

    def kill_keeper(self) -> None:
        if self.keeper_pid:
            os.kill(self.keeper_pid, signal.SIGKILL)

    def bury(self) -> None:
        """The keeper has died, or is about to: see how, and cut the power if that is planned."""
        if not self.keeper_pid:
            return
        self._lives.ask(ended=self.keeper_pid)
        self._died()

    def _died(self) -> None:
        self.keeper_pid = 0
        self.deaths += 1
        self.at_risk.update(run for run in self.launched if run not in self.told)
        if self.trial.cut and self.deaths == 1:
            self.cut(self.trial.cut)

    def cut(self, kept: str) -> None:
        kill_marked(str(self.folder), lambda _: True)
        remove_groups(self.folder)
        cut_power(self.base, kept)

    def leave(self) -> None:
        """SIGTERM. Its last file calls may fail as well; all was told by then."""
        if not self.keeper_pid:
            return
        os.kill(self.keeper_pid, signal.SIGTERM)
        code = self._lives.ask(ended=self.keeper_pid)["exit"]
        self.keeper_pid = 0
        if code == -signal.SIGKILL:
            self._died()
        else:
            wrong = self.trial.fault.what == "error" and self.struck
            self.hold(code == 0 or wrong, f"the keeper exits with {code}")
            left = groups_left(self.folder)
            self.hold(not left or wrong, f"the keeper leaves groups: {left}")

    def close(self) -> None:
        if self.keeper_pid:
            self.kill_keeper()
            self._lives.ask(ended=self.keeper_pid)
        kill_marked(str(self.folder), lambda _: True)
        remove_groups(self.folder)
        os.close(self._go)

    # ---- what must hold at every answer ----

    def safe(self) -> Memory:
        """What a power cut now would leave of the keeper's journal."""
        memory = Memory("")
        for line in safe_file(self.base, "journal").split(b"\n")[:-1]:
            with contextlib.suppress(ValueError):
                memory.fold([json.loads(line)])
        return memory

    def journaled(self) -> Memory:
        """What the next keeper would read."""
        memory = Memory("")
        memory.fold(KeeperJournal(str(self.folder / "journal")).read())
        return memory

    def hold(self, what: bool, why: str) -> None:
        if not what:
            raise Broken(why)

    def hear_started(self, run_id: str) -> None:
        if run_id not in self.acked:
            self.hold(run_id in self.safe().runs, f"{run_id} was started, and its launch not safe")

    def hear_end(self, run_id: str, end: dict[str, Any]) -> None:
        end = {name: end[name] for name in ("outcome", "reason", "exit_code", "signal", "at")}
        if end["reason"] == kinds.USED_BEFORE:
            known = run_id in self.acked or (run_id in self.at_risk and not self.marks(run_id))
            self.hold(known, f"{run_id} was refused as used, and nobody knows its end")
            self.told.setdefault(run_id, end)
            return
        before = self.told.setdefault(run_id, end)
        self.hold(before == end, f"{run_id} ended as {before}, and then as {end}")
        if run_id not in self.acked:
            found = self.safe().runs.get(run_id)
            safe = found is not None and found.end is not None
            self.hold(safe, f"the end of {run_id} was told, and is not safe: {end}")


class Daemon:
    """One life of the daemon. All that it remembers is in the ledger of the bench."""

    def __init__(self, bench: Bench) -> None:
        bench.epoch += 1
        self._bench = bench
        self._unanswered = UnansweredRequests()
        self._sock: socket.socket | None = None
        self._lines = wire.Lines()
        self.heard: set[str] = set()
        self._hello = {"host": HOST, "epoch": bench.epoch}
        self.ask({"q": "hello", **self._hello})
        self.ask({"q": "list", **self._hello})

    def step(self, name: str) -> None:
        """A point at which it may be killed."""
        bench = self._bench
        bench.steps += 1
        bench.step_names.append(name)
        if bench.steps == bench.trial.step:
            if bench.trial.how == "with the keeper":
                bench.kill_keeper()
            self.close()
            raise DaemonKilled

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def launch(self, runs: list[str]) -> None:
        """To the ledger, then to the keeper."""
        fresh = [run for run in runs if run not in self._bench.launched]
        if fresh:
            self.step(f"ledger: launched {len(fresh)}")
            self._bench.launched += fresh
        requests = [
            {
                "run": run, "value": self._bench.command(run), "shell": True, "arguments": [],
                "environment": {}, "memory_mb": 0, **LIMITED.get(run, {}),
            }
            for run in runs
        ]  # fmt: skip
        self.ask({"q": "launch", "host": HOST, "epoch": self._bench.epoch, "runs": requests})

    def kill(self, run_id: str) -> None:
        epoch = self._bench.epoch
        self.ask({"q": "kill", "host": HOST, "epoch": epoch, "runs": [[run_id, 30.0]]})

    def ask(self, message: wire.KeeperMessage) -> None:
        recorded = self._unanswered.record(message)
        if recorded is None or self._sock is None:
            return  # repeated with the next connection
        self._send(recorded)

    def _send(self, message: wire.KeeperMessage) -> None:
        assert self._sock is not None
        line = wire.encode(message)
        if self._bench.steps + 1 == self._bench.trial.step and self._bench.trial.how == "mid-send":
            with contextlib.suppress(OSError):
                self._sock.sendall(line[: len(line) // 2])
        self.step(f"send {message['q']}")
        try:
            self._sock.sendall(line)
        except OSError:
            self.close()

    def turn(self) -> None:
        """Connect if need be; else wait a little for answers and obey them."""
        if self._sock is None:
            self._connect()
            return
        if not select.select([self._sock], [], [], 0.005)[0]:
            return
        try:
            data = self._sock.recv(65536)
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        for message in self._lines.feed(data):
            self.step(f"receive {message['a']}")
            self._unanswered.settle(message)
            self._hear(message)

    def _connect(self) -> None:
        try:
            self._sock = dial(self._bench.folder)
        except BlockingIOError:
            return  # its backlog is full
        except OSError:
            self._bench.bury()
            self._bench.start_keeper()
            return
        self._sock.setblocking(True)
        self._lines = wire.Lines()
        for message in [*self._unanswered.repeats()]:
            if self._sock is not None:
                self._send(message)

    def _hear(self, message: wire.KeeperMessage) -> None:
        bench, answer = self._bench, message["a"]
        if answer == "hello":
            known = bench.safe().epochs.get(HOST, 0)
            bench.hold(known >= message["epoch"], f"epoch {message['epoch']} is not safe")
        elif answer == "started":
            bench.hear_started(message["run"])
        elif answer == "ended":
            self.heard.add(message["run"])
            self._end(message["run"], message)
        elif answer == "listed":
            self._reconcile(message)
        else:
            bench.hold(answer == "unknown", f"an answer that has no reason: {message}")

    def _end(self, run_id: str, end: dict[str, Any]) -> None:
        self._bench.hear_end(run_id, end)
        if run_id not in self._bench.ended:
            self.step("ledger: ended")
            self._bench.ended[run_id] = end
        self._bench.acked.add(run_id)
        self.ask({"q": "ack", "runs": [run_id]})

    def _reconcile(self, listing: wire.KeeperMessage) -> None:
        bench = self._bench
        bench.identity = bench.identity or listing["keeper"]
        bench.hold(bench.identity == listing["keeper"], "the keeper has another identity")
        known = {run["run"]: run for run in listing["runs"]}
        for run_id, run in known.items():
            bench.hold(run_id in bench.launched, f"{run_id} is listed, and was never launched")
            if run["end"] is not None:
                self._end(run_id, run["end"])
        missing = [run for run in bench.launched if run not in known and run not in bench.ended]
        if missing:
            self.launch(missing)
        for run_id in bench.wanted_kills:
            if run_id not in bench.ended:
                self.kill(run_id)


class History:
    """The history of a trial, across the lives of its daemons."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.daemon = Daemon(bench)

    def attempt(self, act: Callable[[Daemon], None]) -> None:
        try:
            act(self.daemon)
        except DaemonKilled:
            self.daemon = Daemon(self._bench)

    def until(self, done: Callable[[], object], what: str) -> None:
        until_s = time.monotonic() + DEADLINE_S
        while not done():
            if time.monotonic() > until_s:
                raise Broken(f"never {what}: launched {self._bench.launched}, {self._bench.ended}")
            self._bench.mend_in_time()
            self.attempt(Daemon.turn)

    def launch(self, *runs: str) -> None:
        while not {*runs} <= {*self._bench.launched}:
            self.attempt(lambda daemon: daemon.launch([*runs]))

    def ended(self, *runs: str) -> None:
        bench = self._bench
        self.until(lambda: {*runs} <= bench.ended.keys(), f"ended: {runs}")

    def play(self) -> None:
        """The whole of it."""
        bench = self._bench
        self.launch(*FIRST)
        self.ended(*FIRST[:2])
        # A round writes what was acknowledged, then the whole journal anew, and prunes folders.
        self.until(lambda: not bench.journaled().runs.keys() & {*FIRST[:2]}, "acknowledged")
        self.until(lambda: bench.marks("r-doomed-1") or "r-doomed-1" in bench.ended, "begun")
        bench.wanted_kills.append("r-doomed-1")
        if "r-doomed-1" not in bench.ended:
            self.attempt(lambda daemon: daemon.kill("r-doomed-1"))
        self.ended("r-doomed-1")
        self.launch("r-late-1")
        self.ended("r-late-1")
        self.until(lambda: bench.marks("r-long-1") or "r-long-1" in bench.ended, "begun")
        bench.release()
        self.ended("r-long-1")
        self.until(lambda: not processes_of(bench.folder), "without processes of ended runs")
        self.daemon.close()
        bench.leave()
        if bench.trial.cut_later:
            bench.cut(bench.trial.cut_later)
        if bench.trial.kept >= len(CODES):
            self._repeat()

    def _repeat(self) -> None:
        """What was acknowledged is launched again, by a daemon that forgot: no id starts twice."""
        bench = self._bench
        bench.trial = bench.trial._replace(step=0)
        before = {run: bench.marks(run) for run in CODES}
        daemon = self.daemon = Daemon(bench)
        daemon.launch([*CODES])
        self.until(lambda: {*CODES} <= daemon.heard, "refused again")
        for run in CODES:
            again = bench.marks(run) - before[run]
            bench.hold(not again, f"{run} began again after its end was acknowledged")


def processes_of(folder: Path) -> list[str]:
    """The runs of the folder that are alive."""
    return [
        run
        for pid, found in processes.all_processes()
        if found.state not in "ZX" and (run := processes.marked_run(pid, str(folder))) is not None
    ]


def judge(bench: Bench, honest: frozenset[str]) -> str:
    """What became of all runs, in few words; `honest`: why a run may be LOST under this fault."""
    exact, lost = 0, []
    for run, code in CODES.items():
        end, marks = bench.ended[run], bench.marks(run)
        bench.hold(marks <= 1, f"{run} was started {marks} times")
        if end["outcome"] == kinds.LOST:
            why = end["reason"]
            bench.hold(why in honest, f"{run} is LOST: {why}, {end['message']}")
            unstarted = why in (kinds.NOT_STARTED, kinds.USED_BEFORE)
            bench.hold(not (unstarted and marks), f"{run} ran, and its end is: {why}")
            bench.hold(why == kinds.NOT_STARTED or run in bench.at_risk, f"{run}: {why}, but told")
            lost.append(why)
            continue
        bench.hold(marks == 1, f"{run} did not run, and its end is {end}")
        wanted = (kinds.SUCCEEDED if code == 0 else kinds.FAILED, code, None)
        if run == "r-doomed-1":
            wanted = (kinds.KILLED, None, signal.SIGTERM)
        found = (end["outcome"], end["exit_code"], end["signal"])
        bench.hold(found == wanted, f"{run} ended as {found}, wanted {wanted}")
        exact += 1
    if bench.trial.fault.what != "kill" and bench.trial.how != "with the keeper":
        vain = bench.vain_starts
        bench.hold(bench.deaths == vain, f"the keeper died {bench.deaths} times, {vain} at starts")
    return f"{exact} exact" + "".join(f", {lost.count(why)} {why}" for why in sorted({*lost}))
