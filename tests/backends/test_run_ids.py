"""Ids of runs at the keeper: never an old one for a new run, in any generation of the cluster."""

from __future__ import annotations

from peloton.backends.run_ids import RunIds


def test_in_the_first_generation_an_id_is_the_name() -> None:
    ids = RunIds()
    assert ids.begin("job-0-1") == ids.at_keeper("job-0-1") == ids.name("job-0-1") == "job-0-1"
    assert ids.forget(["job-0-1"]) == ["job-0-1"]


def test_a_run_of_a_later_generation_has_a_new_id() -> None:
    ids = RunIds(2)
    assert ids.begin("job-0-1") == "job-0-1.g2"
    assert ids.name("job-0-1.g2") == "job-0-1"
    assert ids.at_keeper("job-0-1") == "job-0-1.g2"


def test_a_run_from_before_keeps_its_id_until_it_is_forgotten() -> None:
    ids = RunIds(2)
    for old in ("job-0-1", "job-0-1.g1"):
        assert ids.name(old) == "job-0-1"
        assert ids.at_keeper("job-0-1") == old
        assert ids.forget(["job-0-1"]) == [old]
        assert ids.at_keeper("job-0-1") == "job-0-1.g2"


def test_a_launch_never_takes_an_id_from_before() -> None:
    ids = RunIds(1)
    ids.name("job-0-1")
    assert ids.begin("job-0-1") == "job-0-1.g1"
    ids.name("job-0-1")  # a late report of the old run
    ids.name("job-0-1.g1")
    assert ids.at_keeper("job-0-1") == "job-0-1.g1"
