"""Runs with secrets in the conversation: what is sent, what is refused, and what is not kept."""

from __future__ import annotations

import base64
import gc
import json
from typing import Any

import pytest
from msgspec.structs import replace

from peloton.actors.host import messages as m
from peloton.actors.host.run_spec import Container, SecretRef, Uri
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.messages import SECRET_NOT_FOUND, SECRETS_UNAVAILABLE, End
from peloton.actors.task.run_messages import HealthCheck
from peloton.backends.keeper.requests import run_of
from peloton.backends.keeper.secret_files import RunSecret
from peloton.backends.keeper_messages import RUN_BYTES_MAX
from peloton.backends.mesos.executor.talk import (
    HOST,
    ExecutorConfig,
    ExecutorTalk,
)
from peloton.backends.mesos.launching import NO_EXECUTOR, SECRET_BYTES_MAX
from peloton.backends.mesos.offering import OFFER_WAIT_S
from peloton.backends.mesos.runs.keeper_tasks import (
    CHOICE,
    COMMAND,
    FAILED_STARTS_MAX,
    KEEPER,
    PREFIX,
    KeeperProgram,
)
from peloton.backends.secrets_first import SecretValues
from peloton.placement.messages import Label
from tests.backends.mesos.bench import HOST as H0
from tests.backends.mesos.bench import JOB, Talk, name, start
from tests.backends.mesos.words import Json, agent, offer, reconciled, status

PROGRAM = KeeperProgram("exec keeper", "ann", 5.0)
VALUE = b"S3cret-\xff-canary"
REFS = (SecretRef("s-1", "token"),)
FORMS = [VALUE[:7].decode(), *(base64.b64encode(VALUE[at:])[2:-2].decode() for at in range(3))]
"""What nothing may have. Base64 may begin at any of three bytes."""


def found(*names: str) -> SecretValues:
    """These secrets of the job are in the store."""
    values = SecretValues()
    values.of_jobs[JOB] = dict.fromkeys(names, VALUE)
    return values


def begun(keeper: KeeperProgram | None = PROGRAM) -> Talk:
    talk = Talk(keeper=keeper)
    talk.subscribe(agent())
    talk.order(m.PingBackend(H0))
    return talk.clear()


def with_secret(instance: int = 0, **spec: Any) -> m.StartRun:
    return start(instance, **{"secrets": REFS, **spec})


def tasks(talk: Talk) -> list[Json]:
    return [
        task
        for each in talk.called("ACCEPT")
        for operation in each["operations"]
        for task in operation["launch"]["task_infos"]
    ]


def held() -> list[RunSecret]:
    """Values that are still somewhere in memory."""
    gc.collect()
    # Not `isinstance`: a proxy of something that is gone raises at that.
    return [one for one in gc.get_objects() if type(one) is RunSecret and one.data == VALUE]


# ---- what is sent ----


@pytest.mark.parametrize("asks", [False, True], ids=["batch", "service"])
def test_our_executor_gets_the_value_in_the_data_of_the_task_and_nowhere_else(asks: bool) -> None:
    talk = begun()
    talk.start(with_secret(asks=asks), values=found("s-1"))
    talk.offer()
    (task,) = tasks(talk)
    assert task["executor"]["executor_id"]["value"].startswith(PREFIX)
    data = task.pop("data")
    said = json.dumps([talk.calls, *(repr(each) for each in talk.reports)])
    assert not [form for form in FORMS if form in said]
    executor = ExecutorTalk(ExecutorConfig("F", "E"), lambda: b"", now=0.0)
    executor.heard({"type": "LAUNCH", "launch": {"task": {**task, "data": data}}}, 0.0)
    (request,) = executor.launches
    run = run_of(HOST, request)
    assert run.secrets == (RunSecret("token", VALUE),) and run.memory_mb == 0.0
    assert "canary" not in repr(run.secrets) and "data" not in executor.tasks[name(0)].info


def test_a_run_without_secrets_is_sent_as_ever() -> None:
    talk = begun()
    talk.start(start(0))
    talk.offer()
    assert "secrets" not in json.loads(base64.b64decode(tasks(talk)[0]["data"]))


# ---- what is kept ----


def test_once_it_is_launched_nothing_has_the_value() -> None:
    talk = begun()
    talk.start(with_secret(), values=found("s-1"))
    assert len(held()) == 1, "it waits for an offer"
    talk.offer()
    assert talk.launched() == [[name(0)]] and not held()
    talk.clear().start(with_secret(), values=found("s-1"))
    assert not talk.calls and not held(), "a repeat is not asked for"


def no_offer(talk: Talk) -> None:
    talk.until(OFFER_WAIT_S)


def killed(talk: Talk) -> None:
    talk.order(m.StopRuns(H0, 1, (name(0),), 0.0))


def cut_off(talk: Talk) -> None:
    talk.disconnect()


def left(talk: Talk) -> None:
    talk.agents()


@pytest.mark.parametrize("drop", [no_offer, killed, cut_off, left])
def test_what_is_given_up_has_the_value_no_more(drop: Any) -> None:
    talk = begun()
    talk.start(with_secret(), values=found("s-1"))
    drop(talk)
    assert not talk.launched() and not held()


# ---- what cannot be read ----


def test_a_call_has_so_many_bytes_of_secrets_at_most() -> None:
    """The others wait for the next offer; of those without secrets all go."""
    talk, large = begun(), SecretValues()
    large.of_jobs[JOB] = {"s-1": b"x" * (SECRET_BYTES_MAX // 2)}
    talk.start(with_secret(0), with_secret(1), with_secret(2), start(3), values=large)
    talk.offer(offer("O1"))
    assert [task["name"] for task in tasks(talk)] == [name(0), name(1), name(3)]
    talk.clear().offer(offer("O2"))
    assert [task["name"] for task in tasks(talk)] == [name(2)]


def test_a_run_with_more_than_that_goes_alone() -> None:
    talk, large = begun(), SecretValues()
    large.of_jobs[JOB] = {"s-1": b"x" * (SECRET_BYTES_MAX + 1)}
    talk.start(with_secret(0), values=large)
    talk.offer()
    assert [task["name"] for task in tasks(talk)] == [name(0)]


def test_of_what_finds_no_room_nothing_is_encoded() -> None:
    """An offer may be looked at for hundreds of runs that wait, and each may have 512 KiB."""
    talk, many = begun(), SecretValues()
    many.of_jobs[JOB] = {"s-1": b"x" * RUN_BYTES_MAX}  # which is refused once it is encoded
    talk.start(with_secret(0), values=many)
    talk.offer(offer("O1", cpus=0.5))
    assert not talk.ends()
    talk.offer(offer("O2"))
    assert [end.outcome.end for end in talk.ends()] == [End.FAILED] and not talk.launched()


def test_a_store_that_is_down_gives_the_run_back_and_uses_up_no_attempt() -> None:
    talk = begun()
    talk.offer()
    talk.start(with_secret(), start(1), values=SecretValues("no answer"))
    assert talk.launched() == [[name(1)]] and not talk.ends(), "the other one goes on"
    assert talk.asked() == [[name(0)]], "whoever was here before may have launched it"
    talk.update(reconciled(name(0), "UNKNOWN"))
    (end,) = talk.ends()
    assert (end.run, end.outcome.end, end.outcome.reason) == (
        name(0), End.KILLED, SECRETS_UNAVAILABLE
    )  # fmt: skip
    assert end.outcome.system and end.outcome.message == "no answer"
    talk.clear().order(m.ForgetRuns(H0, (name(0),)))
    talk.start(with_secret(), values=found("s-1"))
    talk.offer(offer("O2"))
    assert talk.launched() == [[name(0)]]


def test_a_secret_that_is_gone_ends_the_run() -> None:
    talk = begun()
    talk.start(with_secret(), values=found("s-2"))
    talk.update(reconciled(name(0), "UNKNOWN"))
    (end,) = talk.ends()
    assert (end.outcome.end, end.outcome.reason) == (End.KILLED, SECRET_NOT_FOUND)
    assert not end.outcome.system and "s-1" in end.outcome.message


@pytest.mark.parametrize("state", ["STAGING", "RUNNING"])
def test_what_another_daemon_has_launched_goes_on_while_the_store_is_down(state: str) -> None:
    talk = begun()
    talk.start(with_secret(), values=SecretValues("no answer"))
    talk.update(reconciled(name(0), state))
    began = [(name(0),)] if state == "RUNNING" else []
    assert not talk.ends() and [one.runs for one in talk.told(m.RunsStarted)] == began
    talk.clear().update(status(name(0), "LOST", uuid="u"))
    (end,) = talk.ends()
    assert end.outcome.end is End.LOST, "it is the end of that run"


def test_a_repeat_while_the_store_is_down_harms_no_run() -> None:
    talk = begun()
    talk.start(with_secret(), values=found("s-1"))
    talk.offer()
    talk.clear().start(with_secret(), values=SecretValues("no answer"))
    assert not talk.calls and not talk.reports
    talk.update(status(name(0), "RUNNING", uuid="u"))
    talk.clear().start(with_secret(), values=SecretValues("no answer"))
    assert [one.runs for one in talk.told(m.RunsStarted)] == [(name(0),)] and not talk.ends()


def test_a_pod_of_several_containers_whose_secret_is_gone_ends_the_same() -> None:
    talk = begun()
    run = with_secret(containers=TOGETHER["several containers"]["containers"])
    talk.start(run, values=found("s-2"))
    first, second = talk.asked()[0]
    talk.update(reconciled(first, "UNKNOWN"), reconciled(second, "UNKNOWN"))
    assert len(talk.ends()) >= 1 and {end.run for end in talk.ends()} == {name(0)}
    end = talk.ends()[0]
    assert (end.outcome.end, end.outcome.reason) == (End.KILLED, SECRET_NOT_FOUND)


def test_a_kill_of_what_is_refused_just_now_is_its_end() -> None:
    talk = begun()
    talk.start(with_secret(), values=SecretValues("no answer"))
    talk.order(m.StopRuns(H0, 1, (name(0),), 1.0))
    assert talk.killed() == [(name(0), 1.0)]
    talk.update(reconciled(name(0), "UNKNOWN"))
    assert [end.outcome.end for end in talk.ends()] == [End.KILLED]


# ---- what is not possible ----

TOGETHER: dict[str, dict[str, Any]] = {
    "an image": {"image": "debian:12"},
    "several containers": {"containers": (Container("a", "true"), Container("b", "true"))},
    "a check": {"check": HealthCheck("true")},
    "files to fetch": {"uris": (Uri("http://x"),)},
    "another account": {"user": "bob"},
    "gpus": {"resources": Resources(UNIT, gpu=UNIT)},
    f"the label {CHOICE}: {COMMAND}": {"labels": (Label(CHOICE, COMMAND),)},
}


@pytest.mark.parametrize("what", TOGETHER)
@pytest.mark.parametrize("chosen", [False, True])
def test_what_nobody_gives_together_is_refused_with_a_way_out(what: str, chosen: bool) -> None:
    talk = begun()
    more = TOGETHER[what]
    if chosen and "labels" not in more:
        more = {**more, "labels": (Label(CHOICE, KEEPER),)}
    run = with_secret()
    talk.start(replace(run, spec=replace(run.spec, **more)), values=found("s-1"))
    talk.offer()
    (end,) = talk.ends()
    assert end.outcome.end is End.FAILED and not talk.launched() and not talk.grouped()
    text = end.outcome.message
    assert f"not possible on a host of Mesos: secrets together with {what}: only our own" in text
    assert text.endswith(("; leave out one of the two", "; take the label away"))
    assert not held()


@pytest.mark.parametrize("containers", [(), TOGETHER["several containers"]["containers"]])
def test_without_our_executor_there_are_none(containers: tuple[Container, ...]) -> None:
    talk = begun(None)
    talk.start(with_secret(containers=containers), values=found("s-1"))
    talk.offer()
    (end,) = talk.ends()
    assert end.outcome.end is End.FAILED and not talk.launched() and not talk.grouped()
    way_out = "leave out one of the two" if containers else "backend.mesos.batch_executor: keeper"
    assert way_out in end.outcome.message


def test_where_our_executor_does_not_start_the_run_is_to_go_elsewhere() -> None:
    talk = begun()
    for number in range(1, 1 + FAILED_STARTS_MAX):
        talk.clear().start(start(number))
        talk.offer(offer(f"O{number}"))
        ids = {
            "agent_id": {"value": "S0"},
            "executor_id": tasks(talk)[0]["executor"]["executor_id"],
        }
        gone = {"source": "SOURCE_AGENT", "message": "No such user", **ids}
        talk.update(status(name(number), "FAILED", **gone, uuid="u"))
        talk.hear("FAILURE", **ids, status=256)
    talk.clear().start(with_secret(), start(9), values=found("s-1"))
    talk.offer(offer("O9"))
    (end,) = talk.ends()
    assert talk.launched() == [[name(9)]] and end.run == name(0)
    assert (end.outcome.end, end.outcome.reason) == (End.LOST, NO_EXECUTOR)
    assert end.outcome.system and "backend.mesos.executor): No such user" in end.outcome.message
