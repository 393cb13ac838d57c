"""The backend `remote`: workers are instances of jobs of a cluster, which connect to this process.

Calls that were lost with their worker are given to others; those of a client that is gone are taken
up again by name.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any

from peloton.sdk.client import Client
from peloton.sdk.errors import BadSpec, NotFound, PelotonError, PelotonWarning
from peloton.sdk.executor import peers
from peloton.sdk.executor.answers import CallAnswer
from peloton.sdk.executor.backend import Packer
from peloton.sdk.executor.calls import CallQueue, ExecutorCall
from peloton.sdk.executor.errors import WorkerLost
from peloton.sdk.executor.futures import PelotonFuture, WorkerId
from peloton.sdk.executor.links import WorkerServer, WorkerSetup, settle
from peloton.sdk.executor.options import WorkerSettings
from peloton.sdk.executor.packing import FunctionPacker, pack_arguments, require_cloudpickle
from peloton.sdk.executor.resuming import resume
from peloton.sdk.executor.session import ExecutorSession
from peloton.sdk.executor.worker_jobs import WorkerJobs

OUTPUT = ("stdout", "stderr")


class ClusterWorkers:
    """Workers of one executor, `most` at a time.

    Raises Unsupported without cloudpickle, NotFound without the pool, Conflict if the name is in
    use, BadSpec for an address that cannot be listened at, and what a call of the client raises.
    """

    def __init__(
        self, settings: WorkerSettings, *, most: int, client: Client | None = None, name: str = ""
    ) -> None:
        require_cloudpickle()
        self._client = Client() if client is None else client
        self._settings = settings
        self._most = most
        self._jobs = WorkerJobs(self._client, settings, name=name, over=self._job_over)
        self._session = ExecutorSession(name)
        self._packer = FunctionPacker()
        self._calls = CallQueue()
        self._growing = threading.Lock()
        self._is_growing = False
        self.orphans: dict[int, ExecutorCall] = {}
        """Calls of the client before, of which it is not known yet who has them."""
        self._address = ""

    def open(self, calls: CallQueue) -> tuple[PelotonFuture[Any], ...]:
        self._calls = calls
        folder = os.getcwd() if self._jobs.here else ""
        path = tuple(os.path.abspath(one) for one in sys.path) if self._jobs.here else ()
        self._server = WorkerServer(
            calls, self, setup=WorkerSetup(path, folder), token=self._session.token,
            idle_s=self._settings.idle_s,
        )  # fmt: skip
        found = self._take_up()
        try:
            self._listen(*self._place())
        except BadSpec:
            self._session.release()
            raise
        if found:
            self._spawn(self._resume, self._session.jobs())
        return found

    def _listen(self, host: str, port: int) -> None:
        try:
            _, port = self._server.open((host, port))
        except OSError as error:
            raise BadSpec(f"cannot listen at {host}:{port}: {error}", field="listen") from None
        self._session.write_port(port)
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def packer(self, function: Callable[..., Any]) -> Packer:
        packed = self._packer.of(function)
        return lambda args, kwargs: pack_arguments(packed, args, kwargs=kwargs)

    def schedule(self, calls: Sequence[ExecutorCall]) -> None:
        self._session.write_calls(calls)
        for call in calls if self._session.is_named else ():
            call.future.add_done_callback(self._done)
        self._calls.add(calls)
        self.grow()

    def why(self, future: PelotonFuture[Any]) -> tuple[str, ...]:
        if future.done():
            return ("the call has ended",)
        worker = future.place.worker if future.place is not None else None
        link = self._server.links.get(worker) if worker is not None else None
        if worker is not None and link is not None and future.number in link.held:
            own = f"the call is with instance {worker.instance} of job {worker.job}"
            return (own, *self._jobs.reasons(worker.job, worker.instance))
        connected = len(self._server.links)
        own = f"waits for a worker: {connected} connected, {self._most} at most"
        return (own, *(self._jobs.reasons(self._jobs.newest) if self._jobs.newest else ()))

    def logs(self, future: PelotonFuture[Any], filename: str) -> str:
        if filename not in OUTPUT:
            raise BadSpec(f"there is {' and '.join(OUTPUT)}, got {filename!r}", field="filename")
        place = future.place
        if place is None:
            raise NotFound("no worker has had the call yet, so it has no logs")
        job, instance, run = place.worker
        data = b"".join(self._client.tasks.logs(job, instance, run=run, filename=filename))
        span = place.stdout if filename == "stdout" else place.stderr
        if span is not None:
            data = data[slice(*span)]
        return data.decode(errors="replace")

    def close(self, *, wait: bool) -> None:
        if wait:
            self._end()
        else:
            self._spawn(self._end)

    def _end(self) -> None:
        self._calls.wait_finished()
        self._server.close()
        self._jobs.stop_absent()
        self._session.end()

    # Workers.

    def grow(self) -> None:
        """Begin the workers that the calls need, in another thread: a job takes a moment."""
        with self._growing:
            if self._is_growing or not self._missing():
                return
            self._is_growing = True
        self._spawn(self._grow)

    def _missing(self) -> int:
        return self._calls.missing(self._jobs.live, most=self._most)

    def _grow(self) -> None:
        while True:
            with self._growing:
                count = self._missing()
                if not count:
                    self._is_growing = False
                    return
            try:
                job = self._jobs.create(count, self._address, token_file=self._session.token_file)
            except PelotonError as error:
                with self._growing:
                    self._is_growing = False
                if not self._jobs.live:
                    self._calls.fail(error)
                return
            self._session.write_job(job)

    def _job_over(self, why: PelotonError | None) -> None:
        """Begin others; but where none of a whole job could connect, others could not either."""
        if why is None or self._server.links:
            self.grow()
        elif not self._jobs.live:
            self._calls.fail(why)

    def _place(self) -> tuple[str, int]:
        """Return where to listen. Raises BadSpec."""
        port = self._session.port()
        given = self._settings.listen
        if given:
            host, colon, number = given.rpartition(":")
            if not colon or given.endswith("]"):
                return given.strip("[]"), port
            if not number.isdigit():
                raise BadSpec(f"must be HOST or HOST:PORT, got {given!r}", field="listen")
            return host.strip("[]"), int(number)
        if self._jobs.here:
            return "127.0.0.1", port
        (address, *_) = self._client.addresses()
        try:
            return peers.way_to(address), port
        except (OSError, ValueError) as error:
            text = f"name an address that hosts reach; none is found on the way to {address}"
            raise BadSpec(f"{text}: {error}", field="listen") from None

    # What links tell.

    def arrived(self, worker: WorkerId, held: Collection[int]) -> Sequence[ExecutorCall]:
        self._jobs.arrived(worker)
        with self._growing:
            return [self.orphans.pop(one) for one in sorted(held) if one in self.orphans]

    def settled(self, answer: CallAnswer, worker: WorkerId) -> None:
        try:
            self._session.write_answer(answer, worker)
        except OSError as error:
            text = "the next executor of this name will run a call again, whose result could not be"
            warnings.warn(f"{text} written down: {error}", PelotonWarning, stacklevel=2)

    def left(self, worker: WorkerId) -> None:
        self._jobs.ended(worker)

    def lost(self, worker: WorkerId, call: ExecutorCall | None) -> None:
        if call is not None:
            call.losses += 1
            if call.losses <= self._settings.retries:
                self._calls.give_back([call])
                call = None
        self._spawn(self._look_for_end, worker, call)

    def _look_for_end(self, worker: WorkerId, call: ExecutorCall | None) -> None:
        try:
            reason = self._jobs.lost(worker)
        except PelotonError as error:
            reason = f"the cluster did not say why: {error}"
        if call is not None:
            text = (
                f"{call.work.function.name}: instance {worker.instance} of job {worker.job} ended "
                f"before it had answered ({reason}); attempts: {call.losses}"
            )
            call.future.set_exception(WorkerLost(text))
            self._calls.finished([call])
        self.grow()

    # A client before.

    def _take_up(self) -> tuple[PelotonFuture[Any], ...]:
        """Return the futures of the calls that were written down."""
        found = []
        for written in self._session.calls() if self._session.is_named else ():
            future: PelotonFuture[Any] = PelotonFuture(written.number, self)
            found.append(future)
            if written.is_cancelled:
                future.cancel()
            if not future.set_running_or_notify_cancel():
                continue
            call = ExecutorCall(written.number, written.work, future=future)
            call.begun = True
            if written.answer is not None and written.worker is not None:
                settle(call, written.answer, worker=written.worker)
            else:
                self.orphans[call.number] = call
        self._calls.adopt([*self.orphans.values()])
        return tuple(found)

    def _done(self, future: Any) -> None:
        if future.cancelled():
            self._session.write_cancelled(future.number)

    def _resume(self, jobs: Sequence[str]) -> None:
        try:
            resume(self, self._client, jobs=jobs)
        except PelotonError as error:
            self.nobody_has()
            self._calls.fail(error)

    def answered(self, answers: Sequence[CallAnswer], worker: WorkerId) -> None:
        """Settle calls by the answers that a worker has left in its sandbox."""
        for answer in answers:
            with self._growing:
                call = self.orphans.pop(answer[0], None)
            if call is not None:
                self.settled(answer, worker)
                settle(call, answer, worker=worker)
                self._calls.finished([call])

    def nobody_has(self) -> None:
        """Give the calls that no worker of before has to workers of now."""
        with self._growing:
            calls = [self.orphans.pop(number) for number in sorted(self.orphans)]
        self._calls.give_back(calls)
        self.grow()

    def follow(self, job: str, instances: Sequence[int]) -> None:
        """Expect the workers of these instances."""
        self._jobs.follow(job, instances)

    def absent(self, instances: Collection[tuple[str, int]]) -> bool:
        """Return whether the workers of some of these have neither come nor ended."""
        return not set(instances).isdisjoint(self._jobs.absent())

    def _spawn(self, target: Callable[..., object], *args: Any) -> None:
        threading.Thread(target=target, args=args, name="peloton-executor", daemon=True).start()
