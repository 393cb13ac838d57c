"""Data folders of somebody else are refused, and to begin anew removes our own names alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from peloton.runtime.adapters import claimed_folder
from peloton.runtime.adapters.claimed_folder import ForeignFolder, OtherBackend


def held(path: Path) -> Path:
    """A folder as a cluster leaves it."""
    (path / "keeper" / "runs").mkdir(parents=True)
    (path / "journal.sqlite").write_text("frames")
    (path / "lock").write_text("1\n")
    return path


def test_a_folder_of_strangers_is_refused_by_their_names(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "c.txt", "lock", "z"):
        (tmp_path / name).write_text("precious")
    with pytest.raises(ForeignFolder, match=r"\(a.txt, b.txt, c.txt and 1 more\)"):
        claimed_folder.check_ours(tmp_path)


@pytest.mark.parametrize("names", [(), ("lock",), ("lock", "keeper", "lost+found")])
def test_a_folder_where_a_start_failed_is_ours(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    claimed_folder.check_ours(tmp_path)
    claimed_folder.check_ours(tmp_path / "not there yet")


def test_strangers_beside_a_journal_outlive_a_new_beginning(tmp_path: Path) -> None:
    held(tmp_path)
    (tmp_path / "photographs").mkdir()
    (tmp_path / "photographs" / "1.jpg").write_text("precious")
    claimed_folder.check_ours(tmp_path)
    claimed_folder.claim_folder(tmp_path, "process")
    claimed_folder.empty_folder(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "photographs"]
    assert (tmp_path / "photographs" / "1.jpg").read_text() == "precious"


def test_who_changed_what_outlives_a_new_beginning(tmp_path: Path) -> None:
    for name in ("audit.log", "audit.log.1"):
        (tmp_path / name).write_text("{}\n")
    claimed_folder.check_ours(tmp_path)
    claimed_folder.empty_folder(held(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["audit.log", "audit.log.1", "lock"]
    (tmp_path / "audit.logbook").write_text("precious")
    with pytest.raises(ForeignFolder, match="audit.logbook"):
        claimed_folder.check_ours(tmp_path)


def test_a_link_is_removed_and_not_followed(tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "data"
    elsewhere.mkdir()
    folder.mkdir()
    (elsewhere / "1.jpg").write_text("precious")
    (folder / "keeper").symlink_to(elsewhere)
    claimed_folder.empty_folder(folder)
    assert not (folder / "keeper").is_symlink()
    assert (elsewhere / "1.jpg").read_text() == "precious"


def test_another_backend_is_refused_and_told_which_one_it_is(tmp_path: Path) -> None:
    claimed_folder.claim_folder(tmp_path, "process")
    claimed_folder.claim_folder(tmp_path, "process")
    with pytest.raises(OtherBackend, match="with the process backend") as refused:
        claimed_folder.claim_folder(tmp_path, "simulated")
    assert refused.value.known == "process"
    claimed_folder.empty_folder(tmp_path)
    claimed_folder.claim_folder(tmp_path, "simulated")


def test_a_folder_from_before_is_known_by_its_keeper(tmp_path: Path) -> None:
    with pytest.raises(OtherBackend, match="with the process backend"):
        claimed_folder.claim_folder(held(tmp_path), "simulated")
