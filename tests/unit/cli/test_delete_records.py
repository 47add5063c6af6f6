"""The file of offsets that `kraft topics delete-records` takes, and what it tells of partitions of several leaders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraft.cli.app import run
from kraft.cli.topics.delete_records import parse_offsets
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schema import Message
from kraft.protocol.schemas.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kraft.user_error import EXIT_FAILED, EXIT_UNDECIDED, EXIT_USAGE, UserError
from tests.support.fake_broker import FakeCluster


def test_the_file_is_that_of_kafkas_tool() -> None:
    text = """{"partitions": [{"topic": "foo", "partition": 1, "offset": 3},
               {"topic": "foo", "partition": 0, "offset": -1}], "version": 1}"""
    assert parse_offsets(text) == {("foo", 1): 3, ("foo", 0): -1}
    assert parse_offsets('{"partitions": [{"topic": "t", "partition": 0, "offset": 9}]}') == {("t", 0): 9}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
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


class Leaders(FakeCluster):
    """The first answers with a code; the second hangs up, or is not there."""

    code = ErrorCode.NONE

    def answer(self, broker_id: int, request: Message) -> Message:
        if not isinstance(request, DeleteRecordsRequest):
            return super().answer(broker_id, request)
        if broker_id == 2:
            raise ConnectionResetError
        result = DeleteRecordsPartitionResult(partition_index=0, low_watermark=5, error_code=self.code)
        return DeleteRecordsResponse(topics=[DeleteRecordsTopicResult(name="t", partitions=[result])])


@pytest.mark.parametrize(
    ("code", "is_there", "exit_code", "errors"),
    [
        (ErrorCode.NONE, True, EXIT_UNDECIDED, [None, "NETWORK_EXCEPTION"]),
        (ErrorCode.REQUEST_TIMED_OUT, True, EXIT_UNDECIDED, ["REQUEST_TIMED_OUT", "NETWORK_EXCEPTION"]),
        (ErrorCode.OFFSET_OUT_OF_RANGE, True, EXIT_FAILED, ["OFFSET_OUT_OF_RANGE", "NETWORK_EXCEPTION"]),
        (ErrorCode.NONE, False, EXIT_FAILED, [None, "BROKER_NOT_AVAILABLE"]),
    ],
)
def test_what_one_leader_answers_is_told_whatever_becomes_of_the_other(
    code: ErrorCode,
    is_there: bool,
    exit_code: int,
    errors: list[str | None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(
        json.dumps({"partitions": [{"topic": "t", "partition": number, "offset": 5} for number in (0, 1)]})
    )
    with Leaders(2) as cluster:
        cluster.code = code
        cluster.create_topic("t", leaders=(1, 2))
        if not is_there:
            cluster.stop(2)
        command = ["topics", "delete-records", "--offset-json-file", str(file), "--json"]
        assert run([*command, "--bootstrap-server", cluster.bootstrap]) == exit_code
    rows = json.loads(capsys.readouterr().out)["partitions"]
    assert [(row["partition"], row.get("error")) for row in rows] == list(enumerate(errors))
