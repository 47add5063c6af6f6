"""A node's configuration, from the text of its server.properties and, over it, environment variables.

Parsing is pure. An error is a ConfigError whose sentence names the key, the value and what to do; the reader of the
file puts its name in front. A key that nobody honours is no error, so that Kafka's own files load: `warnings` names it,
with the key that may have been meant. A key of older versions is one, and names its successor.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from kraft.config_environment import keys_from_environment
from kraft.config_keys import (
    CONFIG_KEYS,
    LISTENER_KEYS,
    RUN_TIME_KEYS,
    WITHOUT_EFFECT,
    ConfigKey,
    successor_of,
)
from kraft.listeners import (
    PROTOCOLS,
    Endpoint,
    advertised,
    check_ports,
    is_loopback,
    parse_listeners,
    parse_protocols,
    parse_voters,
    split_host_port,
)
from kraft.properties import PropertiesError, parse_properties
from kraft.security.mechanisms import OFFERED, PLAIN
from kraft.security.oauthbearer_client import OAUTHBEARER
from kraft.security.super_users import STANDARD_AUTHORIZER
from kraft.security.token_login import LOGIN_KEYS, LoginError, TokenLogin, parse_token_login
from partitions.log.config import LogConfig, server_log_config, server_log_config_keys
from partitions.log.errors import InvalidConfig

__all__ = [
    "BROKER_ROLE",
    "CONTROLLER_ROLE",
    "PROTOCOLS",
    "ConfigError",
    "Endpoint",
    "ServerConfig",
    "load_config",
    "split_host_port",
]

BROKER_ROLE = "broker"
CONTROLLER_ROLE = "controller"

T = TypeVar("T")

HTTP_LISTENER: Final = "HTTP"
"""The name under which the HTTP server's own TLS files may be given (listener.name.http.ssl.…)."""
_LISTENER_PREFIX: Final = "listener.name."
NO_VARIABLES: Final[Mapping[str, str]] = {}
_KNOWN_KEYS: Final = frozenset((*CONFIG_KEYS, *server_log_config_keys(), "log.dir"))


class ConfigError(ValueError):
    """A configuration that cannot work; the message is a sentence for the operator."""


@dataclass(frozen=True)
class ServerConfig:
    """The typed configuration of one node. `get` gives the value of any key of the table."""

    properties: Mapping[str, str] = field(repr=False)
    values: Mapping[str, Any] = field(repr=False)
    listener_values: Mapping[str, Any] = field(repr=False)
    """Those of keys that listener.name.… stands before, by the whole key in lower case. None of the three is shown by
    repr: secrets are among them."""
    node_id: int
    roles: tuple[str, ...]
    voters: Mapping[int, str]
    broker_listeners: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    """One for each broker listener; an empty host stands for the name of this host."""
    controller_listener: Endpoint | None
    controller_listener_name: str
    """The first name of controller.listener.names; empty if there is none."""
    controller_protocol: str
    """How the quorum's controller listeners are secured, as this node's file says it."""
    log_defaults: LogConfig
    unknown_keys: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    """Sentences about keys that are ignored or set twice, for the log."""
    from_environment: tuple[str, ...] = ()
    """The environment variables that set a key, in alphabetical order."""

    def get(self, key: str) -> Any:
        """The value of a key: what the file says, else the default."""
        return self.values[key]

    def of_listener(self, listener: str, key: str, mechanism: str | None = None) -> Any:
        """The value of a key for one listener, and one SASL mechanism of it: that of the most particular key."""
        prefix = f"{_LISTENER_PREFIX}{listener.lower()}."
        names = (
            [f"{prefix}{key}"]
            if mechanism is None
            else [f"{prefix}{mechanism.lower()}.{key}", f"{prefix}{key}"]
        )
        found = next((name for name in names if name in self.listener_values), None)
        return self.values[key] if found is None else self.listener_values[found]

    @property
    def is_broker(self) -> bool:
        return BROKER_ROLE in self.roles

    @property
    def is_controller(self) -> bool:
        return CONTROLLER_ROLE in self.roles

    @property
    def is_standalone(self) -> bool:
        """Whether its own controller is the whole quorum because nothing lists the voters."""
        return self.values["controller.quorum.voters"] is None

    @property
    def log_dirs(self) -> tuple[str, ...]:
        directories: tuple[str, ...] = self.values["log.dirs"]
        return directories

    @property
    def metadata_log_dir(self) -> str:
        directory: str | None = self.values["metadata.log.dir"]
        return directory or self.log_dirs[0]

    @property
    def inter_broker_listener_name(self) -> str:
        """The listener through which followers fetch; the first one unless the file names another."""
        name: str | None = self.values["inter.broker.listener.name"]
        return name or self.values["security.inter.broker.protocol"] or self.broker_listeners[0].name

    @property
    def open_listeners(self) -> tuple[Endpoint, ...]:
        """Those of clients that other hosts reach, and that neither encrypt nor ask who one is."""
        return tuple(
            one for one in self.broker_listeners if one.protocol == "PLAINTEXT" and not is_loopback(one.host)
        )

    @property
    def inter_broker_listener(self) -> Endpoint:
        """Its own end of that listener."""
        name = self.inter_broker_listener_name
        return next(endpoint for endpoint in self.broker_listeners if endpoint.name == name)


def load_config(text: str, environment: Mapping[str, str] = NO_VARIABLES) -> ServerConfig:
    """The configuration in the text of a server.properties, under that of the environment's variables (see
    `kraft.config_environment`). Raises ConfigError."""
    try:
        parsed = parse_properties(text)
    except PropertiesError as error:
        raise ConfigError(str(error)) from error
    taken = taken_from(environment)
    properties = {**parsed.values, **dict(taken.values())}
    _refuse_old_keys(properties, {key: variable for variable, (key, _) in taken.items()})
    values = {name: _value(name, properties) for name in CONFIG_KEYS}
    node_id: int = _required(values, "node.id", "every node needs an id")
    roles = _roles(values)
    controller_names = tuple(name.upper() for name in values["controller.listener.names"] or ())
    protocols = _protocols(values, properties, controller_names)
    endpoints = _parse("listeners", parse_listeners, values["listeners"], protocols)
    _parse("listeners", check_ports, endpoints)
    broker_listeners = tuple(e for e in endpoints if e.name not in controller_names)
    controller_listeners = tuple(e for e in endpoints if e.name in controller_names)
    named = _parse("advertised.listeners", parse_listeners, values["advertised.listeners"] or (), protocols)
    of_controllers = [e for e in (*controller_listeners, *named) if e.name in controller_names]
    voters = _voters(values, node_id, roles, {e.port for e in of_controllers})
    _check_roles(node_id, roles, voters, broker_listeners, controller_listeners)
    if BROKER_ROLE not in roles:
        broker_listeners = ()
    own_names = {e.name for e in controller_listeners}
    to_clients = tuple(e for e in named if e.name not in own_names)
    config = ServerConfig(
        properties=properties,
        values=values,
        listener_values=_listener_values(properties),
        node_id=node_id,
        roles=roles,
        voters=voters,
        broker_listeners=broker_listeners,
        advertised=_parse("advertised.listeners", advertised, to_clients, broker_listeners),
        controller_listener=controller_listeners[0] if controller_listeners else None,
        controller_listener_name=controller_names[0] if controller_names else "",
        controller_protocol=protocols.get(controller_names[0], "PLAINTEXT")
        if controller_names
        else "PLAINTEXT",
        log_defaults=_log_defaults(properties),
        unknown_keys=_unknown_keys(properties),
        warnings=_warnings(parsed.repeated, properties),
        from_environment=tuple(taken),
    )
    _check_together(config)
    return config


def _value(name: str, properties: Mapping[str, str]) -> Any:
    text = properties.get(name)
    if name == "log.dirs" and not text:
        text = properties.get("log.dir", text)
    return _parsed(name, CONFIG_KEYS[name], text)


def _listener_values(properties: Mapping[str, str]) -> dict[str, Any]:
    found = {}
    for name, text in properties.items():
        key = _listener_key(name)
        if key is not None:
            found[name.lower()] = _parsed(name, CONFIG_KEYS[key], text)
    return found


def is_sensitive(name: str) -> bool:
    """Whether a key's value is a secret; listener.name.… may stand before it."""
    key = CONFIG_KEYS.get(_listener_key(name) or name)
    return key is not None and key.sensitive


def _listener_key(name: str) -> str | None:
    """The key of listener.name.<listener>.<key> or listener.name.<listener>.<mechanism>.<key>; None if it is none."""
    if not name.lower().startswith(_LISTENER_PREFIX):
        return None
    _, _, key = name.removeprefix(_LISTENER_PREFIX).partition(".")
    if key in LISTENER_KEYS:
        return key
    mechanism, _, of_mechanism = key.partition(".")
    return of_mechanism if mechanism.upper() in OFFERED and of_mechanism in LISTENER_KEYS else None


def _parsed(name: str, key: ConfigKey, text: str | None) -> Any:
    text = key.default if text is None else text.strip()
    if not text and key.default is None:
        return None
    try:
        return key.parse(text or "")
    except ValueError as error:
        shown = "(hidden)" if key.sensitive else text
        raise ConfigError(f"{name}={shown}: {error}. {key.doc}") from error


def _parse(key: str, parse: Callable[..., T], *arguments: Any) -> T:
    """Runs a parser of listeners; its errors become sentences that begin with the key."""
    try:
        return parse(*arguments)
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from error


def _required(values: Mapping[str, Any], name: str, why: str) -> Any:
    if values[name] is None:
        raise ConfigError(f"{name} is not set: {why}. {CONFIG_KEYS[name].doc}")
    return values[name]


def _roles(values: Mapping[str, Any]) -> tuple[str, ...]:
    roles: tuple[str, ...] = _required(
        values, "process.roles", "there is no ZooKeeper here, a node needs a role"
    )
    for role in roles:
        if role not in (BROKER_ROLE, CONTROLLER_ROLE):
            raise ConfigError(
                f"process.roles: {role!r} is no role; use broker, controller or broker,controller"
            )
    if not roles or len(set(roles)) != len(roles):
        raise ConfigError(
            "process.roles names a role twice or none; use broker, controller or broker,controller"
        )
    return roles


def _refuse_old_keys(properties: Mapping[str, str], variables: Mapping[str, str]) -> None:
    """`variables`: of those keys that come from the environment."""
    for key in sorted(properties):
        successor = successor_of(key)
        if successor is not None:
            name = f"{variables[key]} ({key})" if key in variables else key
            raise ConfigError(f"{name} is a key of older versions of Kafka: {successor}")


def _voters(
    values: Mapping[str, Any], node_id: int, roles: tuple[str, ...], ports: Collection[int]
) -> dict[int, str]:
    """The quorum: as it is listed, or else the node's own controller alone, which has these ports."""
    servers: tuple[str, ...] | None = values["controller.quorum.bootstrap.servers"]
    if values["controller.quorum.voters"] is not None or not servers:
        texts = _required(values, "controller.quorum.voters", "a node has to know the controller quorum")
        return _parse("controller.quorum.voters", parse_voters, texts)
    key = "controller.quorum.bootstrap.servers"
    _, port = _parse(key, split_host_port, servers[0])
    why = ""
    if CONTROLLER_ROLE not in roles:
        why = "this node is no controller"
    elif len(servers) > 1:
        why = f"it names {len(servers)} controllers"
    elif port not in ports:
        why = f"{servers[0]} is not where this node's controller listens"
    if why:
        raise ConfigError(
            f"{key} alone is for a node whose controller is the whole quorum, and {why};"
            " list the controllers in controller.quorum.voters as id@host:port"
        )
    return _parse(key, parse_voters, (f"{node_id}@{servers[0]}",))


def _protocols(
    values: Mapping[str, Any], properties: Mapping[str, str], controller_names: tuple[str, ...]
) -> dict[str, str]:
    """The map as it is written; where the file has none, controller listeners are plain, as in Kafka."""
    protocols = _parse(
        "listener.security.protocol.map", parse_protocols, values["listener.security.protocol.map"]
    )
    if "listener.security.protocol.map" not in properties:
        protocols = {**dict.fromkeys(controller_names, "PLAINTEXT"), **protocols}
    return protocols


def _check_roles(
    node_id: int,
    roles: tuple[str, ...],
    voters: Mapping[int, str],
    broker_listeners: tuple[Endpoint, ...],
    controller_listeners: tuple[Endpoint, ...],
) -> None:
    if CONTROLLER_ROLE in roles:
        if node_id not in voters:
            raise ConfigError(
                f"node.id={node_id} has the controller role but is not among controller.quorum.voters"
                f" {sorted(voters)}; add it there, or take controller out of process.roles"
            )
        if len(controller_listeners) != 1:
            raise ConfigError(
                "controller.listener.names must name exactly one of this controller's listeners; it names "
                + (", ".join(endpoint.name for endpoint in controller_listeners) or "none of them")
            )
        if BROKER_ROLE not in roles and broker_listeners:
            raise ConfigError(
                f"listeners: {broker_listeners[0].name} is no controller listener, and this node is no broker;"
                " remove it, or add it to controller.listener.names"
            )
    else:
        if node_id in voters:
            raise ConfigError(
                f"node.id={node_id} is among controller.quorum.voters but lacks the role;"
                " add controller to process.roles, or choose another node.id"
            )
        if controller_listeners:
            raise ConfigError(
                f"listeners: {controller_listeners[0].name} is a controller listener, and this node is no"
                " controller; remove it from listeners"
            )
    if BROKER_ROLE in roles and not broker_listeners:
        raise ConfigError(
            "listeners: a broker needs a listener for clients that is not in controller.listener.names;"
            " add PLAINTEXT://:9092, say"
        )


def _check_together(config: ServerConfig) -> None:
    """Values that are right alone and wrong together."""
    heartbeat, session = config.get("broker.heartbeat.interval.ms"), config.get("broker.session.timeout.ms")
    if session < 2 * heartbeat:
        raise ConfigError(
            f"broker.session.timeout.ms={session} must be at least twice broker.heartbeat.interval.ms={heartbeat},"
            " or one late heartbeat fences the broker"
        )
    wait, lag = config.get("replica.fetch.wait.max.ms"), config.get("replica.lag.time.max.ms")
    if wait >= lag:
        raise ConfigError(
            f"replica.fetch.wait.max.ms={wait} must be below replica.lag.time.max.ms={lag},"
            " or idle followers leave the ISR"
        )
    timeout = config.get("replica.socket.timeout.ms")
    if wait >= timeout:
        raise ConfigError(
            f"replica.fetch.wait.max.ms={wait} must be below replica.socket.timeout.ms={timeout},"
            " or idle followers give up on their leader"
        )
    _check_inter_broker_listener(config)
    _check_authorizer(config)
    for endpoint in config.broker_listeners:
        _check_security(config, endpoint)
    if config.get("http.ssl.enable"):
        _check_key_store(config, HTTP_LISTENER, "http.ssl.enable is true")
    _check_http_authentication(config)
    _check_controller_security(config)
    _check_chaos(config)


def http_authentication(config: ServerConfig) -> tuple[str, ...]:
    """How those who ask for pages say who they are: basic, tls; empty: anybody may ask."""
    methods: tuple[str, ...] | None = config.get("http.authentication")
    if methods is None:
        host, _ = split_host_port(config.get("http.listener"))
        if is_loopback(host):
            return ()
        return ("basic", "tls") if _asks_http_certificates(config) else ("basic",)
    return () if methods == ("none",) else methods


def _asks_http_certificates(config: ServerConfig) -> bool:
    is_asked = config.of_listener(HTTP_LISTENER, "ssl.client.auth") != "none"
    return is_asked and bool(config.get("http.ssl.enable"))


def _check_http_authentication(config: ServerConfig) -> None:
    methods = config.get("http.authentication") or ()
    if "none" in methods and len(methods) > 1:
        raise ConfigError(
            f"http.authentication={','.join(methods)}: none stands alone; leave it out, or the others"
        )
    if "tls" in methods and not _asks_http_certificates(config):
        raise ConfigError(
            "http.authentication has tls, and the HTTP server asks for no certificates; set http.ssl.enable=true and"
            " listener.name.http.ssl.client.auth=required (or requested)"
        )


def _check_chaos(config: ServerConfig) -> None:
    """Nobody injects faults into a node by one forgotten line."""
    is_enabled, file = config.get("chaos.enable"), config.get("chaos.faults.file")
    if file is not None and not is_enabled:
        raise ConfigError(
            f"chaos.faults.file={file} has faults injected into this node, which it refuses without chaos.enable=true;"
            " take the line out, unless this is an experiment"
        )
    if is_enabled and file is None:
        raise ConfigError(
            "chaos.enable=true lets faults be injected into this node, and chaos.faults.file does not say through which"
            " file; take the line out, unless this is an experiment: `kraft chaos run` sets both"
        )


def _check_inter_broker_listener(config: ServerConfig) -> None:
    if not config.is_broker:
        return
    keys = ("inter.broker.listener.name", "security.inter.broker.protocol")
    named = [key for key in keys if config.get(key) is not None]
    if len(named) > 1:
        raise ConfigError(
            f"{' and '.join(named)} both say what brokers speak to each other; leave one of them out"
        )
    if named and config.get(named[0]) not in {e.name for e in config.broker_listeners}:
        raise ConfigError(f"{named[0]}: {config.get(named[0])!r} is not among the broker's listeners")


def _check_authorizer(config: ServerConfig) -> None:
    """Who believes that clients are judged is not left in that belief."""
    if config.get("authorizer.class.name"):
        return
    if config.get("super.users"):
        raise ConfigError(
            "super.users names who may do everything, and without authorizer.class.name everybody may;"
            f" set authorizer.class.name={STANDARD_AUTHORIZER}, or take super.users out"
        )


def _check_security(config: ServerConfig, endpoint: Endpoint) -> None:
    """Whether a listener has what its protocol needs."""
    if endpoint.is_encrypted:
        _check_key_store(config, endpoint.name, f"the listener {endpoint.name} is {endpoint.protocol}")
    if not endpoint.has_sasl:
        return
    mechanisms: tuple[str, ...] | None = config.of_listener(endpoint.name, "sasl.enabled.mechanisms")
    if mechanisms is None:
        raise ConfigError(
            f"sasl.enabled.mechanisms is not set, and the listener {endpoint.name} is {endpoint.protocol};"
            f" name some of {', '.join(OFFERED)}"
        )
    if PLAIN in mechanisms and config.of_listener(endpoint.name, "sasl.jaas.config", PLAIN) is None:
        raise ConfigError(
            f"{jaas_key(endpoint.name, PLAIN)} is not set, and the listener {endpoint.name} offers PLAIN;"
            " write the login module with its users:"
            ' org.apache.kafka.common.security.plain.PlainLoginModule required user_NAME="PASSWORD";'
        )
    jwks = "sasl.oauthbearer.jwks.endpoint.url"
    if OAUTHBEARER in mechanisms and config.of_listener(endpoint.name, jwks, OAUTHBEARER) is None:
        raise ConfigError(
            f"{jwks} is not set, and the listener {endpoint.name} offers OAUTHBEARER; tell where the keys are that"
            " tokens are signed with: file:///…, https://… or http://…"
        )
    if endpoint.name == config.inter_broker_listener_name:
        _check_own_credentials(config, endpoint, mechanisms)


def _check_own_credentials(config: ServerConfig, endpoint: Endpoint, mechanisms: tuple[str, ...]) -> None:
    mechanism: str | None = config.get("sasl.mechanism.inter.broker.protocol")
    if mechanism not in mechanisms:
        raise ConfigError(
            f"sasl.mechanism.inter.broker.protocol is {mechanism or 'not set'}, and brokers speak to each other through"
            f" the listener {endpoint.name}, which has SASL; it offers {', '.join(mechanisms)}"
        )
    if mechanism == OAUTHBEARER:
        inter_broker_token_login(config)
        return
    module = config.of_listener(endpoint.name, "sasl.jaas.config", mechanism)
    if module is None or not (module.options.get("username") and module.options.get("password")):
        raise ConfigError(
            f"{jaas_key(endpoint.name, mechanism)} has no username and password, and brokers speak to each other"
            f" through the listener {endpoint.name}, which has SASL; say there who this broker is"
        )


def inter_broker_token_login(config: ServerConfig) -> TokenLogin | None:
    """How this broker gets tokens that it shows to others; None if it shows none. Raises ConfigError."""
    endpoint = config.inter_broker_listener
    if config.get("sasl.mechanism.inter.broker.protocol") != OAUTHBEARER or not endpoint.has_sasl:
        return None

    def of_listener(key: str) -> Any:
        return config.of_listener(endpoint.name, key, OAUTHBEARER)

    values = {key: of_listener(key) for key in LOGIN_KEYS}
    try:
        return parse_token_login(
            {key: str(value) for key, value in values.items() if value is not None},
            of_listener("sasl.jaas.config"),
        )
    except LoginError as error:
        raise ConfigError(
            f"brokers speak to each other through the listener {endpoint.name} by {OAUTHBEARER}; {error} It can stand"
            f" behind {_LISTENER_PREFIX}{endpoint.name.lower()}.{OAUTHBEARER.lower()}., too"
        ) from None


def jaas_key(listener: str, mechanism: str) -> str:
    """The key of a listener's login module."""
    return f"{_LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"


def _check_key_store(config: ServerConfig, listener: str, why: str) -> None:
    texts = [
        config.of_listener(listener, key) for key in ("ssl.keystore.key", "ssl.keystore.certificate.chain")
    ]
    has_file = config.of_listener(listener, "ssl.keystore.location") is not None
    if any(texts) and (has_file or not all(texts)):
        raise ConfigError(
            "ssl.keystore.key and ssl.keystore.certificate.chain belong together, and take the place of"
            " ssl.keystore.location"
        )
    if not has_file and not any(texts):
        raise ConfigError(
            f"ssl.keystore.location is not set, and {why}: " + CONFIG_KEYS["ssl.keystore.location"].doc
        )


def is_unauthenticated(config: ServerConfig) -> bool:
    """Whether nothing tells the cluster's nodes from strangers on the controller listener."""
    client_auth = config.of_listener(config.controller_listener_name, "ssl.client.auth")
    has_certificates = config.controller_protocol == "SSL" and client_auth == "required"
    return config.get("controller.listener.secret") is None and not has_certificates


def is_quorum_on_this_host(config: ServerConfig) -> bool:
    """Whether all voters are reached over loopback, so that nothing else has to be able to."""
    return all(is_loopback(address.rpartition(":")[0]) for address in config.voters.values())


def _check_controller_security(config: ServerConfig) -> None:
    if config.controller_protocol == "SSL":
        _check_key_store(config, config.controller_listener_name, "the controller listener is SSL")
    elif config.controller_protocol != "PLAINTEXT":
        raise ConfigError(
            f"listener.security.protocol.map: the controller listener cannot be {config.controller_protocol};"
            " make it SSL or PLAINTEXT: nodes know each other there by controller.listener.secret or by certificates"
        )
    stands_alone = config.is_broker and tuple(config.voters) == (config.node_id,)
    if is_unauthenticated(config) and not is_quorum_on_this_host(config) and not stands_alone:
        raise ConfigError(
            "controller.listener.secret is not set, and controller.quorum.voters can be reached from other hosts,"
            " where everybody could change this cluster. Set the same secret on every node, or make the"
            " controller listener SSL with ssl.client.auth=required"
        )


def _log_defaults(properties: Mapping[str, str]) -> LogConfig:
    try:
        return server_log_config(properties)
    except InvalidConfig as error:
        raise ConfigError(str(error)) from error


def taken_from(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The variables that set a key: variable → (key, value)."""
    return keys_from_environment(environment, _is_known)


def _is_known(key: str) -> bool:
    """Whether a variable may stand for it: a key of Kafka that this version knows, if only to say something of it."""
    return (
        _listener_key(key) is not None
        or key in _KNOWN_KEYS
        or key in RUN_TIME_KEYS
        or key in WITHOUT_EFFECT
        or successor_of(key) is not None
    )


def _unknown_keys(properties: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(sorted(key for key in properties.keys() - _KNOWN_KEYS if _listener_key(key) is None))


def _warnings(repeated: Sequence[str], properties: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each key that is not known, and for each that the file sets twice; one for all that are known and
    have no effect."""
    without_effect = []
    known = sorted(_KNOWN_KEYS)
    sentences = [f"{key} is set more than once; the last line counts" for key in repeated]
    if {"controller.quorum.voters", "controller.quorum.bootstrap.servers"} <= properties.keys():
        sentences.append("controller.quorum.bootstrap.servers has no effect beside controller.quorum.voters")
    for key in _unknown_keys(properties):
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.8)
        if key in RUN_TIME_KEYS:
            sentences.append(f"{key} can only be set while the broker runs (kraft configs alter)")
        elif key in WITHOUT_EFFECT:
            without_effect.append(key)
        elif near:
            sentences.append(f"{key} is not known and has no effect; did you mean {near[0]}?")
        else:
            sentences.append(f"{key} is not known and has no effect")
    if without_effect:  # one line: Kafka's stock file has ten of them
        *first, last = without_effect
        names = f"{', '.join(first)} and {last} are" if first else f"{last} is"
        sentences.append(f"{names} Kafka's, and {'have' if first else 'has'} no effect here")
    return tuple(sentences)
