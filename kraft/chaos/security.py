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
EXPRESSION: Final = "[a-z].*"
"""What guests subscribe to: all topics but the internal ones."""
SESSIONS: Final = f"listener.name.{CLIENTS.lower()}.{MECHANISM.lower()}.connections.max.reauth.ms"
"""How long guests are believed; the others, by PLAIN, are for ever."""
REQUEST_COST_S: Final = 0.004
"""What each request of a guest costs the loop of a broker, which takes no time in this world."""

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


def session_max_s(properties: Mapping[str, str]) -> float:
    """After how many seconds a guest has to say anew who it is; 0: never."""
    return int(properties.get(SESSIONS, "0")) / 1000


def guest(name: str) -> Credentials:
    """What a guest says who it is with."""
    return Credentials(MECHANISM, name, f"password of {name}")
