"""What AlterUserScramCredentials may do: user by user, with Kafka's refusals."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from quorum.controller.scram_control import alter_credentials
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import EMPTY
from quorum.metadata.records import RemoveUserScramCredential, UserScramCredential
from quorum.rpc.messages import AlterUserScramCredentialsRequest, ScramDeletion, ScramUpsertion

KEY = bytes(32)


def view() -> Any:
    """A cluster with one user, who has a password for SHA-256."""
    delta = MetadataDelta(EMPTY)
    delta.apply(UserScramCredential("alice", 1, b"salt", KEY, KEY, 4096), 0, 1)
    return SimpleNamespace(image=delta.finish(0, 1))


def upsertion(
    user: str, mechanism: int = 1, iterations: int = 4096, salt: bytes = b"s", key: bytes = KEY
) -> Any:
    return ScramUpsertion(user, mechanism, iterations, salt, key, key)


def altered(*asked: Any) -> tuple[list[Any], list[tuple[str, str]]]:
    """The records, and each user's error."""
    deletions = tuple(one for one in asked if isinstance(one, ScramDeletion))
    upsertions = tuple(one for one in asked if isinstance(one, ScramUpsertion))
    decision = alter_credentials(view(), AlterUserScramCredentialsRequest(deletions, upsertions))
    response: Any = decision.respond(1)
    records = [record for unit in decision.units for record in unit.records]
    return records, [(result.user, result.error) for result in response.users]


def test_credentials_are_set_and_removed() -> None:
    records, results = altered(ScramDeletion("alice", 1), upsertion("bob", 2, 16_384, key=bytes(64)))
    assert records == [
        RemoveUserScramCredential("alice", 1),
        UserScramCredential("bob", 2, b"s", bytes(64), bytes(64), 16_384),
    ]
    assert results == [("alice", "NONE"), ("bob", "NONE")]


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (upsertion(""), "UNACCEPTABLE_CREDENTIAL"),
        (upsertion("x" * 256), "UNACCEPTABLE_CREDENTIAL"),
        (upsertion("bob", 0), "UNSUPPORTED_SASL_MECHANISM"),
        (upsertion("bob", 3), "UNSUPPORTED_SASL_MECHANISM"),
        (upsertion("bob", iterations=4095), "UNACCEPTABLE_CREDENTIAL"),
        (upsertion("bob", iterations=16_385), "UNACCEPTABLE_CREDENTIAL"),
        (upsertion("bob", salt=b""), "UNACCEPTABLE_CREDENTIAL"),
        (upsertion("bob", salt=bytes(1025)), "UNACCEPTABLE_CREDENTIAL"),
        (upsertion("bob", 2), "UNACCEPTABLE_CREDENTIAL"),
        (ScramDeletion("", 1), "UNACCEPTABLE_CREDENTIAL"),
        (ScramDeletion("alice", 5), "UNSUPPORTED_SASL_MECHANISM"),
        (ScramDeletion("alice", 2), "RESOURCE_NOT_FOUND"),
        (ScramDeletion("bob", 1), "RESOURCE_NOT_FOUND"),
    ],
)
def test_what_is_refused_keeps_nobody_else_from_it(asked: Any, error: str) -> None:
    records, results = altered(asked, upsertion("carol"))
    assert [record.name for record in records] == ["carol"]
    assert results == [(asked.user, error), ("carol", "NONE")]


def test_a_user_is_altered_once_in_a_request() -> None:
    records, results = altered(
        ScramDeletion("alice", 1), upsertion("alice", 2, key=bytes(64)), upsertion("bob")
    )
    assert [record.name for record in records] == ["bob"]
    assert results == [("alice", "DUPLICATE_RESOURCE"), ("bob", "NONE")]
