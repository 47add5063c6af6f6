"""Users' SCRAM credentials: what AlterUserScramCredentials may set and remove (KIP-554).

A user is altered at most once in a request; one that is refused keeps none of the others from being altered. Refusals
and their words are those of Kafka's ScramControlManager. Called by `requests`.
"""

from __future__ import annotations

from collections import Counter

from quorum.controller.decision import ClusterView, Decision, Unit, decided
from quorum.errors import ControllerError
from quorum.metadata.records import (
    SCRAM_KEY_BYTES,
    SCRAM_MECHANISM_NAMES,
    RemoveUserScramCredential,
    UserScramCredential,
)
from quorum.rpc.messages import (
    MAX_ITERATIONS,
    MAX_SALT_BYTES,
    MAX_USER_NAME_CHARACTERS,
    MIN_ITERATIONS,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramAlterationResult,
    ScramDeletion,
    ScramUpsertion,
)


def alter_credentials(view: ClusterView, request: AlterUserScramCredentialsRequest) -> Decision:
    """Sets and removes credentials, user by user."""
    alterations: tuple[ScramDeletion | ScramUpsertion, ...] = (*request.deletions, *request.upsertions)
    named = Counter(alteration.user for alteration in alterations)
    units, results = [], []
    for user, count in named.items():
        try:
            if count > 1:
                raise ControllerError(
                    "DUPLICATE_RESOURCE", "A user credential cannot be altered twice in the same request"
                )
            alteration = next(one for one in alterations if one.user == user)
            units.append(Unit(_record(view, alteration)))
        except ControllerError as error:
            results.append(ScramAlterationResult(user, error.code, error.message))
        else:
            results.append(ScramAlterationResult(user))
    return decided(AlterUserScramCredentialsResponse(tuple(results)), *units)


def _record(
    view: ClusterView, alteration: ScramDeletion | ScramUpsertion
) -> UserScramCredential | RemoveUserScramCredential:
    """Raises ControllerError."""
    if not alteration.user:
        raise ControllerError("UNACCEPTABLE_CREDENTIAL", "Username must not be empty")
    if len(alteration.user) > MAX_USER_NAME_CHARACTERS:
        raise ControllerError(
            "UNACCEPTABLE_CREDENTIAL",
            f"A username has {MAX_USER_NAME_CHARACTERS} characters at most, not {len(alteration.user)}",
        )
    if alteration.mechanism not in SCRAM_MECHANISM_NAMES:
        raise ControllerError("UNSUPPORTED_SASL_MECHANISM", "Unknown SCRAM mechanism")
    if isinstance(alteration, ScramDeletion):
        if (alteration.user, alteration.mechanism) not in view.image.scram_credentials:
            raise ControllerError(
                "RESOURCE_NOT_FOUND", "Attempt to delete a user credential that does not exist"
            )
        return RemoveUserScramCredential(alteration.user, alteration.mechanism)
    _check(alteration)
    return UserScramCredential(
        name=alteration.user,
        mechanism=alteration.mechanism,
        salt=alteration.salt,
        stored_key=alteration.stored_key,
        server_key=alteration.server_key,
        iterations=alteration.iterations,
    )


def _check(upsertion: ScramUpsertion) -> None:
    """Raises ControllerError UNACCEPTABLE_CREDENTIAL."""
    problem = None
    key_bytes = SCRAM_KEY_BYTES[upsertion.mechanism]
    if upsertion.iterations < MIN_ITERATIONS:
        problem = "Too few iterations"
    elif upsertion.iterations > MAX_ITERATIONS:
        problem = "Too many iterations"
    elif not 0 < len(upsertion.salt) <= MAX_SALT_BYTES:
        problem = f"A salt has 1 to {MAX_SALT_BYTES} bytes, not {len(upsertion.salt)}"
    elif len(upsertion.stored_key) != key_bytes or len(upsertion.server_key) != key_bytes:
        problem = f"The keys of {SCRAM_MECHANISM_NAMES[upsertion.mechanism]} have {key_bytes} bytes"
    if problem is not None:
        raise ControllerError("UNACCEPTABLE_CREDENTIAL", problem)
