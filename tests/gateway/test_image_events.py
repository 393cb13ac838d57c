"""What the events of a pod say of its container image: nothing where its command never ran."""

from __future__ import annotations

import pytest

from peloton.actors.job.slice.messages import Command, InstanceView, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.resources import Resources
from peloton.actors.task.messages import End, RunOutcome, TaskGoals
from peloton.gateway.translate_run import Translator
from peloton.runtime.vocabulary import Key

CONFIG = TaskConfig(resources=Resources(), command=Command("true"), image="debian")
SPEC = JobSpec(name="j", owner="o", pool=Key("respool/p"), instances=1, default=CONFIG)
REFUSED = RunOutcome(End.FAILED, reason="container image refused", message="image debian: no")


def view(started_at: float | None, ended_at: float | None) -> InstanceView:
    return InstanceView(
        instance=0, state="FAILED", goal=next(iter(TaskGoals)), run=1, failures=0, host="host/a",
        created_at=1.0, launched_at=2.0, started_at=started_at, ended_at=ended_at,
        outcome=REFUSED if ended_at is not None else None, runs=(), config=CONFIG,
        lot=Key("lot/x"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("started_at", "ended_at", "says"), [(None, None, True), (3.0, 4.0, True), (None, 4.0, False)]
)
def test_an_image_is_not_said_to_be_ignored_where_nothing_ran(started_at, ended_at, says):
    job = "c92956cf-cd8e-5e45-8242-808ffe31a2fb"
    for images_run in (False, True):
        translator = Translator(job, SPEC, images_run=images_run)
        events = translator.events(view(started_at, ended_at), runs_max=1, only=None)
        texts = [event.message for event in events]
        assert any("is ignored" in text for text in texts) == (says and not images_run), texts
