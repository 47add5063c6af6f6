"""Whose a quota is, and which of several counts for a client: Kafka's order (KIP-55, KIP-546).

An entity is a user, a client id, or both; each by its name or as the default for those without a quota of their own;
or an address (KIP-612). The most exact one counts: a user's before a default of users, and with the client id before
without. A quota of a user is shared by all connections of the user, that of a client id by all of the client id,
one of both by those of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
DEFAULT: Final = ""
"""Stands for the name in the entity of a default: no entity has an empty name."""

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

Entity = tuple[tuple[str, str], ...]
"""(type, name) of each part, by ascending type."""
Quotas = Mapping[Entity, Mapping[str, float]]
"""The values of each entity's quotas by key."""


class Share(NamedTuple):
    """Whose traffic is counted together; None stands for all users, or all client ids."""

    user: str | None
    client_id: str | None


class Limit(NamedTuple):
    """A quota that counts for a client, and who shares it."""

    share: Share
    value: float


class QuotaTable:
    """The quotas of one key, of users and client ids."""

    def __init__(self, key: str, quotas: Quotas) -> None:
        self._values: dict[tuple[str | None, str | None], float] = {}
        for entity, values in quotas.items():
            names = dict(entity)
            if key in values and IP not in names:
                self._values[names.get(USER), names.get(CLIENT_ID)] = values[key]

    def __bool__(self) -> bool:
        return bool(self._values)

    def find(self, user: str, client_id: str) -> Limit | None:
        """What counts for this client; None if nothing does. At most eight look-ups."""
        for of_user, of_client_id in _by_exactness(user, client_id):
            value = self._values.get((of_user, of_client_id))
            if value is not None:
                share = Share(None if of_user is None else user, None if of_client_id is None else client_id)
                return Limit(share, value)
        return None


def _by_exactness(user: str, client_id: str) -> Iterator[tuple[str | None, str | None]]:
    for of_user in (user, DEFAULT):
        yield of_user, client_id
        yield of_user, DEFAULT
        yield of_user, None
    yield None, client_id
    yield None, DEFAULT


def ip_rates(quotas: Quotas) -> dict[str, float]:
    """The rates of new connections by address; that of `DEFAULT` counts for all others."""
    return {
        entity[0][1]: values[CONNECTION_CREATION_RATE]
        for entity, values in quotas.items()
        if entity[0][0] == IP and CONNECTION_CREATION_RATE in values
    }


def user_of(principal: str) -> str:
    """The user that a principal such as `User:alice` is."""
    return principal.partition(":")[2]
