"""What is asked of a slice about the volumes of its instances, and its answers.

Nothing here must name a volume: that is for hosts.
"""

from __future__ import annotations

from peloton.runtime.vocabulary import Key, Message, Query, Value


class LeaveVolume(Message, frozen=True, gc=False, array_like=True):
    """Gateway to slice: this member is to have a volume on no host any more.

    Refused unless it has ended and is not to run again: it would wait for its volume.
    """

    member: int


class VolumeLeft(Value, frozen=True, gc=False, array_like=True):
    """Answer to `LeaveVolume`: on which host its volume was; empty if the slice knows none."""

    host: Key


class ListVolumeHomes(Query, frozen=True, gc=False, array_like=True):
    """The hosts with volumes of a slice's members."""


class VolumeHomesListed(Value, frozen=True, gc=False, array_like=True):
    """Answer to `ListVolumeHomes`: each host once, and the members that have a home, with it."""

    hosts: tuple[Key, ...]
    members: tuple[tuple[int, Key], ...] = ()
