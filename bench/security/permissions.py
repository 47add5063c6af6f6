"""The authorizer and quotas beside none: the same load at brokers that differ in nothing else, in turns.

`guarded` has an authorizer without ACLs, which lets everybody, and a generous quota. `crowded` lets nobody who is in
no ACL: besides the client's own there are thousands of ACLs, of users that each have a password and quotas.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench.brokers import TOPIC
from bench.security.brokers import AUTHORIZED, SecuredBroker, ask_as_admin, secured
from bench.turns import Turn, document, in_turns, ratios, turn
from kraft.protocol.api import AclOperation, ResourceType
from kraft.protocol.schema import Message
from kraft.protocol.schemas.acls import AclCreation, CreateAclsRequest, PatternType, PermissionType
from kraft.protocol.schemas.client_quotas import AlterationData, AlterClientQuotasRequest, EntityData, OpData
from kraft.protocol.schemas.scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kraft.security.sasl_servers import CODES
from kraft.security.scram import DEFAULT_ITERATIONS, SALT_BYTES, salted_password

AT_ONCE: Final = 250
GENEROUS: Final = {
    "producer_byte_rate": 1e12,
    "consumer_byte_rate": 1e12,
    "request_percentage": 1e6,
}
EVERYBODY: Final = {"allow.everyone.if.no.acl.found": "true"}
PARTS: Final = ("produced", "consumed", "single")


def permissions(directory: Path, records: int, pairs: int, acls: int, users: int) -> dict[str, Any]:
    """Raises BenchError."""
    with ExitStack() as stack:
        brokers = {
            "open": stack.enter_context(secured(directory / "open")),
            "guarded": stack.enter_context(secured(directory / "guarded", {**AUTHORIZED, **EVERYBODY})),
            "crowded": stack.enter_context(secured(directory / "crowded", AUTHORIZED)),
        }
        ask_as_admin(brokers["guarded"], [_quotas([None])])
        ask_as_admin(brokers["crowded"], list(_crowd(acls, users)))
        turns = in_turns(pairs, {name: _way(broker, records) for name, broker in brokers.items()})
    return {
        "acls": acls,
        "users": users,
        **{
            name: {part: ratios(turns[name], turns["open"], part) for part in PARTS}
            for name in ("guarded", "crowded")
        },
        "runs": {name: document(of_name) for name, of_name in turns.items()},
    }


def _way(broker: SecuredBroker, records: int) -> Callable[[], Turn]:
    return lambda: turn(broker, broker.bootstrap, records, {}, single=True)


def _crowd(acls: int, users: int) -> Iterator[Message]:
    """What fills a broker: users, their quotas, their ACLs, and those of the client that is measured."""
    names = [f"user-{number}" for number in range(users)]
    salt = os.urandom(SALT_BYTES)
    salted = salted_password("SCRAM-SHA-256", "one for all", salt, DEFAULT_ITERATIONS)
    code = CODES["SCRAM-SHA-256"]
    for some in _portions(names):
        upsertions = [ScramCredentialUpsertion(name, code, DEFAULT_ITERATIONS, salt, salted) for name in some]
        yield AlterUserScramCredentialsRequest(upsertions=upsertions)
        yield _quotas(list(some))
    yield _quotas([None])
    # Names of topics and prefixes of them, a few of each user's.
    kinds = (PatternType.LITERAL, PatternType.PREFIXED)
    wanted = [
        _acl(f"topic-{number}-", kinds[number % 2], f"User:{names[number % users]}", AclOperation.READ)
        for number in range(acls)
    ]
    for portion in _portions(wanted):
        yield CreateAclsRequest(creations=portion)
    own = _acl(TOPIC, PatternType.PREFIXED, "User:ANONYMOUS", AclOperation.ALL)
    yield CreateAclsRequest(creations=[own])


def _acl(name: str, pattern: PatternType, principal: str, operation: AclOperation) -> AclCreation:
    return AclCreation(ResourceType.TOPIC, name, pattern, principal, "*", operation, PermissionType.ALLOW)


def _quotas(users: list[str | None]) -> AlterClientQuotasRequest:
    """Of these users; None: of all others."""
    return AlterClientQuotasRequest(
        entries=[
            AlterationData([EntityData("user", user)], [OpData(key, rate) for key, rate in GENEROUS.items()])
            for user in users
        ]
    )


def _portions(items: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]
