"""Jobs by name, several in one wait, progress, completion, and the files of jobs from stdin."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import grpc
import pytest
import yaml
from click.shell_completion import BashComplete

from peloton.__main__ import PROCESSES
from peloton.api.v0.job import job_pb2
from peloton.cli.jobs.failed import short
from peloton.cli.main import MEANT, active_names, root
from peloton.cli.shared.options import CliSettings, Globals
from peloton.ops.v1 import ops_pb2 as ops
from peloton.sdk import ops as sdk_ops
from peloton.sdk.wire import USER
from peloton.sdk.yaml_text import load_yaml
from tests.cli.terminal import Printed, Terminal, typed
from tests.sdk.fakes import JOB

OTHER = "5e3c9999-0f0a-4c39-9d5c-0c3d6b7d1e11"


def twin(peloton: Terminal, name: str) -> None:
    """A second job, under another id."""
    peloton.cluster.add_job("RUNNING", "RUNNING")
    copy = job_pb2.JobInfo()
    copy.CopyFrom(peloton.cluster.jobs[JOB])
    copy.id.value, copy.config.name = OTHER, name
    peloton.cluster.jobs[OTHER] = copy


@pytest.mark.parametrize("word", ["hello_world", "5e3c7c3a", JOB])
def test_a_job_is_named_by_name_or_by_the_beginning_of_its_id(peloton: Terminal, word: str) -> None:
    twin(peloton, "other")
    assert peloton("job", "get", word, "--output", "name") == Printed(0, f"{JOB}\n", "")


def test_several_that_match_are_listed_and_none_is_chosen(peloton: Terminal) -> None:
    """Of active jobs of a name by what changes them; of beginnings of ids by all."""
    twin(peloton, "hello_world")
    refused = peloton("job", "delete", "hello_world")
    assert refused.code == 65 and JOB in refused.err and OTHER in refused.err
    assert (
        "--latest is the newest, hello_world~1 the one before"
        in peloton("job", "delete", "hello_world").err
    )
    assert not peloton.cluster.called("Delete")
    assert peloton("job", "get", "5e3c").code == 65
    peloton("job", "delete", JOB[:7])
    (sent,) = peloton.cluster.called("Delete")
    assert sent.request.id.value == JOB[:7], "a name that is gone may look like less of an id"


def test_of_several_jobs_of_a_name_the_newest_that_is_active_is_read(peloton: Terminal) -> None:
    twin(peloton, "hello_world")
    older, newer = peloton.cluster.jobs[JOB].runtime, peloton.cluster.jobs[OTHER].runtime
    newer.creationTime = "2026-11-22T05:00:00Z"

    def meant(*words: str) -> str:
        return peloton(*words, "-o", "name").out.strip()

    read = ("job", "get", "hello_world")
    assert peloton(*read, "-o", "name") == Printed(
        0,
        f"{OTHER}\n",
        f"2 jobs are called hello_world: {OTHER} is meant, the newest that is active\n",
    )
    assert (meant("job", "get", "hello_world~0"), meant("job", "get", "hello_world~1")) == (
        OTHER, JOB,
    )  # fmt: skip
    gone = peloton("job", "get", "hello_world~2")
    assert gone.code == 66 and "2 jobs are called hello_world" in gone.err
    newer.state = job_pb2.SUCCEEDED
    assert meant(*read) == JOB, "it is active, though older"
    older.state = job_pb2.KILLED
    assert meant(*read) == OTHER
    assert "the newest\n" in peloton(*read).err


def test_what_changes_a_job_takes_the_only_one_that_is_active_or_the_one_that_is_said(
    peloton: Terminal,
) -> None:
    twin(peloton, "hello_world")
    peloton.cluster.jobs[OTHER].runtime.creationTime = "2026-11-22T05:00:00Z"
    stop = ("job", "stop", "--dry-run")
    assert peloton(*stop, "hello_world").code == 65
    assert OTHER in peloton(*stop, "hello_world", "--latest").out
    assert JOB in peloton(*stop, "hello_world~1").out
    peloton.cluster.jobs[OTHER].runtime.state = job_pb2.FAILED
    assert JOB in peloton(*stop, "hello_world").out
    assert peloton("job", "get", "hello_world", "--latest").code == 64, "it reads"


def test_where_a_name_is_shared_the_callers_own_jobs_are_meant(peloton: Terminal) -> None:
    twin(peloton, "hello_world")
    peloton.cluster.jobs[OTHER].runtime.creationTime = "2026-11-22T05:00:00Z"
    peloton.cluster.jobs[OTHER].config.owningTeam = "somebody"
    peloton.cluster.jobs[JOB].config.owningTeam = USER
    read = peloton("job", "get", "hello_world", "-o", "name")
    assert read.out == f"{JOB}\n" and "the newest that is active of yours" in read.err
    assert peloton("job", "get", "hello_world~0", "-o", "name").out == f"{JOB}\n"
    refused = peloton("job", "stop", "--dry-run", "hello_world")
    assert refused.code == 65, "another's is active, too"
    assert JOB in peloton("job", "stop", "--dry-run", "--latest", "hello_world").out


def test_names_of_active_jobs_are_completed(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING")
    completer = BashComplete(
        root(PROCESSES),
        {"obj": CliSettings(active_names=active_names)},
        "peloton",
        "_PELOTON_COMPLETE",
    )

    def completed(*words: str) -> list[str]:
        typed_now = ["--api", peloton.address, *words[:-1]]
        return [one.value for one in completer.get_completions(typed_now, words[-1])]

    assert completed("logs", "hel") == completed("job", "get", "") == ["hello_world"]
    assert completed("wait", JOB, "h") == ["hello_world"] and completed("why", "x") == []
    peloton.cluster.jobs[JOB].config.name = "FLOW:ALIGN (1)"
    assert completed("why", "") == [JOB[:8]], "a shell would take the name apart"
    peloton.cluster.fail("Query", *[grpc.StatusCode.UNAVAILABLE] * 9)
    assert completed("why", "") == []


@pytest.mark.parametrize("word", ["ps", "ls"])
def test_everyday_verbs_are_there(peloton: Terminal, word: str) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING")
    assert peloton(word, "-o", "name") == Printed(0, f"{JOB}\n", "")
    for stop in ("kill", "cancel"):
        assert "would" in peloton(stop, "hello_world", "--dry-run").out
    assert peloton("version").out == peloton("--version").out != ""


def test_what_others_call_a_command_names_it(peloton: Terminal) -> None:
    group = root(PROCESSES)
    for word, ours in MEANT.items():
        assert f"did you mean {ours}?" in peloton(word).err
        found: click.Command | None = group
        for name in ours.split():
            assert isinstance(found, click.Group)
            found = found.get_command(click.Context(found), name)
        assert found is not None, ours


def test_commands_that_change_jobs_are_known_as_such() -> None:
    group = root(PROCESSES)
    found: dict[bool, set[str]] = {True: set(), False: set()}

    def walk(some: click.Group, context: click.Context, path: tuple[str, ...]) -> None:
        for name in some.list_commands(context):
            command = some.get_command(context, name)
            if isinstance(command, click.Group):
                walk(command, click.Context(command, parent=context), (*path, name))
            elif isinstance(command, Globals):
                named = {one.name for one in command.params} & {"job", "jobs"}
                if named:
                    found[command.changes_jobs].add(" ".join((*path, name)))

    walk(group, click.Context(group), ())
    verbs = {
        "update", "stop", "replace", "rollback", "restart", "start", "delete", "pause",
        "resume", "abort", "rolling-restart", "rolling-start", "rolling-stop", "create", "kill",
        "cancel",
    }  # fmt: skip
    assert {one.split()[-1] for one in found[True]} == verbs
    assert not {one.split()[-1] for one in found[False]} & verbs


def test_what_nothing_is_found_for_goes_to_the_server_as_it_is(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING")
    assert peloton("job", "delete", "hello").code == 66
    assert peloton.cluster.called("Delete")[0].request.id.value == "hello"


def test_what_no_job_is_called_is_said(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING")
    assert peloton("job", "get", "hullo") == Printed(66, "", "hullo: job not found\n")
    assert "Job hullo" in peloton("job", "progress", "hullo").err


def test_a_key_has_the_name_of_a_job(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING")
    keys = {
        "hello_world": f"job/{JOB}", "job/5e3c7c3a": f"job/{JOB}",
        "task/hello_world/7": f"task/{JOB}/7", "lot/hello_world/0/3": f"lot/{JOB}/0/3",
        "host/hello_world": "host/hello_world", f"slice/{JOB}/0": f"slice/{JOB}/0",
    }  # fmt: skip
    for word in keys:
        peloton("story", word)
    assert [call.request.key for call in peloton.cluster.called("Story")] == [*keys.values()]


def test_an_option_is_named_as_it_was_typed(peloton: Terminal) -> None:
    for label, option in (("throttle", "throttle"), ("name_unique", "unique")):
        peloton.cluster.invalid_config = f"labels[0]: peloton.{label}: wrong"
        refused = peloton("run", "--pool", "/hello", "--", "ls")
        assert refused.code == 125 and f"--{option}: wrong" in refused.err
        assert "labels" not in refused.err
    refused = peloton("run", "--pool", "/hello", "--after", "hullo", "--", "ls")
    assert refused.code == 125 and "--after: hullo: job not found" in refused.err


def test_a_mistyped_resource_is_no_missing_one(peloton: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    config = "{command: {value: ls}, resourc: {cpulimit: 1}}"
    file.write_text(f"name: a\ninstancecount: 1\ndefaultconfig: {config}\n")
    refused = peloton("job", "create", "/hello", str(file))
    assert refused.code == 65 and "did you mean resource?" in refused.err
    assert "each task gets" not in refused.err


def test_o_is_the_output_where_it_is_nothing_else(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING")
    assert peloton("job", "get", JOB, "-o", "name").out == f"{JOB}\n"
    assert peloton("job", "query", "-o", "1").code == 0
    assert peloton.cluster.called("Query")[-1].request.spec.pagination.offset == 1


def test_options_behind_a_file_count_and_behind_a_command_are_refused(
    peloton: Terminal, tmp_path: Path
) -> None:
    file = tmp_path / "commands.txt"
    file.write_text("echo a\necho b\n")
    words = ("map", "--pool", "/hello", "--dry-run")
    for given in ((*words, str(file), "--max-parallel", "1"), (*words, "--", str(file), "-k")):
        shown = yaml.safe_load(peloton(*given).out)
        assert shown["instanceCount"] == 2
        assert ("sla" in shown) == ("--max-parallel" in given)
    for told in (("map", "-j", "4", "echo {}"), ("run", "-j", "4", "ls")):
        refused = peloton(*told, ":::", "1")
        assert refused.code in (64, 125) and "--max-parallel N" in refused.err
    for own in (("--", "make", "-j", "4"), ("make", "-j", "4")):
        shown = yaml.safe_load(peloton("run", "--pool", "/hello", "--dry-run", *own).out)
        assert shown["defaultConfig"]["command"]["value"].endswith("make -j 4")
    shown = peloton(*words, str(file), "--preemptible").out
    assert "preemptible: true" in shown
    assert peloton(*words, str(file), "--no-such-option").code == 64
    assert peloton("map", "--retry-failed", "hullo") == Printed(66, "", "hullo: job not found\n")
    for behind in (("echo {}", "--cpus", "2", ":::", "1"), ("ls", ":::", "1", "--cpus=2")):
        refused = peloton(*words, *behind)
        assert refused.code == 64 and "--cpus comes after the command" in refused.err
    assert yaml.safe_load(peloton(*words, "prog", "--cpus", "{}", ":::", "1", "2").out)
    refused = peloton("run", "--pool", "/hello", "--dry-run", "sleep 1; ls", "--raw-exit")
    assert refused.code == 125 and "--raw-exit comes after the command" in refused.err
    own = peloton("run", "--pool", "/hello", "--dry-run", "prog", "--name", "x")
    assert "prog --name x" in own.out


def test_a_run_is_summed_up_as_data(peloton: Terminal) -> None:
    peloton.cluster.waits = [ops.WaitJobResponse(state="FAILED", done=True, exit_code=5)]
    ran = peloton("run", "--pool", "/hello", "-n", "2", "-o", "json", "--", "ls")
    assert ran.code == 5 and yaml.safe_load(ran.out)["exit_code"] == 5


@pytest.mark.parametrize(
    ("state", "server", "code"),
    [
        ("SUCCEEDED", 0, 0),
        ("FAILED", 3, 3),
        ("FAILED", 64, 64),
        ("FAILED", 127, 127),
        ("FAILED", 137, 137),
        ("FAILED", 255, 255),
        ("FAILED", 0, 125),
        ("KILLED", 0, 125),
    ],
)
def test_one_run_hands_on_any_code_of_its_command(
    peloton: Terminal, state: str, server: int, code: int
) -> None:
    peloton.cluster.waits = [ops.WaitJobResponse(state=state, done=True, exit_code=server)]
    assert peloton("run", "--pool", "/hello", "--", "ls").code == code


@pytest.mark.parametrize("words", [("--pool", "/none", "--", "ls"), ("--cpus", "many", "ls"), ()])
def test_what_is_not_of_the_command_has_one_code(peloton: Terminal, words: tuple[str, ...]) -> None:
    printed = peloton("run", *words)
    assert (printed.code, bool(printed.err)) == (125, True)
    assert peloton("respool", "update").code == 64, "of others it is their own again"


@pytest.mark.parametrize("folder", ["/a", "/it's a folder", "/x;y && z"])
def test_a_command_is_told_without_its_folder(folder: str) -> None:
    assert short(f"cd {shlex.quote(folder)} || exit 125; a b\nc") == "a b; c"
    assert short("cd /a || exit 1; b") == "cd /a || exit 1; b"


def test_one_wait_takes_several_jobs(peloton: Terminal) -> None:
    peloton.cluster.waits = [
        ops.WaitJobResponse(state="SUCCEEDED", done=True),
        ops.WaitJobResponse(state="FAILED", done=True, exit_code=5),
    ]
    done = peloton("wait", JOB, OTHER)
    assert done.code == 5
    assert [line.split()[2] for line in done.out.splitlines()] == ["SUCCEEDED", "FAILED"]
    peloton.cluster.waits = [
        ops.WaitJobResponse(state="FAILED", done=True, exit_code=5),
        ops.WaitJobResponse(state="RUNNING"),
    ]
    assert peloton("wait", JOB, OTHER, "--within", "0").code == 124


def test_progress_counts(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "SUCCEEDED", "FAILED", "PENDING", "PENDING")
    first, second = peloton.lines("job", "progress", "hello_world")
    assert first.startswith(f"Job {JOB} hello_world RUNNING after")
    assert second.startswith("2 of 4 ended, ")
    assert second.endswith("1 FAILED, 2 PENDING, 1 SUCCEEDED")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes(shell: str) -> None:
    script = typed("completion", shell)
    assert script.code == 0 and "_PELOTON_COMPLETE" in script.out


@pytest.mark.parametrize(
    "words", ["job create /default", "respool update /a", "cron create n '* * * * *' /a", "map"]
)
def test_files_are_completed(words: str) -> None:
    completer = BashComplete(root(PROCESSES), {}, "peloton", "_PELOTON_COMPLETE")
    (found,) = completer.get_completions(shlex.split(words), "ex")
    assert (found.type, found.value) == ("file", "ex")


def test_a_task_without_resources_gets_some_and_is_told(peloton: Terminal, tmp_path: Path) -> None:
    size = ops.Amounts(cpu=2.0, memory_mb=3000.0)
    peloton.cluster.hosts = [ops.Host(name="a", state="UP", capacity=size)]
    file = tmp_path / "job.yaml"
    file.write_text("name: a\ninstancecount: 1\ndefaultconfig: {command: {value: ls}}\n")
    done = peloton("job", "create", "/hello", str(file))
    assert "each task gets 1 cpu and 1500 MB" in done.err
    sent = peloton.cluster.called("Create")[0].request.config.defaultConfig.resource
    assert (sent.cpuLimit, sent.memLimitMb) == (1.0, 1500.0)
    own = "{command: {value: ls}, resource: {cpulimit: 0.5}}"
    file.write_text(f"name: a\ninstancecount: 1\ndefaultconfig: {own}\n")
    assert "each task gets" not in peloton("job", "create", "/hello", str(file)).err
    assert peloton.cluster.called("Create")[1].request.config.defaultConfig.resource.cpuLimit == 0.5


def test_a_dry_run_prints_the_job_and_creates_none(peloton: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: a\ninstancecount: 3\ndefaultconfig: {command: {value: ls}}\n")
    done = peloton("job", "create", "/hello", str(file), "--dry-run")
    assert done.code == 0
    assert yaml.safe_load(done.out)["instanceCount"] == 3
    ran = peloton("run", "--cpus", "2", "--env", "A=1", "--dry-run", "--", "echo", "a b")
    shown = yaml.safe_load(peloton("run", "--pool", "/hello", "--dry-run", "--", "ls").out)
    assert ran.code == 125  # the fake has no pool /default, whose limits are asked for
    assert shown["defaultConfig"]["command"]["value"].endswith(" || exit 125; ls")
    assert peloton("job", "create", "/nowhere", str(file), "--dry-run").code == 66
    assert not peloton.cluster.called("Create")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("instancecount: 1\n", "name: a job needs a name"),
        (
            "name: a\nsla:\n  maximumrunninginstances: 0\n",
            "line 3: sla.maximumrunninginstances: must",
        ),
        ("name: a\ndefaultconfig:\n  command: {value: ' '}\n", "line 3: defaultconfig.command: "),
        (
            "name: a\ndefaultconfig:\n  command:\n    value: ls\n    environment:\n"
            "      variables:\n      - {name: A, value: x}\n      - {name: A, value: y}\n",
            "line 8: defaultconfig.command.environment.variables[1].name: A is given twice",
        ),
    ],
)
def test_what_nobody_can_mean_is_refused(
    peloton: Terminal, text: str, wrong: str, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    done = peloton("job", "create", "/hello", str(file))
    assert done.code == 65 and wrong in done.err
    if "sla" in text:
        peloton.cluster.add_job("RUNNING", "RUNNING")
        assert wrong in peloton("job", "update", JOB, str(file)).err
    assert not peloton.cluster.called("Update")
    assert not peloton.cluster.called("Create")


def test_json_has_characters_in_two_halves() -> None:
    text = r'{"a": "\ud83d\ude00 \\ud83d\\ude00 \u00e9"}'
    assert load_yaml(text) == {"a": "\U0001f600 \\ud83d\\ude00 é"}


def test_jobs_are_stopped_by_state(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING", "RUNNING")
    done = peloton("job", "stop", "--states", "RUNNING", "--force")
    assert done.code == 0 and f"Stopping jobs: [{JOB}]" in done.out
    (asked,) = peloton.cluster.called("Query")
    assert list(asked.request.spec.jobStates) == [job_pb2.JobState.RUNNING]
    assert peloton("job", "stop", "--states", "FAILED").code == 64
    assert peloton("job", "stop", JOB, "--states", "RUNNING").code == 64
    assert peloton("job", "stop").code == 64


def test_what_a_job_waits_for_becomes_labels(peloton: Terminal) -> None:
    job = "5bd4ab6a-39f5-4a0c-8d2c-6a8e7f0b7a51"
    words = ["--after", f"{job}:ended", "--after", job[:-1] + "2", "--deadline", "2h", "--unique"]
    words += ["--throttle", "10/s"]
    ran = peloton("run", "--pool", "/hello", *words, "--dry-run", "--", "ls")
    assert yaml.safe_load(ran.out)["labels"] == [
        {"key": "peloton.after", "value": f"{job}:ended,{job[:-1]}2"},
        {"key": "peloton.deadline", "value": "2h"},
        {"key": "peloton.throttle", "value": "10/s"},
        {"key": "peloton.name_unique", "value": "true"},
    ]


@pytest.mark.parametrize(
    ("given", "end"),
    [("FLOW:ALIGN (1)", ""), ("FLOW:ALIGN (1):FAILED", ":FAILED"), (f"{JOB}:typo", ":typo")],
)
def test_a_name_with_colons_is_waited_for(peloton: Terminal, given: str, end: str) -> None:
    peloton.cluster.add_job("RUNNING", name="FLOW:ALIGN (1)")
    ran = peloton("run", "--pool", "/hello", "--after", given, "--dry-run", "--", "ls")
    assert yaml.safe_load(ran.out)["labels"] == [{"key": "peloton.after", "value": f"{JOB}{end}"}]


def test_where_an_end_is_told_becomes_a_label(peloton: Terminal) -> None:
    words = ["--notify", "https://example.com/x FAILED", "--cpus", "1", "--mem", "1g"]
    ran = peloton("run", "--pool", "/hello", *words, "--dry-run", "--", "ls")
    labels = yaml.safe_load(ran.out)["labels"]
    assert labels == [{"key": "peloton.notify", "value": "https://example.com/x FAILED"}]


def test_each_mistake_of_a_file_is_printed_with_its_line(peloton: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("nam: x\ninstancecount: many\nsla: {priority: high}\n")
    refused = peloton("job", "create", "/p", str(file))
    assert refused.code == 65
    assert [line.split(":")[0] for line in refused.err.splitlines()] == [
        f"{file}, line {number}" for number in (1, 2, 3)
    ]


def test_wait_finds_a_name_once_a_server_answers(
    peloton: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk_ops, "SILENCE_PAUSE_S", 0.0)
    monkeypatch.setattr(sdk_ops, "SILENCE_REPORTED_S", 0.0)
    peloton.cluster.add_job("SUCCEEDED")
    peloton.cluster.waits = [ops.WaitJobResponse(state="SUCCEEDED", done=True)]
    peloton.cluster.fail("Query", *[grpc.StatusCode.UNAVAILABLE] * 4, text="restarting")
    done = peloton("wait", "hello_world")
    assert done.code == 0 and JOB in done.out
    assert "restarting; retrying for 60 s at most" in done.err and "it answers again" in done.err
    peloton.cluster.fail("Query", *[grpc.StatusCode.UNAVAILABLE] * 10_000, text="gone")
    over = peloton("wait", "hello_world", "--within", "0.1s")
    assert (
        over.code == 124
        and "the time is over; " in over.err
        and "cannot answer now: gone" in over.err
    )


def test_the_time_to_find_a_name_is_part_of_the_time_to_wait(peloton: Terminal) -> None:
    peloton.cluster.add_job("RUNNING")
    peloton.cluster.fail("Query", grpc.StatusCode.UNAVAILABLE, text="restarting")
    peloton.cluster.waits = [ops.WaitJobResponse(state="RUNNING")]
    assert peloton("wait", "hello_world", "--within", "1s").code == 124
    # A first call waits for a second, where there is as much time; the search was repeated once.
    assert peloton.cluster.called("WaitJob")[0].request.timeout_s < 0.99
