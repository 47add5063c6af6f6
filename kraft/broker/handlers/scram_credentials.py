"""DescribeUserScramCredentials (50), from this broker's metadata; AlterUserScramCredentials (51), forwarded (KIP-554).

What a client sends is a salted password, as good as the password. This broker makes the keys of it that are kept, and
forwards those alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kraft.broker.handlers.forwarding import Forwarded, Refusal, Split, too_long, too_many
from kraft.broker.request import Request
from kraft.broker.services import BrokerServices
from kraft.protocol.api import ResourceType
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialUpsertion,
)
from kraft.security.scram import scram_keys
from quorum.metadata.acls import CLUSTER_NAME
from quorum.metadata.records import SCRAM_MECHANISM_NAMES
from quorum.rpc import messages

TIMEOUT_S = 30.0
"""The request does not say how long its client waits; this is what Kafka's brokers give the controller."""


def handle_describe_user_scram_credentials(
    services: BrokerServices, request: Request[DescribeUserScramCredentialsRequest]
) -> DescribeUserScramCredentialsResponse:
    """Which mechanisms each user has credentials for, and with how many iterations."""
    infos: dict[str, list[CredentialInfo]] = {}
    for (name, mechanism), credential in sorted(services.metadata.image.scram_credentials.items()):
        infos.setdefault(name, []).append(CredentialInfo(mechanism, credential.iterations))
    wanted = [user.name for user in request.body.users or []]
    if problem := too_many(len(wanted), "users"):
        return DescribeUserScramCredentialsResponse(error_code=problem.code, error_message=problem.message)
    results = [
        _described(name, infos.get(name), count) for name, count in Counter(wanted or list(infos)).items()
    ]
    return DescribeUserScramCredentialsResponse(results=results)


def _described(
    name: str, infos: list[CredentialInfo] | None, count: int
) -> DescribeUserScramCredentialsResult:
    if count > 1:
        return DescribeUserScramCredentialsResult(
            name,
            ErrorCode.DUPLICATE_RESOURCE,
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
        )
    if infos is None:
        return DescribeUserScramCredentialsResult(
            name,
            ErrorCode.RESOURCE_NOT_FOUND,
            f"Attempt to describe a user credential that does not exist: {name}",
        )
    return DescribeUserScramCredentialsResult(name, credential_infos=infos)


async def handle_alter_user_scram_credentials(
    services: BrokerServices, request: Request[AlterUserScramCredentialsRequest]
) -> AlterUserScramCredentialsResponse:
    """Sets and removes credentials, user by user."""
    body = request.body
    users = list(
        dict.fromkeys([*(one.name for one in body.deletions), *(one.name for one in body.upsertions)])
    )
    judge = services.judge(request)
    refused = ErrorCode.NONE if judge is None else judge.refusal(ResourceType.CLUSTER, CLUSTER_NAME)
    problem = (
        (Refusal(refused, None) if refused else None)
        or too_many(len(body.deletions) + len(body.upsertions), "credentials")
        or too_long(users)
    )
    split = Split(users, lambda _: problem, _refuse)
    call = messages.AlterUserScramCredentialsRequest(
        tuple(messages.ScramDeletion(one.name, one.mechanism) for one in body.deletions),
        tuple(map(_upsertion, body.upsertions)) if problem is None else (),
    )

    def altered(
        forwarded: Forwarded[messages.AlterUserScramCredentialsResponse],
    ) -> Iterable[AlterUserScramCredentialsResult]:
        for result in forwarded.response.users:
            code, message = forwarded.outcome(result.error, result.message)
            yield AlterUserScramCredentialsResult(result.user, code, message)

    results = await split.forward(services, call, TIMEOUT_S, altered)
    return AlterUserScramCredentialsResponse(results=results)


def _refuse(users: Iterable[str], refusal: Refusal) -> list[AlterUserScramCredentialsResult]:
    return [AlterUserScramCredentialsResult(*told) for told in refusal.of(users)]


def _upsertion(asked: ScramCredentialUpsertion) -> messages.ScramUpsertion:
    """The keys of a mechanism that there is not are empty, and a salt that is too long is cut behind the limit: the
    controller says what is wrong."""
    mechanism = SCRAM_MECHANISM_NAMES.get(asked.mechanism)
    stored, server = (b"", b"") if mechanism is None else scram_keys(mechanism, bytes(asked.salted_password))
    salt = bytes(asked.salt[: messages.MAX_SALT_BYTES + 1])
    return messages.ScramUpsertion(asked.name, asked.mechanism, asked.iterations, salt, stored, server)
