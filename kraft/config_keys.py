"""The table of server.properties: every key that a node honours, its type, default, check and text.

One entry a key; `kraft.config` parses files with it, DescribeConfigs lists it. Names, units and defaults are Kafka's,
except for the few keys of our own, which say so. Defaults for topics (`log.segment.bytes`, …) are in
`partitions.log.config` and not repeated here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

from kraft.listeners import PROTOCOLS, split_host_port
from kraft.security import token_login
from kraft.security.jaas import JaasError, LoginModule, parse_jaas
from kraft.security.mechanisms import OFFERED
from kraft.security.principal_mapping import PrincipalMapping, parse_principal_mapping
from kraft.security.quotas.connection_quotas import canonical_ip
from kraft.security.super_users import STANDARD_AUTHORIZER, parse_super_users
from partitions.log.config_values import number, whole_number
from partitions.replica_selector import LEADER_SELECTOR, SELECTORS

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
MAX_DOUBLE: Final = 1.7976931348623157e308
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
STORE_TYPES: Final = ("PEM", "PKCS12")


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key. `parse` turns text into the value or raises ValueError with the end of a sentence.

    `default` is text, as it would stand in the file; None means that there is none.
    """

    name: str
    type: str
    default: str | None
    parse: Callable[[str], Any]
    doc: str
    sensitive: bool = False


def _integer(minimum: int, maximum: int = INT_MAX) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = whole_number(text)
        if not minimum <= value <= maximum:
            raise ValueError(f"{value} is not between {minimum} and {maximum}")
        return value

    return parse


def _number(above: float, maximum: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = number(text)
        if not above < value <= maximum:
            raise ValueError(f"{text} is not above {above:g} and at most {maximum:g}")
        return value

    return parse


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _string(text: str) -> str:
    return text


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"{text!r} is not supported; use {' or '.join(choices)}")
        return text

    return parse


def _upper(text: str) -> str:
    return text.upper()


def _address(text: str) -> str:
    split_host_port(text)
    return text


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _subset_of(*choices: str) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        chosen = _list(text.lower())
        unknown = [name for name in chosen if name not in choices]
        if unknown or not chosen or len(set(chosen)) != len(chosen):
            raise ValueError(f"{text!r} is not supported; use {' and '.join(choices)}, each at most once")
        return chosen

    return parse


def _connections_by_ip(text: str) -> Mapping[str, int]:
    """ADDRESS:COUNT pairs; an IPv6 address may have brackets."""
    counts = {}
    for pair in _list(text):
        address, _, count = pair.rpartition(":")
        try:
            counts[canonical_ip(str(ip_address(address.strip("[]"))))] = _integer(0)(count)
        except ValueError as error:
            raise ValueError(f"{pair!r} is not ADDRESS:COUNT, such as 10.0.0.1:100") from error
    return counts


def _mechanisms(text: str) -> tuple[str, ...]:
    chosen = _list(text.upper())
    unknown = [name for name in chosen if name not in OFFERED]
    if unknown or not chosen or len(set(chosen)) != len(chosen):
        raise ValueError(f"{text!r} is not supported; use some of {', '.join(OFFERED)}, each at most once")
    return chosen


def _mechanism(text: str) -> str:
    if text.upper() not in OFFERED:
        raise ValueError(f"{text!r} is not supported; use one of {', '.join(OFFERED)}")
    return text.upper()


def _jaas(text: str) -> LoginModule:
    try:
        return parse_jaas(text)
    except JaasError as error:
        raise ValueError(f"it is no login module ({error})") from None


def _tls_versions(text: str) -> tuple[str, ...]:
    chosen = _list(text)
    if not chosen or any(version not in TLS_VERSIONS for version in chosen):
        raise ValueError(f"{text!r} is not supported; use some of {', '.join(TLS_VERSIONS)}")
    return chosen


def _store_type(text: str) -> str:
    if text.upper() not in STORE_TYPES:
        raise ValueError(
            f"{text!r} is not supported; use {' or '.join(STORE_TYPES)}"
            " (keytool -importkeystore -deststoretype PKCS12 converts a JKS store)"
        )
    return text.upper()


def _principal_mapping(text: str) -> PrincipalMapping:
    return parse_principal_mapping(text)


def _host_check(text: str) -> str:
    if text.lower() not in ("https", ""):
        raise ValueError(f"{text!r} is neither https nor empty")
    return text.lower()


_protocols = _subset_of("classic", "consumer")
_assignors = _subset_of("uniform", "range")


_AUTHORIZERS = ("", STANDARD_AUTHORIZER)


def _authorizer(text: str) -> str:
    if text not in _AUTHORIZERS:
        raise ValueError(
            f"{text!r} is not supported; use {STANDARD_AUTHORIZER}, or nothing for no authorizer"
        )
    return text


def _folders(text: str) -> tuple[str, ...]:
    folders = _list(text)
    if not folders:
        raise ValueError("no folder is named")
    for position, folder in enumerate(folders):
        if folder.rstrip("/") in (other.rstrip("/") for other in folders[:position]):
            raise ValueError(f"{folder} is there twice")
    return folders


_KEYS: Final = (
    ConfigKey("process.roles", "list", None, _list, "broker, controller, or both, comma-separated."),
    ConfigKey("node.id", "int", None, _integer(0), "The node's id, unique in the cluster."),
    ConfigKey(
        "controller.quorum.voters", "list", None, _list, "The controller quorum: id@host:port, comma-separated."
    ),
    ConfigKey(
        "controller.quorum.bootstrap.servers", "list", None, _list,
        "The controller's host:port. Without controller.quorum.voters the node's own controller is the whole quorum"
        " (kraft storage format --standalone).",
    ),
    ConfigKey("controller.listener.names", "list", None, _list, "Names of the controller's listeners."),
    ConfigKey(
        "controller.listener.secret", "password", None, _string,
        "Shared secret that the cluster's nodes authenticate each other with (a key of kraft's own). Needed unless all"
        " are on one host, or the controller listener is SSL with ssl.client.auth=required.", True,
    ),
    ConfigKey(
        "listeners", "list", "PLAINTEXT://:9092", _list,
        "Where the node listens: NAME://host:port; an empty host is every interface.",
    ),
    ConfigKey("advertised.listeners", "list", None, _list, "What clients are told, if not the same as listeners."),
    ConfigKey(
        "listener.security.protocol.map", "list", ",".join(f"{name}:{name}" for name in PROTOCOLS), _list,
        "NAME:PROTOCOL; protocols are PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL.",
    ),
    ConfigKey("inter.broker.listener.name", "string", None, _upper, "The listener that followers fetch through."),
    ConfigKey(
        "security.inter.broker.protocol", "string", None, _choice(*PROTOCOLS),
        "Instead of inter.broker.listener.name: the listener that has this protocol's name.",
    ),
    ConfigKey(
        "ssl.keystore.location", "string", None, _string,
        "A file of the private key and its certificates: PEM, or PKCS12 as ssl.keystore.type says.",
    ),
    ConfigKey("ssl.keystore.password", "password", None, _string, "The password of a PKCS12 key store.", True),
    ConfigKey("ssl.key.password", "password", None, _string, "The password of the private key.", True),
    ConfigKey("ssl.keystore.type", "string", "PEM", _store_type, "The format of ssl.keystore.location."),
    ConfigKey(
        "ssl.keystore.key", "password", None, _string, "Instead of a file: the private key as PEM text.", True,
    ),
    ConfigKey(
        "ssl.keystore.certificate.chain", "password", None, _string, "Beside it: its certificates as PEM text.", True,
    ),
    ConfigKey(
        "ssl.truststore.location", "string", None, _string,
        "A file of the authorities that are trusted in clients and other brokers; the host's if there is none.",
    ),
    ConfigKey("ssl.truststore.password", "password", None, _string, "The password of a PKCS12 trust store.", True),
    ConfigKey("ssl.truststore.type", "string", "PEM", _store_type, "The format of ssl.truststore.location."),
    ConfigKey(
        "ssl.truststore.certificates", "password", None, _string,
        "Instead of a file: the authorities as PEM text.", True,
    ),
    ConfigKey(
        "ssl.client.auth", "string", "none", _choice("none", "requested", "required"),
        "Whether clients need a certificate. For a SASL_SSL listener only listener.name.<name>.ssl.client.auth counts.",
    ),
    ConfigKey("ssl.enabled.protocols", "list", ",".join(TLS_VERSIONS), _tls_versions, "The versions of TLS."),
    ConfigKey(
        "ssl.cipher.suites", "list", None, _list,
        "Cipher suites of TLS 1.2 by OpenSSL's names; those that it prefers if none is named.",
    ),
    ConfigKey(
        "ssl.endpoint.identification.algorithm", "string", "https", _host_check,
        "https: other brokers' certificates must name the host that they are reached by; empty: they need not.",
    ),
    ConfigKey(
        "ssl.principal.mapping.rules", "list", "DEFAULT", _principal_mapping,
        "What principal a client's certificate stands for: RULE:pattern/replacement/[LU], …, or DEFAULT (KIP-371).",
    ),
    ConfigKey(
        "sasl.enabled.mechanisms", "list", None, _mechanisms, f"What SASL listeners offer: {', '.join(OFFERED)}."
    ),
    ConfigKey(
        "sasl.mechanism.inter.broker.protocol", "string", None, _mechanism,
        "The mechanism by which brokers authenticate with each other, where their listener has SASL.",
    ),
    ConfigKey(
        "sasl.jaas.config", "password", None, _jaas,
        "A login module and its options, as listener.name.<listener>.<mechanism>.sasl.jaas.config: username and"
        " password are this broker's towards others, user_NAME=\"PASSWORD\" are users of PLAIN; clientId, clientSecret"
        " and scope are this broker's towards the issuer of its tokens.", True,
    ),
    ConfigKey(
        token_login.URL, "string", None, token_login.issuer_url,
        "Where this broker's tokens come from, if brokers authenticate with each other by OAUTHBEARER: file:///…, which"
        " is read at each authentication, or https://… or http://…, which is asked with the client credentials grant.",
    ),
    ConfigKey(
        token_login.CLIENT_ID, "string", None, _string,
        "Who this broker is to the issuer of its tokens, instead of clientId in sasl.jaas.config (KIP-1139).",
    ),
    ConfigKey(token_login.CLIENT_SECRET, "password", None, _string, "And its secret.", True),
    ConfigKey(token_login.SCOPE, "string", None, _string, "And the scope that it asks for, if any."),
    ConfigKey(
        token_login.URL_ENCODES, "boolean", "false", _boolean,
        "Whether id and secret are URL-encoded in the header of the request for a token.",
    ),
    ConfigKey(
        token_login.CONNECT_TIMEOUT, "int", "10000", _integer(1, token_login.MILLISECONDS_MAX),
        "How long connecting to the issuer of this broker's tokens may take.",
    ),
    ConfigKey(
        token_login.READ_TIMEOUT, "int", "10000", _integer(1, token_login.MILLISECONDS_MAX),
        "How long the issuer may say nothing.",
    ),
    ConfigKey(
        token_login.BACKOFF, "long", "100", _integer(1, token_login.MILLISECONDS_MAX),
        "How long after a request for a token that failed the next one comes; it doubles each time.",
    ),
    ConfigKey(
        token_login.BACKOFF_MAX, "long", "10000", _integer(1, token_login.MILLISECONDS_MAX),
        "And how long all these pauses are together at most.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.url", "string", None, token_login.issuer_url,
        "Where the keys (JWKS) are that tokens of OAUTHBEARER are signed with: file:///…, https://… or http://…"
        " (KIP-768).",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", "long", "3600000", _integer(1000, LONG_MAX),
        "How often they are fetched again.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "long", "100", _integer(1, LONG_MAX),
        "How long after a fetch that failed the next one comes; it doubles each time.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "long", "10000", _integer(1, LONG_MAX),
        "And how long at most.",
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.audience", "list", None, _list,
        "One of these has to be among a token's audiences (aud); not set: any token of the issuer's keys counts.",
    ),
    ConfigKey("sasl.oauthbearer.expected.issuer", "string", None, _string, "What a token's iss has to be."),
    ConfigKey("sasl.oauthbearer.scope.claim.name", "string", "scope", _string, "The claim of a token's scopes."),
    ConfigKey(
        "sasl.oauthbearer.sub.claim.name", "string", "sub", _string, "The claim that is the name of the principal."
    ),
    ConfigKey(
        "sasl.oauthbearer.clock.skew.seconds", "int", "30", _integer(0),
        "How far the issuer's clock may be from the broker's.",
    ),
    ConfigKey(
        "sasl.server.max.receive.size", "int", "524288", _integer(1024),
        "What a connection may send, in sum, before it is authenticated.",
    ),
    ConfigKey(
        "connection.failed.authentication.delay.ms", "int", "100", _integer(0, 60_000),
        "How long the answer to a failed authentication is held back.",
    ),
    ConfigKey(
        "connection.authentication.timeout.ms", "int", "30000", _integer(100),
        "How long a connection may take to authenticate (a key of kraft's own).",
    ),
    ConfigKey(
        "connections.max.reauth.ms", "long", "0", _integer(0, LONG_MAX),
        "After so long a client has to authenticate again, or loses its connection (KIP-368); 0: never.",
    ),
    ConfigKey(
        "authorizer.class.name", "string", "", _authorizer,
        "The authorizer that judges clients by ACLs: org.apache.kafka.metadata.authorizer.StandardAuthorizer; empty:"
        " there is none, and everybody may do everything.",
    ),
    ConfigKey(
        "super.users", "list", "", parse_super_users,
        "Principals that may do everything, parted by semicolons, as in User:admin;User:CN=broker. Brokers that connect"
        " to each other without authentication are User:ANONYMOUS.",
    ),
    ConfigKey(
        "allow.everyone.if.no.acl.found", "boolean", "false", _boolean,
        "Whether everybody may do everything with a resource that no ACL is about.",
    ),
    ConfigKey(
        "http.listener", "string", "127.0.0.1:0", _address,
        "host:port of the node's HTTP server; port 0 chooses a free one (a key of kraft's own).",
    ),
    ConfigKey(
        "http.allowed.hosts", "list", "", _list,
        "Names by which the HTTP server may be asked for, beside those of the listeners (a key of kraft's own).",
    ),
    ConfigKey(
        "http.authentication", "list", None, _subset_of("none", "basic", "tls"),
        "How the HTTP server knows who asks: basic, by name and password of a SCRAM user; tls, by a client certificate;"
        " or both. none: anybody may ask, which is the default where http.listener is loopback. Elsewhere it is basic,"
        " and tls where certificates are asked for (a key of kraft's own).",
    ),
    ConfigKey(
        "http.ssl.enable", "boolean", "false", _boolean,
        "Whether the HTTP server speaks https alone, with ssl.… or listener.name.http.ssl.… (a key of kraft's own).",
    ),
    ConfigKey("log.dirs", "list", "/tmp/kraft-logs", _folders, "Folders of the partitions' logs."),
    ConfigKey("metadata.log.dir", "string", None, _string, "Folder of the metadata log, if not the first of log.dirs."),
    ConfigKey(
        "metadata.log.max.record.bytes.between.snapshots", "long", "20971520", _integer(1, LONG_MAX),
        "Bytes of metadata records after which the quorum's voters write a snapshot.",
    ),
    ConfigKey(
        "metadata.log.max.snapshot.interval.ms", "long", "3600000", _integer(0, LONG_MAX),
        "The longest time between two snapshots while metadata changes; 0: never by time.",
    ),
    ConfigKey(
        "metadata.log.segment.bytes", "int", "33554432", _integer(8 * 1024 * 1024),
        "Size of a segment of the metadata log; whole segments behind the newest snapshot are deleted.",
    ),
    ConfigKey(
        "metadata.log.segment.ms", "long", "604800000", _integer(1, LONG_MAX),
        "Age at which the metadata log begins a new segment, though the last one is not full.",
    ),
    ConfigKey(
        "broker.rack", "string", None, _string,
        "The broker's rack; replicas are spread over racks, and consumers may read from the nearest.",
    ),
    ConfigKey("num.partitions", "int", "1", _integer(1), "Partitions of a topic created without a number."),
    ConfigKey("default.replication.factor", "int", "1", _integer(1, 2**15 - 1), "Replicas of such a topic."),
    ConfigKey("auto.create.topics.enable", "boolean", "true", _boolean, "Whether asking for a topic may create it."),
    ConfigKey("delete.topic.enable", "boolean", "true", _boolean, "Whether topics can be deleted."),
    ConfigKey(
        "auto.leader.rebalance.enable", "boolean", "true", _boolean,
        "Whether the controller gives leaderships back to preferred leaders from time to time.",
    ),
    ConfigKey(
        "leader.imbalance.check.interval.seconds", "long", "300", _integer(1, LONG_MAX // 1000),
        "How often it looks for brokers that lead too little of what they should.",
    ),
    ConfigKey(
        "leader.imbalance.per.broker.percentage", "int", "10", _integer(0),
        "How much of a broker's preferred leaderships, in percent, may be elsewhere before they are given back.",
    ),
    ConfigKey(
        "replica.lag.time.max.ms", "long", "30000", _integer(1, LONG_MAX),
        "How long a follower may not be caught up before it leaves the ISR.",
    ),
    ConfigKey("replica.fetch.wait.max.ms", "int", "500", _integer(0), "How long a leader holds a follower's fetch."),
    ConfigKey("replica.fetch.min.bytes", "int", "1", _integer(0), "What a follower's fetch waits for."),
    ConfigKey("replica.fetch.max.bytes", "int", "1048576", _integer(0), "Records of one partition in one fetch."),
    ConfigKey("replica.fetch.response.max.bytes", "int", "10485760", _integer(0), "Records in one fetch."),
    ConfigKey("replica.fetch.backoff.ms", "int", "1000", _integer(0), "The longest pause after failed fetches."),
    ConfigKey(
        "num.replica.fetchers", "int", "1", _integer(1, 64),
        "Fetchers, with a connection each, that share what is copied from one leader.",
    ),
    ConfigKey(
        "max.incremental.fetch.session.cache.slots", "int", "1000", _integer(0),
        "Fetch sessions that are kept; readers beyond them name all their partitions in every fetch.",
    ),
    ConfigKey("replica.socket.timeout.ms", "int", "30000", _integer(1), "When a silent leader counts as unreachable."),
    ConfigKey(
        "replica.selector.class", "string", LEADER_SELECTOR, _choice(*SELECTORS),
        "Where consumers that name their rack are sent to read: to the leader, or to a replica of that rack (KIP-392).",
    ),
    ConfigKey(
        "replication.quota.window.num", "int", "11", _integer(1),
        "Over how many windows a throttled replication is measured.",
    ),
    ConfigKey("replication.quota.window.size.seconds", "int", "1", _integer(1), "How long each of them is."),
    ConfigKey("quota.window.num", "int", "11", _integer(1), "Over how many windows clients' quotas are measured."),
    ConfigKey("quota.window.size.seconds", "int", "1", _integer(1), "How long each of them is."),
    ConfigKey(
        "controller.quota.window.num", "int", "11", _integer(1),
        "For how many windows' worth of partitions a client may create and delete at once.",
    ),
    ConfigKey("controller.quota.window.size.seconds", "int", "1", _integer(1), "How long each of them is."),
    ConfigKey("broker.heartbeat.interval.ms", "int", "2000", _integer(1), "How often a broker tells that it lives."),
    ConfigKey(
        "broker.session.timeout.ms", "int", "9000", _integer(1), "Silence after which the controller fences a broker."
    ),
    ConfigKey(
        "controller.quorum.election.timeout.ms", "int", "1000", _integer(100),
        "Silence of the quorum's leader after which a voter stands for election; drawn anew up to its double.",
    ),
    ConfigKey(
        "controller.quorum.fetch.timeout.ms", "int", "2000", _integer(100),
        "How long the quorum's leader goes on without hearing from a majority.",
    ),
    ConfigKey(
        "controlled.shutdown.timeout.ms", "long", "30000", _integer(0, LONG_MAX),
        "How long a stopping broker waits for its leaderships to move (a key of kraft's own).",
    ),
    ConfigKey("socket.request.max.bytes", "int", "104857600", _integer(1), "The largest request."),
    ConfigKey(
        "max.connections", "int", str(INT_MAX), _integer(0),
        "Connections of one listener. By default as many as leave the descriptors that the disk needs.",
    ),
    ConfigKey(
        "max.connections.per.ip", "int", str(INT_MAX), _integer(0), "Connections of one listener from one address."
    ),
    ConfigKey(
        "max.connections.per.ip.overrides", "list", "", _connections_by_ip,
        "The same for addresses that differ: ADDRESS:COUNT, comma-separated.",
    ),
    ConfigKey(
        "max.connection.creation.rate", "int", str(INT_MAX), _integer(1),
        "New connections a second, of all listeners together; those beyond it are read a little later.",
    ),
    ConfigKey("connections.max.idle.ms", "long", "600000", _integer(-1, LONG_MAX), "When a silent one is closed."),
    ConfigKey(
        "replica.high.watermark.checkpoint.interval.ms", "long", "5000", _integer(1, LONG_MAX),
        "How often high watermarks are written down.",
    ),
    ConfigKey(
        "log.flush.offset.checkpoint.interval.ms", "int", "60000", _integer(1), "How often recovery points are written."
    ),
    ConfigKey(
        "log.flush.scheduler.interval.ms", "long", str(LONG_MAX), _integer(1, LONG_MAX),
        "How often logs are flushed whose flush.ms has run out; if it is not set, each when its time has come.",
    ),
    ConfigKey("log.cleaner.enable", "boolean", "true", _boolean, "Whether compacted topics are compacted at all."),
    ConfigKey("log.cleaner.threads", "int", "1", _integer(1, 64), "How many logs are compacted at a time."),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size", "long", "134217728", _integer(1024 * 1024, LONG_MAX),
        "Memory for the keys of the logs being compacted, of all threads together: 24 bytes a key.",
    ),
    ConfigKey(
        "log.cleaner.io.buffer.load.factor", "double", "0.9", _number(0.0, 1.0),
        "How full that memory may get; the fuller, the more keys at a time and the slower each.",
    ),
    ConfigKey(
        "log.cleaner.io.buffer.size", "int", "65536", _integer(1024),
        "What a compaction reads at a time, unless a batch is larger; more is faster and holds up requests longer.",
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second", "double", "1.7976931348623157E308", _number(0.0, MAX_DOUBLE),
        "How much compactions read and write at most, all threads together.",
    ),
    ConfigKey(
        "log.cleaner.backoff.ms", "long", "15000", _integer(1, LONG_MAX), "How often to look for logs to compact."
    ),
    ConfigKey("log.retention.check.interval.ms", "long", "300000", _integer(1, LONG_MAX), "How often old segments go."),
    ConfigKey("offsets.topic.num.partitions", "int", "50", _integer(1), "Partitions of __consumer_offsets."),
    ConfigKey(
        "offsets.topic.replication.factor", "short", "3", _integer(1, 2**15 - 1),
        "Replicas of __consumer_offsets; groups have no coordinator before so many brokers are there.",
    ),
    ConfigKey("offsets.topic.segment.bytes", "int", "104857600", _integer(1), "Size of a segment of it."),
    ConfigKey(
        "offsets.commit.timeout.ms", "int", "5000", _integer(1),
        "How long a coordinator waits for the replicas before it answers that it could not.",
    ),
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.ms", "int", "20", _integer(1),
        "How often a broker asks a transaction coordinator again that is busy with the transaction before.",
    ),
    ConfigKey(
        "add.partitions.to.txn.retry.backoff.max.ms", "int", "100", _integer(0),
        "For how long it does so before the client has to send again.",
    ),
    ConfigKey(
        "transaction.partition.verification.enable", "boolean", "true", _boolean,
        "Whether a partition's leader asks the coordinator of a transaction before the transaction begins there.",
    ),
    ConfigKey("transaction.state.log.num.partitions", "int", "50", _integer(1), "Partitions of __transaction_state."),
    ConfigKey(
        "transaction.state.log.replication.factor", "short", "3", _integer(1, 2**15 - 1),
        "Replicas of __transaction_state; transactions have no coordinator before so many brokers are there.",
    ),
    ConfigKey(
        "transaction.state.log.min.isr", "int", "2", _integer(1),
        "Its min.insync.replicas when it is made: so many replicas have what a coordinator says.",
    ),
    ConfigKey("transaction.state.log.segment.bytes", "int", "104857600", _integer(1), "Size of a segment of it."),
    ConfigKey(
        "transaction.max.timeout.ms", "int", "900000", _integer(1),
        "The longest that a producer may have its transactions stay open.",
    ),
    ConfigKey(
        "transactional.id.expiration.ms", "int", "604800000", _integer(1),
        "How long a transactional id is remembered that no transaction uses.",
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms", "int", "3600000", _integer(1),
        "How often to look for transactional ids that have expired.",
    ),
    ConfigKey(
        "transaction.coordinator.ids.max", "int", "100000", _integer(1),
        "Transactional ids of one partition of __transaction_state; more are refused (a key of kraft's own).",
    ),
    ConfigKey("offset.metadata.max.bytes", "int", "4096", _integer(0), "The longest text that a commit may carry."),
    ConfigKey(
        "offsets.retention.minutes", "int", "10080", _integer(1),
        "How long offsets are kept of a group without members, of a simple consumer, of a topic not subscribed to.",
    ),
    ConfigKey("offsets.retention.check.interval.ms", "long", "600000", _integer(1, LONG_MAX), "How often to look."),
    ConfigKey(
        "group.coordinator.rebalance.protocols", "list", "classic,consumer", _protocols,
        "The group protocols that clients may use: classic, consumer (KIP-848).",
    ),
    ConfigKey(
        "group.min.session.timeout.ms", "int", "6000", _integer(0),
        "The shortest session of a classic member.",
    ),
    ConfigKey(
        "group.max.session.timeout.ms", "int", "1800000", _integer(0),
        "The longest session of a classic member.",
    ),
    ConfigKey(
        "group.initial.rebalance.delay.ms", "int", "3000", _integer(0),
        "How long the first rebalance of an empty classic group waits for more members.",
    ),
    ConfigKey(
        "group.coordinator.groups.max", "int", "10000", _integer(1),
        "Groups of one partition of __consumer_offsets; more are refused (a key of kraft's own).",
    ),
    ConfigKey("group.max.size", "int", str(INT_MAX), _integer(1), "Members of a classic group."),
    ConfigKey("group.consumer.max.size", "int", str(INT_MAX), _integer(1), "Members of a consumer group."),
    ConfigKey(
        "group.consumer.session.timeout.ms", "int", "45000", _integer(1),
        "The session of a consumer group's member.",
    ),
    ConfigKey(
        "group.consumer.min.session.timeout.ms", "int", "45000", _integer(1),
        "The shortest that a group may set.",
    ),
    ConfigKey(
        "group.consumer.max.session.timeout.ms", "int", "60000", _integer(1),
        "The longest that a group may set.",
    ),
    ConfigKey(
        "group.consumer.heartbeat.interval.ms", "int", "5000", _integer(1),
        "How often its members send heartbeats.",
    ),
    ConfigKey(
        "group.consumer.min.heartbeat.interval.ms", "int", "5000", _integer(1),
        "The shortest that a group may set.",
    ),
    ConfigKey(
        "group.consumer.max.heartbeat.interval.ms", "int", "15000", _integer(1),
        "The longest that a group may set.",
    ),
    ConfigKey(
        "group.consumer.assignors", "list", "uniform,range", _assignors,
        "The assignors of consumer groups, the default first: uniform, range.",
    ),
    ConfigKey(
        "group.consumer.migration.policy", "string", "disabled", _choice("disabled"),
        "Only an empty group changes between the classic and the consumer protocol.",
    ),
    ConfigKey(
        "metrics.groups.max", "int", "1000", _integer(0),
        "Partitions whose lag /metrics tells one by one, of all groups that a broker coordinates; the others are summed"
        " (a key of kraft's own).",
    ),
    ConfigKey(
        "metrics.topics.max", "int", "1000", _integer(0),
        "Topics that /metrics tells of one by one; the others are summed (a key of kraft's own).",
    ),
    ConfigKey(
        "metrics.groups.interval.ms", "int", "30000", _integer(1),
        "How often a broker finds out how far its groups are behind (a key of kraft's own).",
    ),
    ConfigKey(
        "chaos.enable", "boolean", "false", _boolean,
        "Whether faults of disk and clock can be injected into this node, for experiments (a key of kraft's own).",
    ),
    ConfigKey(
        "chaos.faults.file", "string", None, _string,
        "The file through which they are, which `kraft chaos run` makes; needs chaos.enable (a key of kraft's own).",
    ),
)  # fmt: skip

CONFIG_KEYS: Final[Mapping[str, ConfigKey]] = {
    key.name: key for key in sorted(_KEYS, key=lambda key: key.name)
}
"""The keys by name, in alphabetical order."""

LISTENER_KEYS: Final = frozenset(
    name for name in CONFIG_KEYS if name.startswith("ssl.") or name.startswith("sasl.")
) | {"connections.max.reauth.ms", "max.connection.creation.rate", "max.connections"}
"""Keys that listener.name.<listener>. may stand before, and the mechanism too where it is SASL's: that counts for this
listener alone, and before the one without it (KIP-103)."""

RUN_TIME_KEYS: Final[Mapping[str, ConfigKey]] = {
    key.name: key
    for key in (
        ConfigKey(
            "follower.replication.throttled.rate", "long", str(LONG_MAX), _integer(0, LONG_MAX),
            "Bytes a second that this broker copies of replicas in follower.replication.throttled.replicas of a topic.",
        ),
        ConfigKey(
            "leader.replication.throttled.rate", "long", str(LONG_MAX), _integer(0, LONG_MAX),
            "Bytes a second that this broker sends of leaders in leader.replication.throttled.replicas of a topic.",
        ),
    )
}  # fmt: skip
"""Keys of brokers that can only be set while they run, as in Kafka, by name."""

WITHOUT_EFFECT: Final = frozenset(
    (
        "background.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",  # each is aborted when its time is over
    )
)
"""Keys that stand in Kafka's own sample files and that this version does not honour."""

_QUORUM_INSTEAD: Final = "there is no ZooKeeper here; use process.roles and controller.quorum.voters"

OLD_KEYS: Final[Mapping[str, str]] = {
    "advertised.host.name": "use advertised.listeners",
    "advertised.port": "use advertised.listeners",
    "broker.id": "use node.id",
    "broker.id.generation.enable": "there are no generated ids; use node.id",
    "control.plane.listener.name": "use controller.listener.names",
    "host.name": "use listeners",
    "inter.broker.protocol.version": "the cluster's metadata.version is a feature, and is set while it runs",
    "log.cleanup.interval.mins": "use log.retention.check.interval.ms",
    "log.message.format.version": "all records are of the newest format; leave it out",
    "log.message.timestamp.difference.max.ms": (
        "use log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms"
    ),
    "port": "use listeners",
    "replica.lag.max.messages": "a follower is out of sync by time alone; use replica.lag.time.max.ms",
    "reserved.broker.max.id": "ids are given by node.id alone; leave it out",
}
"""Keys of older versions of Kafka that would be misunderstood if they were ignored, and what to do instead."""

_OLD_PREFIX: Final = "zookeeper."


def successor_of(key: str) -> str | None:
    """What to do instead of setting this key of older versions; None if it is none."""
    return _QUORUM_INSTEAD if key.startswith(_OLD_PREFIX) else OLD_KEYS.get(key)
