"""The administrator of a secured cluster, who makes and removes users, permissions and quotas while clients run."""

from __future__ import annotations

import asyncio

from kraft.chaos import security
from kraft.chaos.scenario import WorkloadSpec
from kraft.chaos.workload.base import Surroundings, Workload
from kraft.chaos.workload.client import CallFailedError, Client
from kraft.chaos.world.host import Process
from kraft.protocol.api import APIS, AclOperation, ResourceType
from kraft.protocol.messages import response_class
from kraft.protocol.schema import Message
from kraft.protocol.schemas.acls import AclCreation, CreateAclsRequest, DeleteAclsFilter, DeleteAclsRequest
from kraft.protocol.schemas.client_quotas import AlterationData, AlterClientQuotasRequest, EntityData, OpData
from kraft.protocol.schemas.scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kraft.security.scram import salted_password
from quorum.metadata.acls import ALLOW, CLUSTER_NAME, DENY, LITERAL, PREFIXED

SCRAM_SHA_256 = 1
SALT = b"salt of the simulation"
"""One for all: what it costs to salt a password is paid once a user and run."""
QUOTAS = {
    "producer_byte_rate": (200.0, 2_000.0),
    "consumer_byte_rate": (200.0, 2_000.0),
    "request_percentage": (1.0, 5.0),
}
"""Quotas and their values, of the order of what a guest takes."""
USER_REMOVED, USER_MADE = "user removed", "user made"
ACL_MADE, ACL_REMOVED, QUOTA_CHANGED = "ACL made", "ACL removed", "client quota changed"
EVENTS = (USER_REMOVED, USER_MADE, ACL_MADE, ACL_REMOVED, QUOTA_CHANGED)
OPERATIONS = (
    AclOperation.READ,
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALTER,
    AclOperation.ALL,
)
RESOURCES = (
    (ResourceType.TOPIC, security.VAULT, LITERAL),
    (ResourceType.TOPIC, security.VAULT, LITERAL),
    (ResourceType.TOPIC, security.VAULT[:3], PREFIXED),
    (ResourceType.TOPIC, "*", LITERAL),
    (ResourceType.GROUP, security.GUESTS_GROUP, LITERAL),
    (ResourceType.GROUP, security.VAULT, PREFIXED),
    (ResourceType.CLUSTER, CLUSTER_NAME, LITERAL),
)
HOSTS_MAX = 16
"""Hosts that an ACL may name: nodes and clients have the first addresses."""
ACLS_MAX = 14
"""Above, one is removed rather than made."""


class SecurityOperator(Workload):
    """Sends one request after another; a failed one is not repeated."""

    may_crash = False

    def __init__(self, around: Surroundings, spec: WorkloadSpec) -> None:
        super().__init__(around, spec)
        around.verdicts.declare(EVENTS)
        self._salted: dict[str, bytes] = {}

    async def run(self, process: Process, client: Client) -> None:
        for user in security.GUESTS:
            await self._change(client, USER_MADE, self._upsert(user))
            await self._change(client, ACL_MADE, self._all_of_the_vault(user))
        while not self.is_over:
            await asyncio.sleep(self.pause_s(1))
            self.begun += 1
            await self._change(client, *self._drawn())

    def abandon(self, why: str) -> None:
        """It does not crash."""

    async def _change(self, client: Client, event: str, request: Message) -> None:
        key = request.API_KEY
        try:
            await client.call(client.any_broker(), request, APIS[key].versions[-1], response_class(key))
        except CallFailedError:
            return  # whether it took effect is in the metadata
        self.acknowledged += 1
        self.around.verdicts.happened(event)

    def _drawn(self) -> tuple[str, Message]:
        rng = self.rng
        user, chance = rng.choice(security.GUESTS), rng.random()
        image = self.around.cluster.image()
        acls = [] if image is None else sorted(image.acls)
        if chance < 0.1:
            return USER_REMOVED, AlterUserScramCredentialsRequest(
                deletions=[ScramCredentialDeletion(user, SCRAM_SHA_256)]
            )
        if chance < 0.25:
            return USER_MADE, self._upsert(user)
        if chance < 0.35:
            key = rng.choice(list(QUOTAS))
            ops = [OpData(key, rng.choice(QUOTAS[key]), rng.random() < 0.4)]
            return QUOTA_CHANGED, AlterClientQuotasRequest(
                entries=[AlterationData([EntityData("user", user)], ops)]
            )
        if acls and (chance < 0.62 or len(acls) >= ACLS_MAX):
            one = rng.choice(acls)
            gone = DeleteAclsFilter(
                one.resource_type,
                one.resource_name,
                one.pattern_type,
                one.principal,
                one.host,
                one.operation,
                one.permission_type,
            )
            return ACL_REMOVED, DeleteAclsRequest([gone])
        if chance > 0.85:
            return ACL_MADE, self._all_of_the_vault(user)
        return ACL_MADE, self._made(principal=f"User:{rng.choice((*security.GUESTS, *security.GUESTS, '*'))}")

    def _all_of_the_vault(self, user: str) -> CreateAclsRequest:
        """Without it a guest would hardly ever be served, and nothing could be taken from it."""
        resources = (
            (ResourceType.TOPIC, security.VAULT, LITERAL),
            (ResourceType.GROUP, security.VAULT, PREFIXED),
        )
        return CreateAclsRequest(
            [AclCreation(*one, f"User:{user}", "*", AclOperation.ALL, ALLOW) for one in resources]
        )

    def _made(self, principal: str) -> CreateAclsRequest:
        rng = self.rng
        resource_type, name, pattern = rng.choice(RESOURCES)
        operation = rng.choice(OPERATIONS)
        host = "*" if rng.random() < 0.75 else f"10.0.0.{rng.randint(1, HOSTS_MAX)}"
        permission = DENY if rng.random() < 0.3 else ALLOW
        return CreateAclsRequest(
            [AclCreation(resource_type, name, pattern, principal, host, operation, permission)]
        )

    def _upsert(self, user: str) -> AlterUserScramCredentialsRequest:
        if user not in self._salted:
            secret = security.guest(user).password
            self._salted[user] = salted_password(security.MECHANISM, secret, SALT, security.ITERATIONS)
        made = ScramCredentialUpsertion(user, SCRAM_SHA_256, security.ITERATIONS, SALT, self._salted[user])
        return AlterUserScramCredentialsRequest(upsertions=[made])
