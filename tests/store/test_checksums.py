"""Records with a checksum: what was written is read, and any other bit is an error."""

from __future__ import annotations

import pytest

from figrl.store.checksums import WrongContentError, sealed_json, unsealed_json

RECORDS = [
    {},
    {"a": 1},
    {"z": {"checksum": "00000000", "y": [0.1, None]}, "ä": "a\n b"},
    {"a": [1e300, -0.0], "checksums": {"x": "1"}, "z": True},
]


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("inside", [None, "attributes"])
def test_a_record_is_read_as_it_was_written_or_not_at_all(record, inside):
    value = record if inside is None else {"attributes": record, "shape": [2], "zarr": 3}
    content = sealed_json(value, inside=inside)
    assert unsealed_json(content, inside=inside) == value
    for bit in range(8 * len(content)):
        other = bytearray(content)
        other[bit // 8] ^= 1 << bit % 8
        with pytest.raises((WrongContentError, ValueError, LookupError)):
            unsealed_json(bytes(other), inside=inside)


@pytest.mark.parametrize("text", ["{}", '{\n "a": 1\n}', '{"checksum": 7}', '{"checksum": "1"}'])
def test_a_record_without_a_checksum_of_its_own_is_an_error(text):
    with pytest.raises(WrongContentError):
        unsealed_json(text.encode())
