"""Translations by themselves: merging as the actors merge, constraints, times, ids."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.actors.job.slice.task_config import effective
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.translate.texts import canonical, derived, nanoseconds, rfc3339
from peloton.gateway.translate.translate_task import merged, to_config
from peloton.placement.messages import Constraint, Label


@st.composite
def configs(draw: st.DrawFn) -> task.TaskConfig:
    """A config with any of the fields that people override."""
    found = task.TaskConfig(name=draw(st.sampled_from(["", "a", "b"])))
    found.controller, found.revocable = draw(st.booleans()), draw(st.booleans())
    found.killGracePeriodSeconds = draw(st.sampled_from([0, 5]))
    if draw(st.booleans()):
        found.resource.cpuLimit = draw(st.sampled_from([0.0, 1.0]))
        found.resource.memLimitMb = draw(st.sampled_from([0.0, 2.0]))
    if draw(st.booleans()):
        found.command.value = draw(st.sampled_from(["x", "y"]))
        for name in draw(st.sampled_from([[], ["A"], ["A", "B"]])):
            found.command.environment.variables.add(name=name, value="1")
    if draw(st.booleans()):
        found.restartPolicy.maxFailures = draw(st.sampled_from([0, 3]))
    for at, name in enumerate(draw(st.sampled_from([[], ["p"], ["q", "r"]]))):
        found.ports.add(name=name, value=80 + at)
        found.labels.add(key=name, value=name)
    if draw(st.booleans()):
        found.preemptionPolicy.type = draw(st.sampled_from([0, 1, 2]))
    if draw(st.booleans()):
        found.container.type = found.container.DOCKER
        found.container.docker.image = draw(st.sampled_from(["i", "j"]))
    return found


@settings(max_examples=200, deadline=None)
@given(configs(), configs())
def test_what_is_read_back_is_what_runs(default: task.TaskConfig, own: task.TaskConfig) -> None:
    """Merged on the wire and translated, or translated and merged: the same config."""
    left, right = to_config(default, "default"), to_config(own, "own")
    runs = effective(left, right)
    shown = to_config(merged(left.raw, right.raw), "shown")
    for field in shown.__struct_fields__:
        if field == "raw":
            continue
        if field == "preemptible" and own.HasField("preemptionPolicy"):
            continue  # a policy that says nothing hides the default's on the wire only
        assert getattr(shown, field) == getattr(runs, field), field


def test_without_an_own_config_the_default_is_shown_as_it_is() -> None:
    default = task.TaskConfig(name="d", controller=True)
    raw = default.SerializeToString(deterministic=True)
    assert merged(raw, raw) == default


def test_a_tree_of_constraints() -> None:
    sent = task.TaskConfig()
    sent.constraint.type = task.Constraint.OR_CONSTRAINT
    for kind, condition in ((2, 1), (2, 3)):
        leaf = sent.constraint.orConstraint.constraints.add(type=1)
        leaf.labelConstraint.kind, leaf.labelConstraint.condition = kind, condition
        leaf.labelConstraint.requirement = condition
        leaf.labelConstraint.label.key = "k"
    label = Label("k", "")
    assert to_config(sent, "f").constraint == Constraint(
        "or",
        members=(
            Constraint("label", "host", label, "less", 1),
            Constraint("label", "host", label, "greater", 3),
        ),
    )


@pytest.mark.parametrize(
    ("at_s", "text"),
    [
        (None, ""),
        (0.0, ""),
        (1.5, "1970-01-01T00:00:01.500000000Z"),
        (1569888000.000001, "2019-10-01T00:00:00.000001000Z"),
        (1569887999.9999999, "2019-10-01T00:00:00.000000000Z"),
    ],
)
def test_times(at_s: float | None, text: str) -> None:
    assert rfc3339(at_s) == text


def test_nanoseconds_and_ids() -> None:
    assert nanoseconds(1.5) == 1_500_000_000
    assert nanoseconds(None) == 0
    assert derived("k", "job") == derived("k", "job") != derived("k", "pool")
    upper = "ABCDEFAB-0000-4000-8000-000000000000"
    assert canonical(upper) == upper.lower()
    assert canonical(derived("k", "job")) == derived("k", "job")
