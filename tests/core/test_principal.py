"""The text of a principal, there and back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from peloton.runtime.core.principal import (
    NONE,
    PART_LENGTH_MAX,
    TLS,
    UNVERIFIED,
    Principal,
    parse,
)

PART = st.text(max_size=PART_LENGTH_MAX)


@given(st.builds(Principal, PART, st.sampled_from((TLS, UNVERIFIED, NONE)), PART, PART))
def test_there_and_back(principal: Principal) -> None:
    assert parse(principal.text) == principal


def test_the_text_is_for_good() -> None:
    ann = Principal("ann", UNVERIFIED, "10.0.0.7", "peloton-python")
    assert ann.text == "unverified:ann@10.0.0.7/peloton-python"
    assert Principal("a:b@c/d", TLS, "2001:db8::1").text == "tls:a:b%40c%2Fd@2001:db8::1"
    assert Principal("", NONE, caller="tool").text == "none:/tool"


def test_names_of_earlier_journals_are_unverified() -> None:
    assert parse("ann") == Principal("ann", UNVERIFIED)
    assert parse("team:ann") == Principal("team:ann", UNVERIFIED)
    assert parse("") == Principal("", NONE) and parse("").shown == ""


def test_nobody_names_himself_into_a_verified_one() -> None:
    forged = Principal("x@y/z tls:root", UNVERIFIED, caller="tls:root")
    assert parse(forged.text).how == UNVERIFIED
    assert parse(forged.text).shown.endswith(" (unverified)")


def test_what_is_kept_of_a_name_is_bounded() -> None:
    assert len(Principal("x" * 9000, UNVERIFIED, "y" * 9000, "z" * 9000).text) < 500
