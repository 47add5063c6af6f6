"""Three real nodes with a listener of each kind: brokers speak SASL_SSL to each other, by tokens, clients as they like.

PLAINTEXT is for the test's own means, which may do everything; SASL, TLS (certificates asked for) and SASLTLS are what
is tested; SHORT is SASL whose sessions last a moment. All have users of PLAIN and of SCRAM, and believe the tokens of
`issuer`. Who is in no ACL may do nothing: alice may do all, bob sees topics, erin reads in groups, frank is only known.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from kraft.config import load_config
from kraft.runtime.free_ports import free_ports
from kraft.storage import added_users, format_configured
from tests.support.certificates import Authority
from tests.support.node_processes import NODES, NodeProcesses, until
from tests.support.real_clients import is_passing
from tests.support.token_endpoint import TokenEndpoint
from tests.support.tokens import AUDIENCE, ISSUER, Issuer

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SESSION_MS: Final = 3000
"""Of SHORT: librdkafka has the last tenth of it to authenticate again, on a busy machine, too."""
USER, PASSWORD = "alice", 'of=alice, "quoted"'
USER_SECRET = "of alice to the issuer"
BROKER, BROKER_SECRET = "broker", "of brokers to the issuer"
TOKEN_LIFETIME_S: Final = 30.0
"""Of tokens that the endpoint gives: those of brokers are renewed while tests run."""
BOB, ERIN, FRANK = "bob", "erin", "frank"
"""They have USER's password, by SCRAM-SHA-512."""
ALICE_CERTIFIED: Final = "User:CN=alice,OU=people"
EVERYTHING: Final = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
WAIT_S: Final = 90.0
MESSAGE_TIMEOUT_MS: Final = 60_000
_LISTENERS: Final = {"SASL": "SASL_PLAINTEXT", "TLS": "SSL", "SASLTLS": "SASL_SSL", "SHORT": "SASL_PLAINTEXT"}
_SETTINGS: Final = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "300",
    "broker.heartbeat.interval.ms": "2000",
    "broker.session.timeout.ms": "9000",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
}
"""No node fails here, and none is to be taken for dead because it has much to do: Kafka's timers. Groups begin soon."""
_PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_TOKEN_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
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
        self.endpoint = TokenEndpoint(
            self.issuer,
            {BROKER: BROKER_SECRET, USER: USER_SECRET},
            identity=self.node_identity,
            lifetime_s=TOKEN_LIFETIME_S,
        )
        self._ports: dict[int, dict[str, int]] = {}
        super().__init__(directory, settings=_SETTINGS)

    def servers(self, listener: str) -> str:
        return ",".join(f"localhost:{ports[listener]}" for ports in self._ports.values())

    def allow(
        self,
        *principals: str,
        kinds: Iterable[ResourceType] = EVERYTHING,
        operation: AclOperation = AclOperation.ALL,
        name: str = "*",
    ) -> None:
        """Lets them do this with resources of these kinds; told when the brokers know."""
        bindings = [
            AclBinding(
                kind, name, ResourcePatternType.LITERAL, principal, "*", operation, AclPermissionType.ALLOW
            )
            for kind in kinds
            for principal in principals
        ]
        for done in self.admin.create_acls(bindings).values():
            done.result(WAIT_S)

    def librdkafka(
        self, listener: str, mechanism: str | None = None, password: str = PASSWORD, user: str = USER
    ) -> dict[str, Any]:
        """librdkafka's properties."""
        encrypted = listener in ("TLS", "SASLTLS")
        given: dict[str, Any] = {
            "bootstrap.servers": self.servers(listener),
            "security.protocol": ("SASL_" if mechanism else "") + ("SSL" if encrypted else "PLAINTEXT"),
            "log_level": 0,
        }
        if encrypted:
            given["ssl.ca.location"] = str(self.trusted)
        if mechanism:
            given |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
        return given

    def java(self, listener: str, mechanism: str | None = None, user: str = USER) -> dict[str, str]:
        """The properties of Kafka's own clients. Without a mechanism: alice's certificate."""
        encrypted = listener in ("TLS", "SASLTLS")
        given = {
            "bootstrap.servers": self.servers(listener),
            "security.protocol": ("SASL_" if mechanism else "") + ("SSL" if encrypted else "PLAINTEXT"),
        }
        if encrypted:
            given |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.trusted)}
        if mechanism == "OAUTHBEARER":
            given |= self._java_token(user)
        elif mechanism is None:
            given |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.client_identity)}
        else:
            module = _PLAIN_MODULE if mechanism == "PLAIN" else _SCRAM_MODULE
            escaped = _escaped(PASSWORD)
            given["sasl.mechanism"] = mechanism
            given["sasl.jaas.config"] = f'{module} required username="{user}" password="{escaped}";'
        return given

    def by_tokens(self, *, secret: str = USER_SECRET) -> dict[str, str]:
        """librdkafka's properties of USER with tokens of the endpoint."""
        return {
            "bootstrap.servers": self.servers("SASLTLS"),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.trusted),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.endpoint.url,
            "sasl.oauthbearer.client.id": USER,
            "sasl.oauthbearer.client.secret": secret,
            "https.ca.location": str(self.trusted),
        }

    def _java_token(self, user: str) -> dict[str, str]:
        file = self.files / f"{user}.jwt"
        file.write_text(self.issuer.token(time.time(), user))
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{_TOKEN_MODULE} required;",
            "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
        }

    def close(self) -> None:
        super().close()
        self.endpoint.close()
        shutil.rmtree(self.files, ignore_errors=True)

    def _prepare(self) -> None:
        """Adds the listeners, and formats anew with the users that the cluster starts with."""
        ports = iter(free_ports(NODES * len(_LISTENERS), avoid=set()))
        password = self.files / "password"  # Kafka's form has no way to write a comma
        password.write_text(PASSWORD)
        named = [(name, "SCRAM-SHA-512") for name in (BROKER, USER, BOB, ERIN, FRANK)]
        named.append((USER, "SCRAM-SHA-256"))
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
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.enabled.mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
            "sasl.oauthbearer.jwks.endpoint.url": self.jwks,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{BROKER};User:ANONYMOUS",
            "ssl.keystore.location": str(self.node_identity),
            "ssl.truststore.location": str(self.trusted),
            "ssl.client.auth": "required",
            "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
            "listener.name.sasltls.oauthbearer.sasl.oauthbearer.token.endpoint.url": self.endpoint.url,
            "listener.name.sasltls.oauthbearer.sasl.jaas.config": (
                f'{_TOKEN_MODULE} required clientId="{BROKER}" clientSecret="{BROKER_SECRET}"'
                f' ssl.truststore.location="{self.trusted}" ssl.truststore.type="PEM";'
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


def round_trip(properties: dict[str, Any], topic: str) -> None:
    """A record is acknowledged and read."""
    producer = Producer(properties | {"message.timeout.ms": MESSAGE_TIMEOUT_MS})
    failures: list[KafkaError] = []
    producer.produce(topic, b"value", on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(WAIT_S) == 0
    assert not failures
    consumer = Consumer(properties | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])

    def read() -> Message | None:
        message = consumer.poll(1.0)
        return None if message is None or is_passing(message.error()) else message

    message = until(read, "the record is read")
    assert (message.error(), message.value()) == (None, b"value")
    consumer.close()
