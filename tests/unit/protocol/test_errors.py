"""The table of error codes against kio's, which is generated from Kafka's."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from kraft.protocol import ErrorCode, ProtocolError, UnsupportedVersion


def test_names_numbers_and_retriable_flags_are_kafkas() -> None:
    ours = {(error.name.lower(), int(error), error.retriable) for error in ErrorCode}
    assert ours == {(error.name, int(error), error.retriable) for error in KioErrorCode}


def test_every_error_says_something_of_its_own() -> None:
    messages = [error.message for error in ErrorCode]
    assert len(set(messages)) == len(messages)
    assert all(message.endswith(".") and len(message) <= 100 for message in messages)


def test_a_code_finds_its_error_and_an_unknown_one_does_not_raise() -> None:
    assert ErrorCode.of(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ErrorCode.of(-1) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.of(32_000) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_name_finds_its_error() -> None:
    assert ErrorCode["NOT_ENOUGH_REPLICAS"] == 19


def test_an_unsupported_version_keeps_what_an_answer_needs() -> None:
    error = UnsupportedVersion(99, 3, 17)
    assert isinstance(error, ProtocolError)
    assert (error.api_key, error.api_version, error.correlation_id) == (99, 3, 17)
