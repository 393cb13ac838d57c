"""The text of a principal, there and back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from peloton.runtime.core.principal import (
    BASIC,
    NONE,
    PART_LENGTH_MAX,
    SOCKET,
    TLS,
    TOKEN,
    UNVERIFIED,
    Principal,
    principal_of,
)

PART = st.text(max_size=PART_LENGTH_MAX)


HOW = st.sampled_from((TLS, BASIC, TOKEN, SOCKET, UNVERIFIED, NONE))


@given(st.builds(Principal, PART, HOW, PART, PART, st.just("")))
def test_there_and_back(principal: Principal) -> None:
    assert principal_of(principal.text) == principal


def test_the_text_is_for_good() -> None:
    ann = Principal("ann", UNVERIFIED, "10.0.0.7", "peloton-python")
    assert ann.text == "unverified:ann@10.0.0.7/peloton-python"
    assert Principal("a:b@c/d", TLS, "2001:db8::1").text == "tls:a:b%40c%2Fd@2001:db8::1"
    assert Principal("", NONE, caller="tool").text == "none:/tool"


def test_how_a_name_is_known_is_told_to_people_and_a_role_is_not_journaled() -> None:
    ann = Principal("ann", BASIC, "10.0.0.7", role="operators")
    assert ann.text == "basic:ann@10.0.0.7" and ann.shown == "ann (verified by password)"
    assert principal_of(ann.text) == ann._replace(role="")
    assert Principal("root", TOKEN, "127.0.0.1", "x").text == "token:root@127.0.0.1/x"
    assert principal_of("socket:root@unix").shown == "root (verified by socket)"


def test_a_name_alone_is_unverified() -> None:
    assert principal_of("ann") == Principal("ann", UNVERIFIED)
    assert principal_of("team:ann") == Principal("team:ann", UNVERIFIED)
    assert principal_of("") == Principal("", NONE) and principal_of("").shown == ""


def test_nobody_names_himself_into_a_verified_one() -> None:
    forged = Principal("x@y/z tls:root", UNVERIFIED, caller="tls:root")
    assert principal_of(forged.text).how == UNVERIFIED
    assert principal_of(forged.text).shown.endswith(" (unverified)")


def test_what_is_kept_of_a_name_is_bounded() -> None:
    assert len(Principal("x" * 9000, UNVERIFIED, "y" * 9000, "z" * 9000).text) < 500
