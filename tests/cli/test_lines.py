"""What `peloton map` makes of files and templates, and how sizes are typed."""

from __future__ import annotations

import click
import pytest

from peloton.cli.jobs.lines import COMMANDS_MAX, BadCommands, commands_in, filled, parted
from peloton.cli.shared.values import megabytes, quantity


def test_a_file_has_a_command_in_each_line() -> None:
    assert commands_in(["echo a\n", "\n", "  # not this", " echo b "]) == ["echo a", "echo b"]
    with pytest.raises(BadCommands, match="no command"):
        commands_in(["", "# only a comment"])


def test_a_template_is_filled_as_gnu_parallel_does() -> None:
    assert filled(["gzip", "-9", "{}"], ["a", "b c"]) == ["gzip -9 a", "gzip -9 'b c'"]
    assert filled(["gzip"], ["a"]) == ["gzip a"]
    every = filled(["echo {} {.} {/} {//} {/.} {#}"], ["x/y.tar.gz", "z"])
    assert every[0] == "echo x/y.tar.gz x/y.tar y.tar.gz x y.tar 1"
    assert every[1] == "echo z z z . z 2"


def test_a_value_is_never_code() -> None:
    assert filled(["echo {}"], ["$(rm -rf ~); {#}"]) == ["echo '$(rm -rf ~); {#}'"]


def test_limits_are_named() -> None:
    with pytest.raises(BadCommands, match=str(COMMANDS_MAX)):
        filled(["true"], map(str, range(COMMANDS_MAX + 1)))
    with pytest.raises(BadCommands, match="NUL"):
        commands_in(["echo \0"])
    with pytest.raises(BadCommands, match="template is empty"):
        filled([], ["a"])


def test_the_words_are_parted_at_the_colons() -> None:
    assert parted(["a", "{}", ":::", "1", "2"]) == (["a", "{}"], ":::", ["1", "2"])
    assert parted(["file"]) == (["file"], "", ())
    with pytest.raises(BadCommands, match="only one"):
        parted(["a", ":::", "1", ":::", "2"])
    with pytest.raises(BadCommands, match=":::\\+ is not supported"):
        parted(["a", ":::+", "1"])


@pytest.mark.parametrize(
    ("typed", "mb"),
    [
        ("512", 512),
        ("512m", 512),
        ("4g", 4096),
        ("1.5GiB", 1536),
        ("2T", 2 << 20),
        ("1024kb", 1),
        ("268435456b", 256),
    ],
)
def test_sizes(typed: str, mb: float) -> None:
    assert megabytes(typed) == mb


@pytest.mark.parametrize("typed", ["", "4x", "-1", "g", "1 2", "nan"])
def test_what_is_no_size_is_refused(typed: str) -> None:
    with pytest.raises(click.BadParameter):
        megabytes(typed)


@pytest.mark.parametrize("typed", ["-1", "nan", "inf", "two"])
def test_what_is_no_amount_is_refused(typed: str) -> None:
    with pytest.raises(click.BadParameter):
        quantity(typed)
