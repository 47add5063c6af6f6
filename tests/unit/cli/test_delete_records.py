"""The file of offsets that `kraft topics delete-records` takes."""

from __future__ import annotations

import pytest

from kraft.cli.delete_records import parse_offsets
from kraft.cli.errors import EXIT_USAGE, UserError


def test_the_file_is_that_of_kafkas_tool() -> None:
    text = """{"partitions": [{"topic": "foo", "partition": 1, "offset": 3},
               {"topic": "foo", "partition": 0, "offset": -1}], "version": 1}"""
    assert parse_offsets(text) == {("foo", 1): 3, ("foo", 0): -1}
    assert parse_offsets('{"partitions": [{"topic": "t", "partition": 0, "offset": 9}]}') == {("t", 0): 9}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is no JSON"),
        ("[]", "looks like"),
        ('{"partitions": {}}', "looks like"),
        ('{"partitions": []}', "names no partition"),
        ('{"version": 2, "partitions": []}', "version 2"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "does not name"),
        ('{"partitions": [{"topic": "t", "partition": 0, "offset": -2}]}', "does not name"),
        ('{"partitions": [{"topic": "t", "partition": 0, "offset": true}]}', "does not name"),
        ('{"partitions": [{"topic": "t", "partition": 2147483648, "offset": 0}]}', "does not name"),
        ('{"partitions": ["t-0"]}', "does not name"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "offset": 1},'
            ' {"topic": "t", "partition": 0, "offset": 2}]}',
            "t-0 is named more than once",
        ),
    ],
)
def test_another_file_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason) as error:
        parse_offsets(text)
    assert error.value.exit_code == EXIT_USAGE
