"""Volumes of a host: what is journaled of them, and from which level on."""

from __future__ import annotations

import immutables
from msgspec.structs import replace

from peloton.actors.host import messages as m
from peloton.actors.host.decide import owed
from peloton.actors.host.goals import HostNotes, pursue, recall_s
from peloton.actors.host.machine_messages import (
    DeleteVolume,
    RemoveVolumes,
    VolumeConfig,
    VolumesRemoved,
)
from peloton.actors.host.state import Host
from peloton.actors.job.slice import facts as sf
from peloton.actors.job.slice.volume_homes import VOLUME_EVOLVE, VolumeHomes, refused_at
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task import messages as t
from peloton.actors.task.kind import KIND as TASK
from peloton.actors.task.state import Task, TaskStates
from peloton.runtime.core.turning.envelope import Envelope, Outbox
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Bits, Decision, Key, Send
from tests.actors.hosts.test_devices import BACKEND, CPU, HOST, ended, receive, up

SPEC = replace(CPU, volume=VolumeConfig("data", 0))


def refusals(sends: tuple[Send, ...]) -> list[Bits | None]:
    return [one.message.volumes for one in sends if isinstance(one.message, t.RunRefused)]


def test_a_host_that_refuses_says_whose_volumes_it_has() -> None:
    host = receive(up(), m.Launch(1, SPEC), 0).state
    huge = m.Launch(2, replace(SPEC, resources=Resources(100 * UNIT)))
    turn = receive(host, huge, 0, 1)
    assert refusals(turn.sends) == [Bits.of(0)]
    again = receive(turn.state, huge, 0, 1)
    assert refusals(again.sends) == refusals(owed(turn.state)) == [Bits.of(0)]


def test_an_instance_leaves_its_home_only_if_that_says_that_it_has_no_volume() -> None:
    homes = VolumeHomes()
    given = sf.VolumeHomesGiven(Bits.of(0, 1), (HOST, HOST))
    for _ in range(2):  # the first launch was lost, the second is refused
        homes = VOLUME_EVOLVE[type(given)](homes, given)
    some, other = Bits.of(0, 1), Key("host/other")
    assert refused_at(homes, t.RunRefused(1, "full", host=HOST), members=some) == ()
    assert refused_at(homes, t.RunRefused(1, "full", None, Bits(), other), members=some) == ()
    assert refused_at(homes, t.RunRefused(1, "full", None, Bits.of(0), HOST), members=some) == (
        sf.VolumeHomesLeft(Bits.of(1)),
    )


def test_a_host_with_volumes_alone_asks_its_backend_for_nothing() -> None:
    host = receive(up(), m.Launch(1, SPEC), 0).state
    idle = ended_and_seen(host)
    assert idle.volumes and not idle.runs
    assert recalled(idle) is None
    name = next(iter(idle.volumes))
    deleting = receive(idle, DeleteVolume(name))
    assert recalled(deleting.state) is not None


def test_a_volume_of_a_removed_host_is_removed_where_its_machine_answers() -> None:
    """A virtual host exists beyond its removal, and nothing else would ask it."""
    host = ended_and_seen(receive(up(), m.Launch(1, SPEC), 0).state)
    host = receive(host, m.HostGone(False)).state
    assert recalled(host) is None
    (name,) = host.volumes
    turn = receive(host, DeleteVolume(name))
    assert [one.message for one in turn.sends] == [m.PingBackend(HOST)]
    assert recalled(turn.state) is not None, "the question may be lost"
    asked = receive(turn.state, m.BackendUp(), crowd=BACKEND)
    assert [type(one.message) for one in asked.sends] == [m.ListRuns]
    listed = receive(asked.state, m.RunsListed(()), crowd=BACKEND)
    assert [one.message for one in listed.sends] == [RemoveVolumes(HOST, 3, (name,))]
    removed = receive(listed.state, VolumesRemoved((name,)), crowd=BACKEND).state
    assert not removed.volumes and recalled(removed) is None


def ended_and_seen(host: Host) -> Host:
    return receive(ended(host, 0), m.RunSeen(1), 0).state  # type: ignore[no-any-return]


def recalled(host: Host) -> float | None:
    """When a host that is idle since long wants to be woken."""
    notes: HostNotes | None = None
    for now in (1e3, 2e3, 3e3):
        at = At(now=now, key=HOST, members=None, epoch=3, notes=notes)
        step = pursue(host, at)
        if isinstance(step, Decision) and step.notes is not None:
            notes = step.notes
    return recall_s(notes) if notes is not None else None


def test_a_run_is_started_with_the_size_that_its_volume_was_made_with() -> None:
    """Room was taken for that, and no config changes it."""
    host = receive(up(), m.Launch(1, SPEC), 0).state
    larger = replace(SPEC, volume=VolumeConfig("other", 9))
    turn = receive(ended_and_seen(host), m.Launch(2, larger), 0)
    (order,) = [one.message for one in turn.sends if isinstance(one.message, m.StartRuns)]
    volumes = [run.spec.volume for run in order.runs]
    assert volumes == [VolumeConfig("other", 0)]


def test_refusals_of_several_hosts_say_each_whose_it_is() -> None:
    """What a host repeats after a takeover is equal to what others of its shard do."""
    huge = m.Launch(2, replace(SPEC, resources=Resources(100 * UNIT)))
    box, others = Outbox(lambda _: False), (Key("host/a"), Key("host/b"))
    for member, name in enumerate(others):
        host = receive(up(), huge, member).state
        for send in owed(host):
            assert isinstance(send.to, str) and send.members is not None
            box.add(Envelope(Key(send.to), send.message, send.members.raw, sender=name))
    homes = VolumeHomes(immutables.Map(enumerate(others)))
    for envelope in box.drain():
        at = At(now=1.0, key=Key("task/j/0"), sender=envelope.sender)
        task = Task(t.TaskGoals.RUNNING, TaskStates.LAUNCHING, t.Policy(), run=2)
        turn = take_turn(TASK, task, message=envelope.message, at=at)
        (report,) = (s.message for s in turn.sends if isinstance(s.message, t.RunRefused))
        for fact in refused_at(homes, report, members=Bits(envelope.members)):
            homes = VOLUME_EVOLVE[type(fact)](homes, fact)
    assert not homes.hosts, "each has said that it has no volume"
