"""Three real nodes with a listener of each kind: brokers speak SASL_SSL to each other, clients as they like.

PLAINTEXT is for the test's own means, which may do everything; SASL, TLS (certificates asked for) and SASLTLS are what
is tested; SHORT is SASL whose sessions last a moment. All have users of PLAIN and of SCRAM, and believe the tokens of
`issuer`. Who is in no ACL may do nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from kraft.config import load_config
from kraft.runtime.free_ports import free_ports
from kraft.storage import added_users, format_configured
from tests.support.certificates import Authority
from tests.support.node_processes import NODES, NodeProcesses
from tests.support.tokens import AUDIENCE, ISSUER, Issuer

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SESSION_MS: Final = 1500
USER, PASSWORD = "alice", 'of=alice, "quoted"'
_LISTENERS: Final = {"SASL": "SASL_PLAINTEXT", "TLS": "SSL", "SASLTLS": "SASL_SSL", "SHORT": "SASL_PLAINTEXT"}
_KAFKAS_TIMERS: Final = {
    "broker.heartbeat.interval.ms": "2000",
    "broker.session.timeout.ms": "9000",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
}
"""No node fails here, and none is to be taken for dead because it has much to do."""
_PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


class SecuredCluster(NodeProcesses):
    """`servers` says where a listener's clients connect."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.files = directory.parent / f"{directory.name}-files"
        self.files.mkdir()
        self.authority = Authority()
        self.trusted = self.authority.write_certificate(self.files / "ca.pem")
        self.node_identity = self.authority.write_identity(self.files / "node.pem", "CN=broker,OU=nodes")
        self.client_identity = self.authority.write_identity(self.files / "client.pem", "CN=alice,OU=people")
        self.issuer = Issuer()
        self.jwks = self.issuer.write_jwks(self.files / "jwks.json")
        self._ports: dict[int, dict[str, int]] = {}
        super().__init__(directory, settings=_KAFKAS_TIMERS)

    def servers(self, listener: str) -> str:
        return ",".join(f"localhost:{ports[listener]}" for ports in self._ports.values())

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.files, ignore_errors=True)

    def _prepare(self) -> None:
        """Adds the listeners, and formats anew with the users that the cluster starts with."""
        ports = iter(free_ports(NODES * len(_LISTENERS), avoid=set()))
        password = self.files / "password"  # Kafka's form has no way to write a comma
        password.write_text(PASSWORD)
        named = (("broker", "SCRAM-SHA-512"), (USER, "SCRAM-SHA-512"), (USER, "SCRAM-SHA-256"))
        users = added_users([f"{mechanism}=[name={name},password=@{password}]" for name, mechanism in named])
        for node_id in self.node_ids:
            self._ports[node_id] = {name: next(ports) for name in _LISTENERS}
            folder = self.local.node_dir(node_id)
            config = folder / "server.properties"
            config.write_text(self._secured(config.read_text(), node_id), encoding="utf-8")
            shutil.rmtree(folder / "data")
            loaded = load_config(config.read_text())
            cluster_id = self.local.spec().cluster_id
            format_configured(cluster_id, loaded, ignore_formatted=False, standalone=False, users=users)

    def _secured(self, text: str, node_id: int) -> str:
        lines = dict(line.split("=", 1) for line in text.splitlines())
        own = ",".join(f"{name}://localhost:{port}" for name, port in self._ports[node_id].items())
        lines["listeners"] += f",{own}"
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **_LISTENERS}
        lines |= {
            "listener.security.protocol.map": ",".join(f"{name}:{of}" for name, of in protocols.items()),
            "inter.broker.listener.name": "SASLTLS",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.enabled.mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
            "sasl.oauthbearer.jwks.endpoint.url": self.jwks,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:broker;User:ANONYMOUS",
            "ssl.keystore.location": str(self.node_identity),
            "ssl.truststore.location": str(self.trusted),
            "ssl.client.auth": "required",
            "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
            "listener.name.sasltls.scram-sha-512.sasl.jaas.config": (
                f'{_SCRAM_MODULE} required username="broker" password="{_escaped(PASSWORD)}";'
            ),
        }
        for name, protocol in _LISTENERS.items():
            if protocol.startswith("SASL"):
                lines[f"listener.name.{name.lower()}.plain.sasl.jaas.config"] = (
                    f'{_PLAIN_MODULE} required user_{USER}="{_escaped(PASSWORD)}";'
                )
        return "".join(f"{key}={value}\n" for key, value in lines.items())


def _escaped(password: str) -> str:
    """Within the quotes of a login module, within a properties file."""
    return password.replace('"', '\\\\"')
