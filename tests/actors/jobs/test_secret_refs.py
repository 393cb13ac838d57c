"""References to secrets: which paths a run can have, what goes to it, and from which level on."""

from __future__ import annotations

import msgspec
import pytest

from peloton.actors.host.machine_messages import VolumeConfig
from peloton.actors.host.run_spec import SecretRef, clash, path_problem
from peloton.actors.job import messages as m
from peloton.actors.job.slice.task_config import Override, effective
from peloton.actors.job.spec import SERVICE, JobSpec, check_instances, with_secrets
from peloton.backends.keeper import secret_files
from tests.actors.jobs.test_job import DEFAULT, POOL

REFS = (SecretRef("s-1", "token"), SecretRef("s-2", "/etc/key"))
SPEC = JobSpec("j", "me", POOL, 2, DEFAULT)

PATHS = [
    ("token", True), ("/etc/key", True), ("a/b/c", True), ("./a", True), ("ä", True),
    ("", False), ("/", False), (".", False), ("a/", False), ("..", False), ("a/../b", False),
    ("a\0b", False), ("a\nb", False), ("x" * 1025, False), ("stdout", False), ("./stderr", False),
]  # fmt: skip


@pytest.mark.parametrize(("path", "good"), PATHS)
def test_paths(path: str, good: bool) -> None:
    assert (path_problem(path) == "") is good


@pytest.mark.parametrize(("path", "good"), PATHS)
def test_a_keeper_takes_what_a_gateway_lets_pass(path: str, good: bool) -> None:
    """It has the rule once more, as it imports nothing."""
    assert not good or secret_files.path_problem(path) == ""


@pytest.mark.parametrize(
    ("paths", "wrong"),
    [
        (("a", "b", "c/d", "c/e"), ""),
        (("a", "/a"), "/a and a are the same file"),
        (("a/b", "./a//b"), "./a//b and a/b are the same file"),
        (("a/b", "a"), "a/b lies below a, which is a file"),
        (("a", "a/b/c"), "a/b/c lies below a, which is a file"),
        (("a", "ab"), ""),
    ],
)
def test_paths_that_exclude_each_other(paths: tuple[str, ...], wrong: str) -> None:
    assert clash(paths) == wrong


@pytest.mark.parametrize(
    ("path", "good"),
    [("data", False), ("/data/", False), ("data/a/token", False), ("data2", True), ("x", True)],
)
def test_no_secret_lies_in_a_volume_nor_a_volume_in_a_secret(path: str, good: bool) -> None:
    """The account of a volume may have put links there, which a keeper would follow as root."""
    default = msgspec.structs.replace(DEFAULT, volume=VolumeConfig("data", 1))
    spec = JobSpec("j", "me", POOL, 2, default, SERVICE).with_secrets((SecretRef("s", path),))
    refused = check_instances(spec, (), own=0)
    assert (refused is None) is good
    own = Override(0, msgspec.structs.replace(DEFAULT, volume=VolumeConfig("data", 1)))
    plain = JobSpec("j", "me", POOL, 2, DEFAULT, SERVICE).with_secrets((SecretRef("s", path),))
    assert (check_instances(plain, (own,), own=1) is None) is good


def test_an_own_config_has_the_secrets_of_the_default() -> None:
    default = with_secrets(DEFAULT, REFS)
    assert effective(default, DEFAULT).secrets == REFS
    assert effective(default, None).secrets == REFS
    assert with_secrets(DEFAULT, ()) is DEFAULT
    assert Override(0, DEFAULT).config.secrets == ()


def test_another_value_of_a_secret_is_another_spec() -> None:
    """An update that gives one is no repeat of the last."""
    other = (SecretRef("s-9", "token"), REFS[1])
    one, two = SPEC.with_secrets(REFS), SPEC.with_secrets(other)
    assert msgspec.msgpack.encode(one) != msgspec.msgpack.encode(two)
    assert m.CreateJob(one) != m.CreateJob(two)
