"""Who is who in a secured scenario: the listener that clients come through, its users, and the properties for it.

A scenario is secured if its properties name an authorizer. Then clients speak SASL: the workloads of other scenarios
come as the administrator, guests (`kraft.chaos.workload.guest`) as users whose permissions change. Nodes talk to each
other over a listener of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraft.security.mechanisms import PLAIN, Credentials

AUTHORIZER: Final = "authorizer.class.name"
CLIENTS, NODES = "CLIENTS", "PLAINTEXT"
"""Names of listeners."""
ADMINISTRATOR: Final = Credentials(PLAIN, "admin", "of the simulation")
GUESTS: Final = ("alice", "bob")
"""Users, by SCRAM, while the metadata have them."""
MECHANISM: Final = "SCRAM-SHA-256"
ITERATIONS: Final = 4096
SUPER_USERS: Final = frozenset(("User:admin", "User:ANONYMOUS"))
"""The administrator, and the nodes: nobody else reaches their listener."""
VAULT: Final = "vault"
"""The topic of the guests."""
GUESTS_GROUP: Final = "vault-readers"

PROPERTIES: Final[Mapping[str, str]] = {
    AUTHORIZER: "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": ";".join(sorted(SUPER_USERS)),
    "listener.security.protocol.map": f"{CLIENTS}:SASL_PLAINTEXT,{NODES}:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": NODES,
    "sasl.enabled.mechanisms": f"{PLAIN},{MECHANISM}",
    "quota.window.num": "3",
    f"listener.name.{CLIENTS.lower()}.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' user_{ADMINISTRATOR.username}="{ADMINISTRATOR.password}";'
    ),
}
"""Of every node."""


def is_secured(properties: Mapping[str, str]) -> bool:
    """Whether clients of such nodes have to say who they are."""
    return AUTHORIZER in properties


def guest(name: str) -> Credentials:
    """What a guest says who it is with."""
    return Credentials(MECHANISM, name, f"password of {name}")
