"""Volumes of a host: what is journaled of them, and from which level on."""

from __future__ import annotations

from msgspec.structs import replace

from peloton.actors.host import facts as f
from peloton.actors.host import messages as m
from peloton.actors.host.granting import VOLUMES_TOO_EARLY
from peloton.actors.host.kind import SINCE
from peloton.actors.host.volume_messages import VolumeConfig, VolumeDeleted
from peloton.actors.task import messages as t
from tests.actors.test_devices import CPU, receive, up

SPEC = replace(CPU, volume=VolumeConfig("data", 0))


def test_a_host_makes_no_volume_that_others_would_not_know() -> None:
    """A shard may be at an earlier level than the one where the job was made."""
    early = receive(up(), m.Launch(1, SPEC), 0, level=t.LEVEL_SERVICES - 1)
    assert not any(isinstance(fact, f.VolumesGiven) for fact in early.facts)
    refusals = [one.message for one in early.sends if isinstance(one.message, t.RunRefused)]
    assert [one.reason for one in refusals] == [VOLUMES_TOO_EARLY]
    turn = receive(up(), m.Launch(1, SPEC), 0, level=t.LEVEL_SERVICES)
    assert any(isinstance(fact, f.VolumesGiven) for fact in turn.facts)


def test_what_says_something_of_volumes_needs_their_level() -> None:
    for cls in (f.VolumesGiven, f.VolumeDeleting, f.VolumesGone, VolumeDeleted):
        assert SINCE[cls] == t.LEVEL_SERVICES
