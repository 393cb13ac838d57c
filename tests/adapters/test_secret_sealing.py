"""Sealing of secrets: what opens, what does not, and what a row and an error give away."""

from __future__ import annotations

import pytest

from peloton.runtime.adapters.secret_sealing import AesSealing, key_id
from peloton.runtime.ports import BadSeal, SealedSecret

OLD, NEW = b"o" * 32, b"n" * 32
VALUE = b"correct horse battery staple"


def sealed(sealing: AesSealing, data: bytes = VALUE) -> SealedSecret:
    return sealing.seal("job-1", "secret-1", made=7, data=data)


@pytest.mark.parametrize("data", [VALUE, b"", bytes(range(256)) * 256])
def test_a_value_comes_back(data):
    sealing = AesSealing([NEW])
    row = sealed(sealing, data)
    assert sealing.unseal(row) == data
    assert (row.job, row.id, row.made, row.key_id) == ("job-1", "secret-1", 7, key_id(NEW))


def test_a_row_holds_nothing_of_its_value_and_no_two_are_alike():
    sealing = AesSealing([NEW])
    one, other = sealed(sealing), sealed(sealing)
    assert VALUE not in one.data and VALUE[:8] not in one.data
    assert one.data != other.data


@pytest.mark.parametrize(
    "other",
    [{"job": "job-2"}, {"id": "secret-2"}, {"made": 8}, {"data": b"short"}],
    ids=["job", "id", "time", "data"],
)
def test_a_row_in_another_place_does_not_open(other):
    sealing = AesSealing([NEW])
    row = sealed(sealing)
    fields = {name: getattr(row, name) for name in row.__struct_fields__} | other
    with pytest.raises(BadSeal):
        sealing.unseal(SealedSecret(**fields))


def test_one_changed_bit_does_not_open():
    sealing = AesSealing([NEW])
    row = sealed(sealing)
    data = bytes([*row.data[:-1], row.data[-1] ^ 1])
    with pytest.raises(BadSeal):
        sealing.unseal(SealedSecret(row.job, row.id, row.made, row.key_id, data))


def test_the_first_key_encrypts_and_all_decrypt():
    before = sealed(AesSealing([OLD]))
    both = AesSealing([NEW, OLD])
    assert both.unseal(before) == VALUE
    assert not both.is_newest(before)
    after = sealed(both)
    assert both.is_newest(after)
    assert AesSealing([NEW]).unseal(after) == VALUE


def test_a_key_that_is_gone_is_named_and_nothing_is_quoted():
    with pytest.raises(BadSeal) as caught:
        AesSealing([NEW]).unseal(sealed(AesSealing([OLD])))
    assert key_id(OLD) in str(caught.value)
    assert OLD.hex() not in str(caught.value)


def test_prints_of_equal_values_are_equal_also_after_a_new_key():
    assert AesSealing([OLD]).fingerprint(VALUE) == AesSealing([NEW, OLD]).fingerprint(VALUE)
    assert AesSealing([OLD]).fingerprint(VALUE) != AesSealing([OLD]).fingerprint(b"x")
    assert AesSealing([OLD]).fingerprint(VALUE) != AesSealing([NEW]).fingerprint(VALUE)
