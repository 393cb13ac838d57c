"""What instances have printed is handed on once, all of it, and little is asked and held for it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from peloton.cli.texts import outputs as o
from peloton.ops.v1 import outputs_pb2 as wire
from peloton.sdk.errors import NotFound, ServiceUnavailable, Unsupported
from peloton.sdk.sandbox import REMOVED
from tests.sdk.fakes import JOB

PART = 400
"""Instances in an answer of the fake."""


class Cluster:
    """Instances of a job, and what is asked about them."""

    def __init__(self, count: int) -> None:
        self.count, self.ended = count, set[int]()
        self.gone, self.long = set[int](), dict[int, bytes]()
        self.asked = 0
        self.silent = self.of_the_original = False
        self.outputs = self.tasks = self

    def read(self, job: str, wanted: Any) -> wire.ReadOutputsResponse:
        assert job == JOB and 0 <= wanted.last - wanted.first < 1000
        self.asked += 1
        if self.silent:
            raise ServiceUnavailable("nobody")
        if self.of_the_original:
            raise Unsupported("no such call")
        had = {one for first, last in wanted.had for one in range(first, last + 1)}
        answer = wire.ReadOutputsResponse()
        for number in range(wanted.first, wanted.last + 1):
            is_over = number in self.ended
            if number in had or not (is_over or wanted.running):
                if wanted.in_order and not is_over:
                    break
                continue
            if len(answer.outputs) == PART:
                answer.next = number
                break
            state = "SUCCEEDED" if is_over else "RUNNING"
            found = answer.outputs.add(instance=number, run=f"run-{number}", state=state)
            if number in self.gone:
                found.missing = f"{number} was removed"
            elif number in self.long:
                found.files.add(name="stdout", longer=True)
            else:
                found.files.add(name="stdout", data=b"%d" % number)
                found.exit_code = 0
        return answer

    def follow(self, job: str, instance: int, *, run: str, filename: str) -> Iterator[bytes]:
        assert (job, run, filename) == (JOB, f"run-{instance}", "stdout")
        if not self.long[instance]:
            raise NotFound("it was removed meanwhile", kind=REMOVED)
        yield self.long[instance][:3]
        yield self.long[instance][3:]

    def collected(self, sink: o.Sink | None = None, *, in_order: bool = False) -> o.Collected:
        nobody: Any = self
        sink = sink or o.Printed()
        return o.Collected(nobody, JOB, count=self.count, sink=sink, in_order=in_order)


class Out:
    """What is printed on stdout."""

    def __init__(self, capture: pytest.CaptureFixture[bytes]) -> None:
        self._capture, self._seen = capture, b""

    def getvalue(self) -> bytes:
        self._seen += self._capture.readouterr().out
        return self._seen


@pytest.fixture
def out(capsysbinary: pytest.CaptureFixture[bytes]) -> Out:
    return Out(capsysbinary)


def numbers(out: Out) -> list[int]:
    return [int(line) for line in out.getvalue().split()]


@pytest.mark.parametrize("count", [1, 999, 1000, 1001, 3000])
def test_each_is_printed_once_however_many_there_are(out, count):
    cluster = Cluster(count)
    files = cluster.collected()
    for step in (7, 3, 2, 1):
        cluster.ended.update(range(0, count, step))
        files.step(len(cluster.ended))
        assert sorted(numbers(out)) == sorted(cluster.ended)
    asked = cluster.asked
    files.finish()
    assert len(numbers(out)) == count and cluster.asked == asked, "nothing is left to be asked"
    assert files.missing == 0


def test_what_is_done_is_asked_for_no_more(out):
    """However long one instance takes."""
    cluster = Cluster(20_000)
    files = cluster.collected()
    cluster.ended.update(range(1, 19_000))
    files.step(18_999)
    asked = cluster.asked
    for number in range(19_000, 19_010):
        cluster.ended.add(number)
        files.step(number)
    assert cluster.asked - asked == 10
    cluster.ended.add(0)
    files.step(19_010)
    assert 0 in numbers(out) and cluster.asked - asked == 12
    assert len(files._had) <= 20


def test_what_is_between_two_attempts_costs_few_calls_a_look(out):
    """It counts as failed, and there is no output yet."""
    cluster = Cluster(50_000)
    files = cluster.collected()
    for _ in range(3):
        files.step(10)
    assert cluster.asked == 3 * o.IDLE_MAX
    cluster.ended.add(30_500)
    for _ in range(50_000 // o.WINDOW // o.IDLE_MAX + 1):
        files.step(10)
    assert numbers(out) == [30_500], "all have their turn"


def test_in_order_each_waits_for_those_before_it(out):
    cluster = Cluster(2500)
    files = cluster.collected(in_order=True)
    cluster.ended.update(range(3, 2500))
    files.step(2497)
    assert numbers(out) == [] and cluster.asked == 1
    cluster.ended.update(range(2))
    files.step(2499)
    assert numbers(out) == [0, 1]
    cluster.ended.add(2)
    files.step(2500)
    assert numbers(out) == [*range(2500)]


def test_what_never_begins_holds_up_nothing_at_the_end(out):
    cluster = Cluster(5)
    files = cluster.collected(in_order=True)
    cluster.ended.update((0, 3, 4))
    files.step(5)
    files.finish()
    assert numbers(out) == [0, 3, 4]


def test_where_nobody_answers_the_next_look_goes_on(out):
    cluster = Cluster(3)
    files = cluster.collected()
    cluster.ended.update(range(3))
    cluster.silent = True
    files.step(3)
    assert files.is_behind(3)
    cluster.silent = False
    files.step(3)
    assert numbers(out) == [0, 1, 2] and not files.is_behind(3)


def test_what_is_gone_is_counted_with_the_reason_of_the_first(out):
    cluster = Cluster(5)
    cluster.ended.update(range(5))
    cluster.gone.update((1, 3))
    cluster.long[4] = b""
    files = cluster.collected()
    files.step(5)
    assert numbers(out) == [0, 2]
    assert (files.missing, files.why) == (3, "1 was removed")
    assert o.gone_text(files.missing, files.why).startswith("the output of 3 instances is gone")


def test_what_a_cluster_of_the_original_does_not_tell_is_gone(out):
    cluster = Cluster(1500)
    cluster.of_the_original = True
    cluster.ended.update(range(1500))
    files = cluster.collected()
    files.step(1500)
    files.finish()
    assert (files.missing, files.why) == (1500, "no such call")


def test_what_is_longer_than_an_answer_is_fetched_in_pieces(out):
    cluster = Cluster(2)
    cluster.ended.update(range(2))
    cluster.long[0] = b"one\ntwo\nthree"
    cluster.collected(o.Printed(lambda number: f"#{number}")).step(2)
    assert out.getvalue() == b"#0\tone\n#0\ttwo\n#0\tthree\n#1\t1\n"


@pytest.mark.parametrize(
    ("pieces", "printed"),
    [
        ([], b""),
        ([b""], b""),
        ([b"a"], b"0\ta\n"),
        ([b"a", b"b\n", b"c"], b"0\tab\n0\tc\n"),
        ([b"\n", b"\n"], b"0\t\n0\t\n"),
        ([b"a\nb", b"", b"\nc\n"], b"0\ta\n0\tb\n0\tc\n"),
    ],
)
def test_each_line_has_one_tag(pieces, printed):
    shown = io.BytesIO()
    o.write(shown, pieces, tag="0\t")
    assert shown.getvalue() == printed


def test_those_that_are_named_are_printed_whether_they_have_ended_or_not(out):
    cluster = Cluster(5000)
    cluster.ended.update(range(3))
    cluster.collected().read([0, 2, 999, 1000, 4100], ("stdout",))
    assert numbers(out) == [0, 2, 999, 1000, 4100] and cluster.asked == 3


# ---- files ----


def results(folder: Path, *, replaces: bool = False) -> o.Results:
    return o.Results(o.results_folder(str(folder), replaces=replaces), str, replaces=replaces)


def found(**fields: Any) -> wire.InstanceOutput:
    return wire.InstanceOutput(instance=7, state="FAILED", **fields)


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*/*")}


def test_a_folder_has_one_for_each_with_its_files_and_code(tmp_path):
    cluster = Cluster(1)
    cluster.ended.add(0)
    cluster.collected(results(tmp_path / "a" / "b")).step(1)
    whole = {"0/stdout": "0", "0/stderr": "", "0/code": "0\n"}
    assert content(tmp_path / "a" / "b") == whole


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"exit_code": 3}, "3\n"),
        ({"exit_code": 0}, "0\n"),
        ({"signal": "SIGKILL"}, "137\n"),
        ({"signal": "SIG35"}, ""),
        ({}, ""),
    ],
)
def test_the_code_of_an_instance(fields, code):
    assert o.code_text(found(**fields)) == code


def broken() -> Iterator[bytes]:
    yield b"half"
    raise NotFound("gone", kind=REMOVED)


def test_a_folder_appears_with_all_of_it_or_not_at_all(tmp_path):
    (tmp_path / ".7.part").mkdir()
    (tmp_path / ".7.part" / "stdout").write_text("of a command that was killed")
    sink = results(tmp_path)
    with pytest.raises(NotFound):
        sink.take(found(), [("stdout", broken())])
    assert [*tmp_path.iterdir()] == []
    sink.take(found(exit_code=1), [("stdout", [b"a", b"b"])])
    assert content(tmp_path)["7/stdout"] == "ab"


def test_results_of_another_job_are_not_mixed_with_these(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    results(tmp_path)
    (tmp_path / "12").mkdir()
    with pytest.raises(click.UsageError, match="has results already, such as 12: name another"):
        results(tmp_path)
    with pytest.raises(click.UsageError, match=r"notes\.txt: File exists"):
        results(tmp_path / "notes.txt")


def test_what_runs_again_replaces_its_results_and_no_others(tmp_path):
    results(tmp_path).take(found(exit_code=1), [("stdout", [b"bad"])])
    again = results(tmp_path, replaces=True)
    with pytest.raises(NotFound):
        again.take(found(), [("stdout", broken())])
    assert content(tmp_path)["7/stdout"] == "bad", "until there is another"
    again.take(found(exit_code=0), [("stdout", [b"good"])])
    assert content(tmp_path) == {"7/stdout": "good", "7/stderr": "", "7/code": "0\n"}


def test_one_that_appeared_meanwhile_is_not_overwritten(tmp_path):
    sink = results(tmp_path)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "mine").write_text("mine")
    with pytest.raises(OSError, match="not empty"):
        sink.take(found(exit_code=0), [])
    assert content(tmp_path) == {"7/mine": "mine"}
