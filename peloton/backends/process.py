"""Real processes on virtual hosts: orders of hosts go to the keeper, its reports come back.

Turns messages of host actors into keeper requests, and keeper reports into messages for them. One
instance serves every virtual host of this daemon. It never blocks: the keeper's client has a thread
of its own and calls `tell` from there.

Either thread reports under a lock whether the keeper is available. Otherwise a "down" that was
read before the keeper came back, and sent after its "up", would be the last a host receives.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import signal as signals
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from peloton.actors.host import messages as m
from peloton.actors.host.live.live_messages import ChangesNoted, LimitRuns, RunsChanged
from peloton.actors.host.machine_messages import (
    RemoveVolumes,
    SetUse,
    SlackReported,
    UseSet,
    VolumesRemoved,
)
from peloton.actors.mentions import unnamed
from peloton.actors.resources import Resources, amount
from peloton.actors.task.messages import SECRETS_UNAVAILABLE, End, RunOutcome
from peloton.actors.task.run_messages import ContainerEnd, HealthCheck
from peloton.backends import keeper_folder, volumes
from peloton.backends import keeper_messages as km
from peloton.backends.cpu_use import OWN_CPUS
from peloton.backends.gpu_words import gpu_variables
from peloton.backends.keeper.kinds import NO_IMAGES, NOT_RUNNABLE
from peloton.backends.keeper.limits import OFF
from peloton.backends.keeper_folder import KeeperOwner
from peloton.backends.keeper_messages import pod_of
from peloton.backends.port import POISON, HostsOrder, Report, ReportProblem, Tell, cannot_be_ordered
from peloton.backends.port_use import PortUse
from peloton.backends.process_health import ProcessHealth
from peloton.backends.process_runs import SILENT_MAX_S, KeeperSettings, ProcessRuns
from peloton.backends.roster import Roster
from peloton.backends.run_ids import RunIds
from peloton.backends.secrets_first import (
    SecretsFirst,
    SecretValues,
    no_secrets,
    wanted_of,
)
from peloton.backends.slack_thread import SlackThread
from peloton.runtime.adapters import private_folder
from peloton.runtime.core.turning.envelope import Envelope, Reply
from peloton.runtime.vocabulary import Key, key

IGNORE, RUN, REFUSE = "ignore", "run", "refuse"
"""What to do with the container image of a run."""
NO_IMAGES_OF_SEVERAL = "this daemon runs images, and none of a pod with several containers"
PROCESS_BACKEND = key("backend", "process")
STOP_SLACK_S = 3.0
"""How long after the grace a kill may take until it is reported."""
_ORDERS = m.StartRuns | m.StopRuns | m.ListRuns | m.PingBackend | RemoveVolumes | LimitRuns
_NOT_REACHED = "keeper: not reached yet"
_LOG = logging.getLogger("peloton.keeper")


class TaskAccounts(NamedTuple):
    """The accounts of runs.

    `task_user` is that of runs that name none, empty for the daemon's own. `above` are the folders
    of this daemon above the keeper's, so that other accounts have to pass through them.
    """

    task_user: str = ""
    above: tuple[Path, ...] = ()


class TaskLimits(NamedTuple):
    """The limits of runs: see `backend_settings.ProcessBackendSettings`."""

    mode: str = OFF
    cpu_quota: bool = False
    pids: int = 0
    images: str = IGNORE
    engine: str = ""
    """The program that runs containers: only with `images: run`."""

    def container_of(self, image: str) -> km.RunContainer | None:
        """Return the container of a run of this image; None: the run is started without one."""
        if not image or self.images != RUN:
            return None
        return km.RunContainer(self.engine, image)

    def of(self, resources: Resources) -> km.RunLimits | None:
        """Return the limits of a run."""
        if self.mode == OFF:
            return None
        return km.RunLimits(
            mode=self.mode,
            cpu=amount(resources.cpu + resources.slack),
            cpu_quota=self.cpu_quota,
            pids=self.pids,
            disk_mb=amount(resources.disk),
        )


class ProcessBackend:
    """The ephemeral service behind `backend/process`."""

    own_thread = False  # the keeper's client has one; nothing here waits
    key = prefix = PROCESS_BACKEND

    def __init__(
        self,
        folder: Path,
        hosts: Sequence[str],
        *,
        silent_max_s: float = SILENT_MAX_S,
        owner: KeeperOwner | None = None,
        keeper: KeeperSettings = KeeperSettings(),  # noqa: B008
    ) -> None:
        self.accounts = TaskAccounts()
        self.limits = TaskLimits()
        self.measured_slack_s: float | None = None
        self.secrets = SecretsFirst(no_secrets, failed=self.reset)
        self.epoch_obeyed: Callable[[Key, int], object] = lambda host, epoch: None
        """These may be replaced before the start, and how secrets are read; the third: how often
        slack is measured; the last takes a host and the epoch of its owner, which is above ours."""
        self._slack: SlackThread | None = None
        self._unmeasured: dict[str, None] = {}  # hosts that were told that nobody measures
        self._listed_once: dict[str, None] = {}  # hosts whose runs are known
        self._folder = folder
        self._owner = owner
        self._silent_max_s = silent_max_s
        self._keeper_settings = keeper
        self._roster = Roster(PROCESS_BACKEND, [key("host", name) for name in hosts])
        self._runs: ProcessRuns | None = None
        self._ids = RunIds(keeper_folder.generation_of(folder))
        self._tell: Tell | None = None
        self._trouble: ReportProblem | None = None
        self._down = _NOT_REACHED  # why the keeper is not available; empty when it is
        self._status_lock = threading.Lock()
        self._comparing: dict[str, None] = {}  # hosts that were asked to compare, and have not yet
        self._epochs: dict[str, int] = {}
        self._health = ProcessHealth(self._tell_changes, self._check_by_command)
        self._ports = PortUse(self._report)
        self._alive: dict[str, str] = {}  # runs not known to have ended, with their hosts
        self._none_alive = threading.Event()
        self._started = threading.Event()

    def start(self, tell: Tell, trouble: ReportProblem | None = None) -> None:
        """Connect to the keeper.

        `tell` takes messages for hosts, from any thread; `trouble` takes (component, problem), the
        problem empty when it is over.
        """
        self._tell = tell
        self._trouble = trouble
        self._runs = ProcessRuns(
            self._folder,
            self._received,
            settings=self._keeper_settings,
            silent_max_s=self._silent_max_s,
            owner=self._owner,
        )
        self._started.set()
        volumes.empty_trash(self._folder)
        if self.measured_slack_s is not None:
            self._slack = SlackThread(
                self._runs_of_hosts, self._tell_slack, every_s=self.measured_slack_s
            )

    @property
    def wake_at(self) -> float | None:
        """When a host that appeared has to be reported again, or ports."""
        times = self._roster.wake_at, self._ports.wake_at
        return min((at for at in times if at is not None), default=None)

    def receive(self, envelopes: Sequence[Envelope], now: float) -> Iterable[Envelope | Reply]:
        """Take orders of hosts. Before the start they are dropped: the hosts compare after it."""
        replies: list[Reply] = []
        for envelope in envelopes:
            message = envelope.message
            if isinstance(message, HostsOrder):
                # Under the lock: an "up" for all, being sent just now, must not arrive after it.
                with self._status_lock:
                    report, reply = self._roster.change(envelope, now)
                    if report is not None:
                        self._send(report)
                replies += reply
            elif isinstance(message, m.ForgetRuns):
                if self._runs is not None:
                    self._runs.ack(self._ids.forget(message.runs))
            elif isinstance(message, ChangesNoted):
                self._health.noted(message)
            elif isinstance(message, SetUse):  # nobody else has a share of the machine
                self._send(_to_host(message.host, UseSet(message.number)))
            elif isinstance(message, _ORDERS):
                self._ordered(message)
        self._ports.due(now)
        return [*replies, *self._roster.due(now)]

    def _ordered(self, order: _ORDERS) -> None:
        host = order.host
        if self._roster.has_left(host):
            self._send(self._roster.left(host))
            return
        # Also one that is not part of the cluster any more, and may have to kill.
        self._roster.ordered(host)
        if isinstance(order, m.PingBackend):
            self._send_status(host, only_down=False)
            return
        runs, name = self._runs, _name(host)
        # An older owner's order: the keeper refuses it after a hello of another daemon, but not
        # after one of this daemon, which may have owned the host before and owns it again.
        if runs is None or order.epoch < self._epochs.get(name, order.epoch):
            return
        if order.epoch != self._epochs.get(name):
            self._epochs[name] = order.epoch
            runs.hello(name, order.epoch)
        wanted = wanted_of(order) if isinstance(order, m.StartRuns) else {}
        self.secrets.then(
            name, lambda values: self._obey(order, runs, values=values), wanted=wanted
        )

    def _obey(
        self,
        order: m.StartRuns | m.StopRuns | m.ListRuns | RemoveVolumes | LimitRuns,
        runs: ProcessRuns,
        *,
        values: SecretValues,
    ) -> None:
        """Send the order to the keeper; from the thread of `receive`, or that of the secrets."""
        name = _name(order.host)
        if isinstance(order, m.StartRuns):
            self._launch(order, runs, values=values)
        elif isinstance(order, m.StopRuns):
            self._health.to_end(order.runs)
            notice = unnamed(order.notice)  # whoever reads the files of the run may see it
            for run in order.runs:
                runs.kill(name, self._ids.at_keeper(run), grace_s=order.grace_s, notice=notice)
        elif isinstance(order, LimitRuns):
            known = [self._ids.at_keeper(run) for run in order.runs]
            runs.limit(name, known, max_running_s=order.max_running_s)
        elif isinstance(order, RemoveVolumes):
            names = volumes.names_at_keeper(name, order.volumes)
            runs.remove(name, order.epoch, volumes=names)
        else:
            self._comparing.pop(name, None)
            self._health.compared(order.checked)
            runs.list(name, asked_at=order.asked_at)
            self._send_status(order.host, only_down=True)
            self._repeat_slack(name)
            self._ports.repeat(name)

    def _repeat_slack(self, name: str) -> None:
        """Report the slack again: a report may be lost, or an earlier daemon's be known."""
        told = self._slack.told(name) if self._slack is not None else None
        if told is not None or (self._slack is None and name not in self._unmeasured):
            self._unmeasured[name] = None
            self._report(name, SlackReported(told))

    def _runs_of_hosts(self) -> dict[str, list[str]]:
        """Return the runs of hosts, except hosts that the keeper has not listed yet."""
        hosts = map(_name, self._roster.hosts)
        found: dict[str, list[str]] = {host: [] for host in hosts if host in self._listed_once}
        for run, host in [*self._alive.items()]:
            if host in found:
                found[host].append(self._ids.at_keeper(run))
        return found

    def _tell_slack(self, name: str, slack: int) -> None:
        self._report(name, SlackReported(slack))

    def _launch(self, order: m.StartRuns, runs: ProcessRuns, *, values: SecretValues) -> None:
        """Launch the runs of an order. An invalid order ends its own run, and no other."""
        name = _name(order.host)
        if order.keeper and order.keeper != runs.keeper:
            # The host would expect these runs at another keeper, so they must not begin here. Our
            # list shows it which keeper answers now.
            runs.list(name)
            return
        self._health.ordered(order.runs)
        requests: list[km.RunRequest] = []
        bad: list[m.RunEnd] = []
        for run in self._ports.startable(name, order.runs, known=self._alive):
            if run.spec.image and self.limits.images == REFUSE:
                bad.append(_image_refused(run))
                continue
            try:
                requests.append(self._request(name, run, values=values))
            except POISON as trouble:
                bad.append(cannot_be_ordered(run.run, trouble, reason=NOT_RUNNABLE))
        self._alive.update((self._ids.name(request.run_id), name) for request in requests)
        refused = runs.launch(name, order.epoch, runs=requests, keeper=order.keeper)
        bad += [
            cannot_be_ordered(self._ids.name(each.run_id), each, reason=NOT_RUNNABLE)
            for each in refused
        ]
        if bad:
            for end in bad:
                self._not_alive(end.run)
            self._report(name, m.RunsEnded(tuple(bad)))

    def _request(self, host: str, run: m.StartRun, *, values: SecretValues) -> km.RunRequest:
        spec, root = run.spec, os.geteuid() == 0
        secrets, refusal = values.of(run)
        if spec.uris:
            raise ValueError("the files of its command.uris are fetched on hosts of Mesos only")
        if spec.mesos is not None:
            raise ValueError("executors and containers of Mesos are on hosts of Mesos only")
        container = self.limits.container_of(spec.image)
        contained = container is not None
        if container is not None and spec.containers:
            raise ValueError(f"image {spec.image}: {NO_IMAGES_OF_SEVERAL}")
        if container is not None and run.devices:
            container = dataclasses.replace(container, gpus=run.devices)
        request = km.RunRequest(
            run_id=self._ids.begin(run.run),
            host=host,
            value=spec.value,
            shell=spec.shell,
            arguments=spec.arguments,
            environment=dict(run.environment)
            | gpu_variables(run.devices, contained=contained)
            | self._own_cpus(spec.resources, contained=contained),
            memory_mb=amount(spec.resources.memory),
            user=spec.user,
            # Only root can start a process as another user: others run all tasks as themselves.
            caller=spec.caller if root else "",
            task_user=self.accounts.task_user,
            limits=self.limits.of(spec.resources),
            container=container,
            pod=pod_of(spec),
            # A command would find nothing of what is in a container, so it is not carried out.
            checked=spec.check is not None and spec.check.by_command and not contained,
            secrets=secrets,
            refusal=refusal,
            volume=volumes.volume_of(host, run),
            max_running_s=spec.max_running_s or 0.0,
            grace_s=spec.kill_grace_s,
        )
        if root and (request.user or request.caller or request.task_user):
            self._open_way()
        return request

    def _own_cpus(self, resources: Resources, *, contained: bool) -> dict[str, str]:
        """Return the variable by which a run's use is measured; none for a container."""
        if self.measured_slack_s is None or contained or not resources.cpu:
            return {}
        return {OWN_CPUS: f"{amount(resources.cpu):.6g}"}

    def _open_way(self) -> None:
        """Let the tasks of other accounts reach their sandboxes.

        If this fails, the keeper names the folder as the reason of the run's end.
        """
        for folder in self.accounts.above:
            try:
                private_folder.let_pass(folder)
            except OSError as error:
                _LOG.warning("%s stays closed to tasks of other accounts: %s", folder, error)

    def lease(self, job: str, for_s: float) -> bool:
        """Keep the files of a job's runs for so long; return whether that is possible."""
        runs = self._runs
        if runs is None:
            return False
        runs.lease(job, for_s)
        return True

    def stop_all(self, grace_s: float) -> bool:
        """End every run and wait for it, for a cluster that leaves nothing behind."""
        assert self._runs is not None
        self.secrets.close()  # what waits for its secrets is not started any more
        self._none_alive.clear()
        for run, host in [*self._alive.items()]:
            self._runs.kill(host, self._ids.at_keeper(run), grace_s=grace_s)
        if not self._alive:
            return True
        return self._none_alive.wait(grace_s + STOP_SLACK_S)

    def reset(self) -> None:
        """Ask every host to compare: orders were lost with the mail that could not be handled."""
        for host in self._roster.hosts:
            self._send_status(host, only_down=False)

    def rename(self, member: str, *, number: int, count: int) -> None:
        """Take the daemon's place in a fleet; the keeper knows only the epochs of hosts."""
        self._roster.in_fleet = True

    def close(self) -> None:
        """Release the connections; the keeper and its runs go on."""
        self.secrets.close()
        if self._slack is not None:
            self._slack.close()
        if self._runs is not None:
            self._runs.close()
        self._health.close()

    def _send_status(self, host: Key, *, only_down: bool) -> None:
        """Send up or down to a host. Down also answers an order that cannot be obeyed."""
        if self._tell is None:
            return
        with self._status_lock:
            if self._down:
                self._tell([_to_host(host, m.BackendDown(self._down))])
            elif not only_down:
                self._tell([_to_host(host, m.BackendUp())])

    def _status_changed(self, down: str) -> None:
        """Report to all hosts, and to health, whether the keeper is available, or why not."""
        assert self._tell is not None
        if self._trouble is not None:
            self._trouble(PROCESS_BACKEND, down)
        with self._status_lock:
            self._down = down
            status: m.BackendUp | m.BackendDown = m.BackendDown(down) if down else m.BackendUp()
            self._tell([_to_host(host, status) for host in self._roster.hosts])

    def _received(self, report: km.RunReport) -> None:
        """Take a report of the keeper, on its client's thread.

        Reports may begin before `start` has stored the client; a host that asked for its runs then
        would get no answer, and wait for ever.
        """
        self._started.wait()
        assert self._runs is not None
        if isinstance(report, km.KeeperUp):
            self._status_changed("")
        elif isinstance(report, km.KeeperDown):
            self._status_changed(f"keeper: {report.why}")
        elif isinstance(report, km.RunStarted):
            name = self._ids.name(report.run_id)
            self._report(report.host, m.RunsStarted((name,), (report.at,)))
            self._health.running(key("host", report.host), name, started_at=report.at)
        elif isinstance(report, km.KeeperRunEnded):
            end = self._end(report)
            self._not_alive(end.run)
            self._report(report.host, m.RunsEnded((end,)))
        elif isinstance(report, km.ContainersMoved):
            self._moved(report.host, report)
        elif isinstance(report, km.KeeperRunsListed):
            for run in report.runs:
                self._seen(run, report.host)
            self._listed_once[report.host] = None
            listed = self._listed(report)
            at = str(self._runs.folder)
            self._report(report.host, replace(listed, keeper=report.keeper, keeper_at=at))
        elif isinstance(report, km.RunUnknown):
            self._unknown(report)
        elif isinstance(report, km.RunChecked):
            self._health.answered(report)
        elif isinstance(report, km.KeeperVolumesRemoved) and report.volumes:
            self._report(report.host, VolumesRemoved(volumes.names_of_host(report.volumes)))
            volumes.empty_trash(self._folder)
        elif isinstance(report, km.HostEpochRefused):  # by another owner, or before a restore
            self.epoch_obeyed(key("host", report.host), report.known)

    def _seen(self, run: km.ListedRun, host: str) -> None:
        name = self._ids.name(run.run_id)
        if run.ended is not None:
            self._not_alive(name)
            return
        self._alive[name] = host
        self._moved(host, run)
        if run.started_at:  # else its start is reported
            self._health.running(key("host", host), name, started_at=run.started_at)

    def _moved(self, host: str, told: km.ContainersMoved | km.ListedRun) -> None:
        """Report the containers of a run; a run of a single container has none to report."""
        if told.containers:
            found = tuple(_container_end(one) for one in told.containers)
            name = self._ids.name(told.run_id)
            self._health.moved(key("host", host), name, containers=found)

    def _unknown(self, report: km.RunUnknown) -> None:
        """Ask the host to compare: it ordered to kill a run that the keeper does not know.

        The host waits for an end that nobody will report, until a listing shows that there is no
        such run. The host must request it: only it knows which runs it had accepted by then. One
        request that is yet to come answers for all such runs.
        """
        self._not_alive(self._ids.name(report.run_id))
        if report.host not in self._comparing:
            self._comparing[report.host] = None
            self._report(report.host, m.BackendUp())

    def _end(self, report: km.KeeperRunEnded) -> m.RunEnd:
        signal = _signal_name(report.signal) if report.signal else ""
        outcome = RunOutcome(
            end=End[report.outcome],
            exit_code=report.exit_code,
            signal=signal,
            reason=report.reason,
            message=report.message,
            system=report.outcome == "LOST" or report.reason == SECRETS_UNAVAILABLE,
            containers=tuple(_container_end(one) for one in report.containers),
        )
        return m.RunEnd(self._ids.name(report.run_id), outcome, report.at)

    def _listed(self, report: km.KeeperRunsListed) -> m.RunsListed:
        running = [run for run in report.runs if run.ended is None]
        names = tuple(self._ids.name(run.run_id) for run in running)
        started = tuple(run.started_at for run in running)
        ends = tuple(
            replace(self._end(run.ended), started_at=run.started_at or None)
            for run in report.runs
            if run.ended is not None
        )
        return m.RunsListed(names, ends, report.asked_at, started=started)

    def _not_alive(self, run: str) -> None:
        self._health.over(run)
        self._alive.pop(run, None)
        self._ports.over(run)
        if not self._alive:
            self._none_alive.set()

    def _report(self, name: str, report: Report) -> None:
        """Send a report, unless the host has left."""
        host = key("host", name)
        if not self._roster.has_left(host):
            self._send(_to_host(host, report))

    def _tell_changes(self, host: Key, changed: RunsChanged) -> None:
        self._report(_name(host), changed)

    def _check_by_command(self, run: str, number: int, *, check: HealthCheck) -> bool:
        host, runs = self._alive.get(run), self._runs
        if host is None or runs is None:
            return False
        runs.check(host, self._ids.at_keeper(run), number=number, check=check)
        return True

    def _send(self, envelope: Envelope) -> None:
        if self._tell is not None:
            self._tell([envelope])


def _container_end(told: km.ContainerOfRun) -> ContainerEnd:
    return ContainerEnd(
        name=told.name,
        init=told.init,
        started_at=told.started_at,
        ended_at=told.ended_at,
        exit_code=told.exit_code,
        signal=_signal_name(told.signal) if told.signal else "",
    )


def _image_refused(run: m.StartRun) -> m.RunEnd:
    message = f"image {run.spec.image}: this daemon runs no containers (images: {REFUSE})"
    return m.RunEnd(run.run, RunOutcome(End.FAILED, reason=NO_IMAGES, message=message))


def _to_host(host: Key, report: Report) -> Envelope:
    """Return an envelope from this backend: hosts ignore the reports of others."""
    return Envelope(host, report, sender=PROCESS_BACKEND)


def _name(host: Key) -> str:
    return host.partition("/")[2]


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"SIG{number}"  # a real-time signal has a number only
