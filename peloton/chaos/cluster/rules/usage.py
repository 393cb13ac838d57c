"""The holdings of slices and hosts in the shadow ledger: bitmaps and sums, no states.

A host's conditions are judged here a second time, run by run and without its counts. The code by
which hosts and placers decide must not be used: its mistakes would be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from peloton.actors.host.facts import DevicesGiven, RunsAccepted, VolumesGiven
from peloton.actors.host.ledger import names_of
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.resources import UNIT, Resources
from peloton.placement.messages import Constraint, Label
from peloton.runtime.vocabulary import Key


class SliceUsage:
    """The instances of one slice as bitmaps, and the number of each one's run."""

    def __init__(self) -> None:
        self.existing = 0
        self.intended = 0  # launched, and not ended
        self.holding = 0  # those that were last launched to be prepared
        self.stopping = 0
        self.runs: dict[int, int] = {}
        self.charged: dict[Key, int] = {}  # by lot
        # Since the ledger was last settled:
        self.launched = 0
        self.vanished = 0
        self.charged_some_time = 0

    @property
    def charges(self) -> int:
        """The members that any lot has resources for."""
        found = 0
        for raw in self.charged.values():
            found |= raw
        return found


class HostUsage:
    """A host: its capacity, and what each accepted run takes."""

    def __init__(self) -> None:
        self.capacity = Resources()
        self.labels: tuple[Label, ...] = ()
        self.used = Resources()
        self.runs: dict[str, RunSpec] = {}
        self.ports: dict[int, str] = {}
        self.devices: dict[int, str] = {}  # gpus by index
        self.declared = 0  # slack
        self.measured: int | None = None
        self.volumes: dict[str, Resources] = {}  # their room, by name

    def take(self, pod: str, fact: RunsAccepted, *, ports: Sequence[int]) -> str:
        """Take an accepted run; return what is wrong with that, or nothing."""
        wrong = self._wrong(fact, ports)
        if not wrong and not fact.spec.resources.within(self.capacity - self.used):
            wrong = f"it is over its capacity: {self.used}, and {fact.spec.resources} more"
        self.runs[pod] = fact.spec
        self.used = self.used + fact.spec.resources
        self.ports.update(dict.fromkeys(ports, pod))
        return wrong

    def set_slack(self) -> None:
        """Set the slack: the measured one, else the declared one."""
        slack = self.declared if self.measured is None else self.measured
        self.capacity = self.capacity.with_slack(slack)

    def give(self, fact: DevicesGiven) -> str:
        """Give gpus to accepted runs; return the first wrong one, or nothing."""
        names = names_of(fact.crowd, fact.members.raw, run=fact.run)
        found = (self._give(*each) for each in zip(names, fact.devices, strict=True))
        return next(filter(None, found), "")

    def _give(self, pod: str, devices: Sequence[int]) -> str:
        taken = [device for device in devices if device in self.devices]
        if taken or len({*devices}) < len(devices):
            return f"{pod} gpu {[*taken, *devices][0]}, which is given twice"
        self.devices.update(dict.fromkeys(devices, pod))
        beyond = [device for device in devices if (device + 1) * UNIT > self.capacity.gpu]
        if beyond:
            return f"{pod} gpu {beyond[0]}, which it does not have"
        wanted = self.runs[pod].resources.gpu
        return "" if len(devices) * UNIT == wanted else f"{pod} {len(devices)} gpus for {wanted}"

    def keep(self, fact: VolumesGiven) -> None:
        """Keep the volumes of accepted runs here, which may have been here before."""
        for pod in names_of(fact.crowd, fact.members.raw, run=0):
            name = pod.rpartition("-")[0]
            if name not in self.volumes:
                self.volumes[name] = Resources(disk=fact.config.size_mb * UNIT)
                self.used = self.used + self.volumes[name]

    def remove(self, volumes: Sequence[str]) -> None:
        """Remove the directories of volumes that are gone."""
        for name in volumes:
            self.used = self.used - self.volumes.pop(name)

    def free(self, pod: str) -> None:
        """Free what a run that has ended occupied."""
        self.used = self.used - self.runs.pop(pod).resources
        self.ports = {port: run for port, run in self.ports.items() if run != pod}
        self.devices = {device: run for device, run in self.devices.items() if run != pod}

    def clear(self) -> None:
        """Free what all runs occupied, which have ended; volumes stay."""
        self.runs, self.ports, self.devices, self.used = {}, {}, {}, Resources()
        for room in self.volumes.values():
            self.used = self.used + room

    def _wrong(self, fact: RunsAccepted, ports: Sequence[int]) -> str:
        spec = fact.spec
        taken = [port for port in ports if port in self.ports]
        if taken or len({*ports}) < len(ports):
            return f"port {[*taken, *ports][0]} is given twice"
        if [port.number for port in spec.ports if port.number] != [
            number for port, number in zip(spec.ports, ports, strict=True) if port.number
        ]:
            return f"it has ports {ports}, and named others"
        tasks: dict[Label, int] = {}
        for run in self.runs.values():
            for label in run.labels:
                tasks[label] = tasks.get(label, 0) + 1
        if spec.apart is not None and tasks.get(spec.apart, 0) > fact.shares:
            return f"{tasks[spec.apart]} of its job are there, of at most {fact.shares}"
        if (
            spec.constraint is not None
            and _met(spec.constraint, labels=self.labels, tasks=tasks) is False
        ):
            return f"its constraint is not met: {spec.constraint}"
        return ""


def _met(
    constraint: Constraint, *, labels: tuple[Label, ...], tasks: Mapping[Label, int]
) -> bool | None:
    """Return whether a constraint is met; None if it cannot be judged."""
    if constraint.form == "label":
        if constraint.kind == "host" and constraint.label.key == "host_pool":
            return None  # hosts change it: `HostPoolCheck` knows which they have
        counted = labels.count(constraint.label)
        if constraint.kind == "task":
            counted = tasks.get(constraint.label, 0)
        sign = (counted > constraint.requirement) - (counted < constraint.requirement)
        return {"less": -1, "equal": 0, "greater": 1}[constraint.condition] == sign
    told = [_met(member, labels=labels, tasks=tasks) for member in constraint.members]
    known = [each for each in told if each is not None]
    if not known:
        return None
    return all(known) if constraint.form == "and" else any(known)
