"""Who is who in a cluster that `kraft cluster start --secure` made: certificates, users, and what clients are told.

Clients and brokers meet at one listener, CLIENTS, over TLS and by SCRAM; controllers know each other by their
certificates. `admin` may everything, and so may `broker`; everybody else what ACLs allow. Files with secrets are 0600.
`credentials` makes what stands in the files.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kraft.security.mechanisms import Credentials

ADMIN: Final = "admin"
BROKER: Final = "broker"
MECHANISM: Final = "SCRAM-SHA-512"
MECHANISMS: Final = ("SCRAM-SHA-256", MECHANISM)
LISTENER: Final = "CLIENTS"
AUTHORITY_FILE: Final = "ca.pem"
CERTIFICATE_FILE: Final = "node.pem"
"""In a node's folder: its key, and its certificate."""
CLIENT_FILE: Final = "client.properties"
JAVA_FILE: Final = "java.properties"
SPARK_FILE: Final = "spark.properties"
CLIENT_FILES: Final = {
    CLIENT_FILE: "librdkafka, and every kraft command with --command-config",
    JAVA_FILE: "Java's clients and Kafka's tools",
    SPARK_FILE: "Spark: options of the reader",
}
"""By name: for whom."""
_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True)
class Identities:
    """The passwords of a secured cluster."""

    admin_password: str = field(repr=False)
    broker_password: str = field(repr=False)

    @classmethod
    def new(cls) -> Identities:
        return cls(secrets.token_urlsafe(24), secrets.token_urlsafe(24))

    def node_settings(self, directory: Path, node_dir: Path) -> dict[str, str]:
        """What is added to a node's `server.properties`, whose listeners are CLIENTS and CONTROLLER."""
        return {
            "listener.security.protocol.map": f"{LISTENER}:SASL_SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": LISTENER,
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            **self.broker_login(LISTENER),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(node_dir / CERTIFICATE_FILE),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(directory / AUTHORITY_FILE),
            "listener.name.controller.ssl.client.auth": "required",
            "authorizer.class.name": _AUTHORIZER,
            "super.users": f"User:{ADMIN};User:{BROKER}",
        }

    def broker_login(self, listener: str) -> dict[str, str]:
        """Who a broker is at the listener where brokers meet."""
        key = f"listener.name.{listener.lower()}.{MECHANISM.lower()}.sasl.jaas.config"
        return {key: _login(BROKER, self.broker_password)}

    @property
    def admin_credentials(self) -> Credentials:
        """Of who may everything."""
        return Credentials(MECHANISM, ADMIN, self.admin_password)

    def client_files(self, directory: Path, bootstrap_servers: str) -> dict[str, dict[str, str]]:
        """By name of the file: what it says, of the admin."""
        authority = str(directory / AUTHORITY_FILE)
        java = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": _login(ADMIN, self.admin_password),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": authority,
        }
        servers = {"bootstrap.servers": bootstrap_servers}
        return {
            CLIENT_FILE: servers | self.client_settings(directory),
            JAVA_FILE: servers | java,
            SPARK_FILE: {f"kafka.{key}": value for key, value in (servers | java).items()},
        }

    def client_settings(self, directory: Path) -> dict[str, str]:
        """How a client is the admin, in librdkafka's names."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": ADMIN,
            "sasl.password": self.admin_password,
            "ssl.ca.location": str(directory / AUTHORITY_FILE),
        }


def write_private(path: Path, data: bytes) -> None:
    """A file that nobody else can read at any time, whole or not at all. Raises OSError."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    temporary.replace(path)


def write_client_files(identities: Identities, directory: Path, bootstrap_servers: str) -> None:
    """Those of `CLIENT_FILES`, over what they said before. Raises OSError."""
    for name, values in identities.client_files(directory, bootstrap_servers).items():
        lines = [f"# For {CLIENT_FILES[name]}.", *(f"{key}={value}" for key, value in values.items())]
        write_private(directory / name, ("\n".join(lines) + "\n").encode())


def _login(name: str, password: str) -> str:
    """`sasl.jaas.config`: the names and passwords here need no quoting."""
    return f'{_MODULE} required username="{name}" password="{password}";'
