"""How the end of a job is told to a listener outside the cluster, and the answer."""

from __future__ import annotations

from typing import ClassVar

from peloton.actors.job.stages import JobStates
from peloton.runtime.vocabulary import Delivery, Key, Message, Value, key


class Notice(Value, frozen=True, gc=False, array_like=True):
    """One end of a job, as a listener is told it.

    `number` counts the ends; `counts` are instances by state.
    """

    number: int
    state: JobStates
    counts: tuple[tuple[str, int], ...]
    started_at: float
    completed_at: float


class PostNotice(Message, frozen=True, gc=False, array_like=True):
    """Job to the notifier of its daemon: tell this end to the listener at `url`."""

    delivery: ClassVar[Delivery] = Delivery.OWED

    job: Key
    url: str
    notice: Notice
    name: str
    owner: str
    pool_path: str
    instances: int
    created_at: float


class NoticeHandled(Message, frozen=True, gc=False, array_like=True):
    """Answer to `PostNotice`: the end was told, or given up; `text` says how or why."""

    number: int
    posted: bool
    text: str = ""


NOTIFIER = key("notifier", "webhooks")
"""Each daemon with jobs has one of its own."""
NOTIFIER_MESSAGES: dict[int, type] = {1: PostNotice}
