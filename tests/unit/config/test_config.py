"""server.properties: Kafka's own files load, and what cannot work is refused with a sentence."""

from __future__ import annotations

import pytest

from kraft.config import (
    ConfigError,
    Endpoint,
    ServerConfig,
    inter_broker_token_login,
    is_sensitive,
    load_config,
)
from kraft.config_environment import keys_from_environment
from kraft.config_keys import CONFIG_KEYS
from kraft.security.token_login import TokenLogin

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
}
BROKER = {
    "process.roles": "broker",
    "node.id": "7",
    "controller.quorum.voters": "1@a:9093,2@b:9093,3@c:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.listener.secret": "s",
}
CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
}
STANDALONE = {
    **{key: value for key, value in COMBINED.items() if key != "controller.quorum.voters"},
    "controller.quorum.bootstrap.servers": "localhost:9093",
}
SCRAM_JAAS = "listener.name.clients.scram-sha-256.sasl.jaas.config"
SECURED = {
    **COMBINED,
    "listeners": "CLIENTS://:9092,CONTROLLER://:9093",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
    SCRAM_JAAS: 'org.x.ScramLoginModule required username="admin" password="s";',
}
TOKENS = {
    **SECURED,
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer/keys",
    "listener.name.clients.oauthbearer.sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
    "listener.name.clients.oauthbearer.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer"
    '.OAuthBearerLoginModule required clientId="broker" clientSecret="hunter2" scope="all";',
    "listener.name.clients.oauthbearer.sasl.login.read.timeout.ms": "500",
}

KAFKA_SAMPLE = """
############################# Server Basics #############################
# The role of this server. Setting this puts us in KRaft mode
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
############################# Socket Server Settings #############################
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
############################# Log Basics #############################
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def load(base: dict[str, str], **changes: str | None) -> ServerConfig:
    """Keys are given with underscores for dots; None removes one."""
    values: dict[str, str | None] = {
        **base,
        **{key.replace("_", "."): value for key, value in changes.items()},
    }
    return load_config("\n".join(f"{key}={value}" for key, value in values.items() if value is not None))


def test_kafkas_own_sample_file_loads() -> None:
    config = load_config(KAFKA_SAMPLE)
    assert config.node_id == 1
    assert config.is_broker
    assert config.is_controller
    assert config.voters == {1: "localhost:9093"}
    assert config.is_standalone
    assert config.broker_listeners == (Endpoint("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert config.advertised == (Endpoint("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)
    assert config.controller_listener == Endpoint("CONTROLLER", "", 9093, "PLAINTEXT")
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)
    assert config.metadata_log_dir == "/tmp/kraft-combined-logs"
    (warning,) = config.warnings
    assert warning.startswith("num.io.threads, num.network.threads, num.recovery.threads.per.data.dir, ")
    assert warning.endswith(" are Kafka's, and have no effect here")


@pytest.mark.parametrize(
    ("listeners", "protocols", "names"),
    [
        ("PLAINTEXT://:9092", None, ["PLAINTEXT"]),
        ("PLAINTEXT://0.0.0.0:9092", None, ["PLAINTEXT"]),
        ("PLAINTEXT://node-1:9092", None, ["PLAINTEXT"]),
        ("PLAINTEXT://[::]:9092", None, ["PLAINTEXT"]),
        ("PLAINTEXT://127.0.0.1:9092", None, []),
        ("PLAINTEXT://localhost:9092", None, []),
        ("PLAINTEXT://[::1]:9092", None, []),
        ("CLIENTS://:9092", "CLIENTS:SASL_PLAINTEXT", []),
        ("INSIDE://:9092,CLIENTS://:9094", "CLIENTS:SASL_PLAINTEXT,INSIDE:PLAINTEXT", ["INSIDE"]),
    ],
)  # fmt: skip
def test_listeners_that_let_everybody_in_are_known(
    listeners: str, protocols: str | None, names: list[str]
) -> None:
    config = load(
        SECURED,
        listeners=f"{listeners},CONTROLLER://:9093",
        listener_security_protocol_map=f"{protocols or 'PLAINTEXT:PLAINTEXT'},CONTROLLER:PLAINTEXT",
    )
    assert [endpoint.name for endpoint in config.open_listeners] == names


def test_a_controller_alone_has_no_listener_of_clients() -> None:
    assert load(CONTROLLER).open_listeners == ()


def test_a_listeners_own_keys_count_before_those_of_all() -> None:
    config = load(
        SECURED,
        connections_max_reauth_ms="10",
        **{
            "listener.name.clients.connections.max.reauth.ms": "20",
            "listener.name.clients.plain.connections.max.reauth.ms": "30",
            "listener.name.other.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.clients.num.partitions": "5",
        },
    )
    key = "connections.max.reauth.ms"
    assert config.of_listener("OTHER", key, "PLAIN") == 10
    assert config.of_listener("CLIENTS", key) == config.of_listener("CLIENTS", key, "SCRAM-SHA-256") == 20
    assert config.of_listener("CLIENTS", key, "PLAIN") == 30
    assert config.of_listener("OTHER", "sasl.enabled.mechanisms") == ("PLAIN",)
    assert config.of_listener("CLIENTS", "sasl.jaas.config", "SCRAM-SHA-256").options["username"] == "admin"
    assert config.unknown_keys == ("listener.name.clients.num.partitions",)
    assert config.inter_broker_listener_name == "CLIENTS"


def test_a_brokers_own_login_is_its_listeners() -> None:
    """In Kafka's older names and its newer ones; the secret is shown by nothing."""
    config = load(TOKENS)
    login = inter_broker_token_login(config)
    assert login == TokenLogin("https://issuer/token", "broker", "hunter2", "all", read_timeout_ms=500)
    newer = load(
        TOKENS,
        **{
            "listener.name.clients.oauthbearer.sasl.jaas.config": None,
            "listener.name.clients.sasl.oauthbearer.client.credentials.client.id": "broker",
            "sasl.oauthbearer.client.credentials.client.secret": "hunter2",
            "sasl.oauthbearer.scope": "all",
        },
    )
    assert inter_broker_token_login(newer) == login
    assert "hunter" not in repr(config) + repr(newer) + repr(login)
    assert inter_broker_token_login(load(SECURED)) is None
    assert inter_broker_token_login(load(COMBINED)) is None


def test_a_listeners_keys_come_from_the_environment_too() -> None:
    text = "\n".join(f"{key}={value}" for key, value in SECURED.items())
    variables = {"KAFKA_LISTENER_NAME_CLIENTS_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-256,SCRAM-SHA-512"}
    config = load_config(text, variables)
    assert config.of_listener("CLIENTS", "sasl.enabled.mechanisms") == ("SCRAM-SHA-256", "SCRAM-SHA-512")


def test_secrets_are_known_for_what_they_are() -> None:
    assert is_sensitive(SCRAM_JAAS)
    assert is_sensitive("ssl.key.password")
    assert is_sensitive("listener.name.clients.ssl.keystore.password")
    assert not is_sensitive("listener.name.clients.sasl.enabled.mechanisms")
    assert not is_sensitive("no.such.key")


def test_brokers_speak_by_the_protocol_that_is_named() -> None:
    listeners = "PLAINTEXT://:9092,SASL_PLAINTEXT://:9094,CONTROLLER://:9093"
    config = load(COMBINED, listeners=listeners, security_inter_broker_protocol="PLAINTEXT",
                  sasl_enabled_mechanisms="SCRAM-SHA-512")  # fmt: skip
    assert config.inter_broker_listener == Endpoint("PLAINTEXT", "", 9092, "PLAINTEXT")


def test_defaults_are_kafkas() -> None:
    config = load(COMBINED)
    for key, value in {
        "replica.lag.time.max.ms": 30_000,
        "broker.heartbeat.interval.ms": 2_000,
        "broker.session.timeout.ms": 9_000,
        "socket.request.max.bytes": 104_857_600,
        "connections.max.idle.ms": 600_000,
        "auto.create.topics.enable": True,
        "num.partitions": 1,
        "default.replication.factor": 1,
        "replica.fetch.max.bytes": 1_048_576,
        "replica.fetch.wait.max.ms": 500,
        "log.retention.check.interval.ms": 300_000,
    }.items():
        assert config.get(key) == value, key
    assert config.log_defaults.max_message_bytes == 1_048_588
    assert config.get("http.listener").startswith("127.0.0.1:")
    assert config.warnings == ()


def test_log_keys_reach_the_logs_defaults() -> None:
    config = load(COMBINED, log_segment_bytes="1048576", min_insync_replicas="2")
    assert config.log_defaults.segment_bytes == 1_048_576
    assert config.log_defaults.min_insync_replicas == 2


def test_log_dir_stands_in_for_log_dirs() -> None:
    assert load(COMBINED, log_dir="/data").log_dirs == ("/data",)
    assert load(COMBINED, log_dir="/data", log_dirs="/a, /b").log_dirs == ("/a", "/b")
    assert load(COMBINED, log_dirs="/a,/b", metadata_log_dir="/meta").metadata_log_dir == "/meta"


def test_no_folder_is_not_the_default_folder() -> None:
    """As a variable of a container has it that nobody filled in."""
    with pytest.raises(ConfigError, match=r"^log\.dirs=: "):
        load(COMBINED, log_dirs="")


def test_a_broker_alone_and_a_controller_alone() -> None:
    broker = load(BROKER)
    assert broker.broker_listeners == (Endpoint("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert broker.controller_listener is None
    controller = load(CONTROLLER)
    assert controller.broker_listeners == ()
    assert controller.advertised == ()
    assert controller.controller_listener == Endpoint("CONTROLLER", "", 9093, "PLAINTEXT")


def test_a_controller_may_be_advertised_beside_the_clients_listeners() -> None:
    to_clients = Endpoint("PLAINTEXT", "h", 9092, "PLAINTEXT")
    both = "PLAINTEXT://h:9092,CONTROLLER://h:9093"
    assert load(COMBINED, advertised_listeners=both).advertised == (to_clients,)
    assert load(CONTROLLER, advertised_listeners="CONTROLLER://h:9093").advertised == ()
    with pytest.raises(ConfigError, match="CONTROLLER is not among the broker's listeners"):
        load(BROKER, advertised_listeners=both)


def test_a_quorum_of_one_is_where_its_controller_is_advertised() -> None:
    config = load(
        STANDALONE,
        controller_quorum_bootstrap_servers="localhost:19093",
        advertised_listeners="CONTROLLER://localhost:19093",
    )
    assert config.voters == {1: "localhost:19093"}


def test_voters_count_before_bootstrap_servers() -> None:
    config = load(COMBINED, controller_quorum_bootstrap_servers="a:1,b:2")
    assert (config.voters, config.is_standalone) == ({1: "localhost:9093"}, False)
    (warning,) = config.warnings
    assert "has no effect beside controller.quorum.voters" in warning


# Environment variables

FILE = "".join(f"{key}={value}\n" for key, value in COMBINED.items())


def test_variables_go_over_the_file_by_the_rule_of_kafkas_images() -> None:
    config = load_config(
        FILE + "num.partitions=2\n",
        {
            "KAFKA_NUM_PARTITIONS": "7",
            "KAFKA_LOG_RETENTION_HOURS": "2",
            "KAFKA_METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS": "9",
            "KAFKA_NUM_IO_THREADS": "1",
            "KAFKA_HEAP_OPTS": "-Xmx1G",
            "KAFKA_NUM_PARTITION": "9",
            "KAFKA_PORT": "tcp://10.0.0.1:9092",
            "KAFKA_SERVICE_HOST": "10.0.0.1",
            "NUM_PARTITIONS": "8",
            "kafka_num_partitions": "8",
            "HOME": "/root",
        },
    )
    assert (config.get("num.partitions"), config.log_defaults.retention_ms) == (7, 7_200_000)
    assert config.properties["num.partitions"] == "7"
    assert config.from_environment == (
        "KAFKA_LOG_RETENTION_HOURS",
        "KAFKA_METADATA_LOG_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS",
        "KAFKA_NUM_IO_THREADS",
        "KAFKA_NUM_PARTITIONS",
    )
    assert config.warnings == ("num.io.threads is Kafka's, and has no effect here",)


def test_a_node_of_variables_alone() -> None:
    environment = {f"KAFKA_{key.upper().replace('.', '_')}": value for key, value in STANDALONE.items()}
    assert load_config("", environment).voters == {1: "localhost:9093"}


def test_underscores_and_dashes_in_keys() -> None:
    keys = {"KAFKA_A_B": "a.b", "KAFKA_A__B": "a_b", "KAFKA_A___B": "a-b", "KAFKA_A__B_C___D": "a_b.c-d"}
    found = keys_from_environment(dict.fromkeys(keys, "1"), lambda key: True)
    assert found == {variable: (key, "1") for variable, key in keys.items()}


def test_old_keys_as_variables_are_refused_by_the_name_that_was_set() -> None:
    for name, says in (
        ("KAFKA_BROKER_ID", r"KAFKA_BROKER_ID \(broker.id\) is a key of older .* use node.id"),
        ("KAFKA_ZOOKEEPER_CONNECT", r"KAFKA_ZOOKEEPER_CONNECT \(zookeeper.connect\)"),
    ):
        with pytest.raises(ConfigError, match=says):
            load_config(FILE, {name: "1"})


def test_listener_names_are_case_insensitive() -> None:
    config = load(
        COMBINED, listeners="plaintext://h:1,controller://h:2", controller_listener_names="Controller"
    )
    assert config.broker_listeners == (Endpoint("PLAINTEXT", "h", 1, "PLAINTEXT"),)
    assert config.inter_broker_listener_name == "PLAINTEXT"


def test_ipv6_addresses_stand_in_brackets() -> None:
    config = load(COMBINED, listeners="PLAINTEXT://[::1]:9092,CONTROLLER://[::1]:9093")
    assert config.broker_listeners[0].host == "::1"


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_a_listener_on_every_interface_is_advertised_under_the_hosts_name(host: str) -> None:
    config = load(COMBINED, listeners=f"PLAINTEXT://{host}:9092,CONTROLLER://:9093")
    assert config.advertised == (Endpoint("PLAINTEXT", "", 9092, "PLAINTEXT"),)


def test_warnings_name_the_key_that_may_have_been_meant() -> None:
    config = load(COMBINED, log_dris="/data", num_io_threads="8", something_else="1")
    assert config.unknown_keys == ("log.dris", "num.io.threads", "something.else")
    assert config.warnings == (
        "log.dris is not known and has no effect; did you mean log.dirs?",
        "something.else is not known and has no effect",
        "num.io.threads is Kafka's, and has no effect here",
    )


def test_a_key_of_run_time_has_no_effect_in_the_file() -> None:
    config = load(COMBINED, leader_replication_throttled_rate="1")
    (warning,) = config.warnings
    assert "leader.replication.throttled.rate can only be set while the broker runs" in warning


def test_a_key_that_is_set_twice_is_a_warning() -> None:
    text = (
        "\n".join(f"{key}={value}" for key, value in COMBINED.items())
        + "\nnum.partitions=2\nnum.partitions=3"
    )
    config = load_config(text)
    assert config.get("num.partitions") == 3
    assert config.warnings == ("num.partitions is set more than once; the last line counts",)


@pytest.mark.parametrize(
    ("base", "changes", "says"),
    [
        (COMBINED, {"process_roles": None}, "process.roles is not set"),
        (COMBINED, {"process_roles": "zookeeper"}, "'zookeeper' is no role; use broker, controller"),
        (COMBINED, {"process_roles": "broker,broker"}, "names a role twice"),
        (COMBINED, {"node_id": None}, "node.id is not set: every node needs an id"),
        (COMBINED, {"node_id": "one"}, "node.id=one: 'one' is not a whole number"),
        (COMBINED, {"node_id": "1_0"}, "node.id=1_0: '1_0' is not a whole number"),
        (COMBINED, {"node_id": "-1"}, "node.id=-1: -1 is not between 0"),
        (COMBINED, {"node_id": "2"}, r"node.id=2 has the controller role but is not among .* \[1\]; add it"),
        (BROKER, {"node_id": "2"}, "node.id=2 is among controller.quorum.voters but lacks the role; add controller"),
        (COMBINED, {"controller_quorum_voters": None}, "controller.quorum.voters is not set"),
        (STANDALONE, {"controller_quorum_bootstrap_servers": None}, "controller.quorum.voters is not set"),
        (STANDALONE, {"controller_quorum_bootstrap_servers": "localhost"}, "'localhost' is not host:port"),
        (STANDALONE, {"controller_quorum_bootstrap_servers": ":9093"}, "no address that the other nodes can reach"),
        (STANDALONE, {"controller_quorum_bootstrap_servers": "a:9093,b:9093,c:9093"},
         "it names 3 controllers; list the controllers in controller.quorum.voters as id@host:port"),
        (STANDALONE, {"controller_quorum_bootstrap_servers": "a:9094"},
         "a:9094 is not where this node's controller listens; list"),
        (STANDALONE, {"process_roles": "broker", "listeners": "PLAINTEXT://:9092"},
         "this node is no controller; list"),
        (COMBINED, {"broker_id": "1"}, "broker.id is a key of older versions of Kafka: use node.id"),
        (COMBINED, {"host_name": "h"}, "host.name is a key of older .*: use listeners"),
        (COMBINED, {"port": "9092"}, "port is a key of older .*: use listeners"),
        (COMBINED, {"zookeeper_connect": "h:2181"}, "no ZooKeeper here; use process.roles and controller.quorum"),
        (COMBINED, {"zookeeper_set_acl": "true"}, "zookeeper.set.acl is a key of older .*; use process.roles"),
        (COMBINED, {"replica_lag_max_messages": "4000"}, "by time alone; use replica.lag.time.max.ms"),
        (COMBINED, {"advertised_host_name": "h"}, "advertised.host.name .* use advertised.listeners"),
        (COMBINED, {"controller_quorum_voters": "localhost:9093"}, "'localhost:9093' is not id@host:port"),
        (COMBINED, {"controller_quorum_voters": "1@localhost"}, "'localhost' is not host:port"),
        (COMBINED, {"controller_quorum_voters": "1@a:1,1@b:1"}, "node 1 is there twice"),
        (COMBINED, {"controller_quorum_voters": "1@a:1,2@a:1"}, "two voters have the address a:1"),
        (COMBINED, {"controller_quorum_voters": "1@0.0.0.0:9093"}, "no address that the other nodes can reach"),
        (COMBINED, {"controller_quorum_voters": "1@..:9093"}, "'..' is no name of a host: what stands between"),
        (COMBINED, {"controller_quorum_voters": f"1@{'a' * 64}.b:9093"}, "must have 1 to 63 characters"),
        (COMBINED, {"listeners": f"PLAINTEXT://{'ä' * 63}:9092"}, "must have 1 to 63 characters"),
        (COMBINED, {"controller_quorum_voters": "1@a:99999"}, "a port from 0 to 65535"),
        (COMBINED, {"listeners": "PLAINTEXT:9092"}, "listeners: 'PLAINTEXT:9092' is not NAME://host:port"),
        (COMBINED, {"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9093"}, "the listener PLAINTEXT is there twice"),
        (COMBINED, {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9092"}, "both have port 9092; give each its own"),
        (COMBINED, {"listeners": "PLAINTEXT://::1:9092,CONTROLLER://:9093"}, r"write \[address\]:port"),
        (COMBINED, {"listeners": "INSIDE://:9092,CONTROLLER://:9093"}, "add INSIDE:PLAINTEXT to listener.security"),
        (SECURED, {"listener_security_protocol_map": "CLIENTS:SASL_SSL,CONTROLLER:PLAINTEXT"},
         "ssl.keystore.location is not set, and the"),
        (SECURED, {"sasl_enabled_mechanisms": None}, "sasl.enabled.mechanisms is not set, .* name some of PLAIN"),
        (SECURED, {"sasl_enabled_mechanisms": "GSSAPI"}, "'GSSAPI' is not supported; use some of PLAIN, SCRAM"),
        (SECURED, {"sasl_enabled_mechanisms": "PLAIN"}, "name.clients.plain.sasl.jaas.config is not set, and"),
        (SECURED, {"sasl_mechanism_inter_broker_protocol": None}, "protocol is not set, and brokers speak to each"),
        (SECURED, {"sasl_mechanism_inter_broker_protocol": "PLAIN"}, "is PLAIN, .* it offers SCRAM-SHA-256"),
        (SECURED, {SCRAM_JAAS: None}, "sasl.jaas.config has no username and password, and brokers speak"),
        (SECURED, {SCRAM_JAAS: "hidden secret"}, r"sasl.jaas.config=\(hidden\): it is no login module"),
        (TOKENS, {"listener.name.clients.oauthbearer.sasl.oauthbearer.token.endpoint.url": None},
         "through the listener CLIENTS by OAUTHBEARER; sasl.oauthbearer.token.endpoint.url is not set"),
        (TOKENS, {"listener.name.clients.oauthbearer.sasl.jaas.config": None},
         r"an endpoint, which asks who the client is: .* behind listener\.name\.clients\.oauthbearer\., too"),
        (TOKENS, {"listener.name.clients.oauthbearer.sasl.jaas.config": "a.ScramLoginModule required a=b;"},
         "sasl.jaas.config must name org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"),
        (TOKENS, {"listener.name.clients.oauthbearer.sasl.oauthbearer.token.endpoint.url": "https://a:b@c/"},
         "it must be like file:///PATH, https://HOST/PATH"),
        (TOKENS, {"sasl_login_read_timeout_ms": "0"}, "sasl.login.read.timeout.ms=0"),
        (SECURED, {"super_users": "User:admin"}, "super.users names who may do everything, and without authorizer"),
        (SECURED, {"super_users": "admin"}, "'admin' is no principal; write User:NAME"),
        (SECURED, {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer"}, "is not supported; use org"),
        (SECURED, {"inter_broker_listener_name": "CLIENTS", "security_inter_broker_protocol": "SASL_SSL"},
         "leave one of them out"),
        (SECURED, {"listener_security_protocol_map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_SSL"},
         "the controller listener cannot be SASL_SSL"),
        (COMBINED, {"security_inter_broker_protocol": "SSL"}, "'SSL' is not among the broker's listeners"),
        (COMBINED, {"ssl_enabled_protocols": "TLSv1.1"}, "use some of TLSv1.2, TLSv1.3"),
        (COMBINED, {"ssl_principal_mapping_rules": "RULE"}, "is neither DEFAULT nor RULE"),
        (COMBINED, {"listener_security_protocol_map": "PLAINTEXT=PLAINTEXT"}, "is not NAME:PROTOCOL"),
        (COMBINED, {"listener_security_protocol_map": "PLAINTEXT:PLAINTEXT"}, "add CONTROLLER:PLAINTEXT"),
        (CONTROLLER, {"listeners": "PLAINTEXT://:9093", "controller_listener_names": None},
         "must name exactly one of this controller's listeners"),
        (COMBINED, {"listeners": "CONTROLLER://:9093"}, "a broker needs a listener for clients"),
        (CONTROLLER, {"listeners": "CONTROLLER://:9093,PLAINTEXT://:9092"}, "PLAINTEXT is no controller listener"),
        (BROKER, {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}, "CONTROLLER is a controller listener"),
        (COMBINED, {"advertised_listeners": "PLAINTEXT://0.0.0.0:9092"}, "no client can reach 0.0.0.0; name"),
        (COMBINED, {"advertised_listeners": "SSL://h:9092"}, "SSL is not among the broker's listeners"),
        (COMBINED, {"inter_broker_listener_name": "INSIDE"}, "'INSIDE' is not among the broker's listeners"),
        (COMBINED, {"listeners": "SSL://:9092,CONTROLLER://:9093"}, "ssl.keystore.location is not set"),
        (COMBINED, {"ssl_client_auth": "requird"}, "'requird' is not supported; use none or requested or required"),
        (COMBINED, {"ssl_keystore_type": "JKS"}, "use PEM or PKCS12"),
        (COMBINED, {"broker_session_timeout_ms": "3000"}, "at least twice broker.heartbeat.interval.ms=2000"),
        (COMBINED, {"replica_lag_time_max_ms": "500"}, "must be below replica.lag.time.max.ms=500"),
        (COMBINED, {"replica_socket_timeout_ms": "500"}, "must be below replica.socket.timeout.ms=500"),
        (COMBINED, {"auto_create_topics_enable": "maybe"}, "auto.create.topics.enable=maybe"),
        (COMBINED, {"http_listener": "8080"}, "http.listener=8080: '8080' is not host:port"),
        (COMBINED, {"log_segment_bytes": "1"}, "log.segment.bytes"),
        (COMBINED, {"num_partitions": "0"}, "num.partitions=0: 0 is not between 1"),
        (COMBINED, {"log_dirs": " , "}, "no folder is named"),
        (COMBINED, {"log_dirs": "/a,/b,/a/"}, "/a/ is there twice"),
        (COMBINED, {"chaos_faults_file": "/f"}, "which it refuses without chaos.enable=true; take the line out"),
        (COMBINED, {"chaos_enable": "true"}, "chaos.faults.file does not say through which"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_a_sentence(
    base: dict[str, str], changes: dict[str, str | None], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        load(base, **changes)


def test_a_broken_file_names_the_line() -> None:
    with pytest.raises(ConfigError, match="line 1"):
        load_config("a=\\uXYZW")


def test_every_default_of_the_table_passes_its_own_check() -> None:
    for key in CONFIG_KEYS.values():
        if key.default is not None:
            key.parse(key.default)
        assert key.doc.endswith(".")


@pytest.mark.parametrize(
    "changes",
    [
        {"controller.listener.secret": "s"},
        {"listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT", "ssl.client.auth": "required",
         "ssl.keystore.location": "/k.pem"},
        {"controller.quorum.voters": "1@localhost:9093,2@127.0.0.2:9093,3@[::1]:9093"},
    ],
    ids=["secret", "certificates", "one host"],
)  # fmt: skip
def test_a_quorum_tells_strangers_from_its_nodes(changes: dict[str, str]) -> None:
    assert load({**BROKER, "controller.listener.secret": None, **changes}).node_id == 7


@pytest.mark.parametrize("client_auth", [None, "none"])
def test_a_quorum_open_to_everybody_is_refused(client_auth: str | None) -> None:
    open_to_all = {**BROKER, "ssl.client.auth": client_auth, "controller.listener.secret": None}
    with pytest.raises(ConfigError, match=r"controller\.listener\.secret is not set"):
        load(open_to_all)


def test_a_controller_listener_with_tls_needs_a_certificate() -> None:
    protocols = "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT"
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location is not set, and the controller listener"):
        load({**BROKER, "listener.security.protocol.map": protocols})
