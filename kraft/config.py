"""A node's configuration, from the text of its server.properties.

Parsing is pure; every error is a ConfigError whose sentence names the key and what to do. Keys that
nobody honours are not errors, so that Kafka's own files load; `unknown_keys` lists them for a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kraft.config_keys import CONFIG_KEYS
from partitions.log.config import LogConfig, server_log_config, server_log_config_keys
from partitions.log.errors import InvalidConfig

BROKER_ROLE = "broker"
CONTROLLER_ROLE = "controller"
PROTOCOLS = ("PLAINTEXT", "SSL")


class ConfigError(ValueError):
    """A configuration that cannot work; the message is a sentence for the operator."""


class Endpoint(NamedTuple):
    """A listener: its name, where it binds or is reached, and how it is secured."""

    name: str
    host: str
    port: int
    protocol: str


@dataclass(frozen=True)
class ServerConfig:
    """The typed configuration of one node. `get` gives the value of any key of the table."""

    properties: Mapping[str, str]
    values: Mapping[str, Any]
    node_id: int
    roles: tuple[str, ...]
    voters: Mapping[int, str]
    broker_listeners: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    controller_listener: Endpoint | None
    log_defaults: LogConfig
    unknown_keys: tuple[str, ...]

    def get(self, key: str) -> Any:
        """The value of a key: what the file says, else the default."""
        return self.values[key]

    @property
    def is_broker(self) -> bool:
        return BROKER_ROLE in self.roles

    @property
    def is_controller(self) -> bool:
        return CONTROLLER_ROLE in self.roles

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
        return name or self.broker_listeners[0].name


def parse_properties(text: str) -> dict[str, str]:
    """Key → value of a Java properties file: comments (#, !), `=` or `:`, continued lines."""
    properties: dict[str, str] = {}
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.strip() if pending else raw.strip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if line.endswith("\\") and not line.endswith("\\\\"):
            pending = line[:-1]
            continue
        position = min((line.find(mark) for mark in "=:" if mark in line), default=len(line))
        properties[line[:position].strip()] = line[position + 1 :].strip()
    return properties


def load_config(text: str) -> ServerConfig:
    """The configuration in the text of a server.properties. Raises ConfigError."""
    properties = parse_properties(text)
    values = {name: _value(name, properties) for name in CONFIG_KEYS}
    roles = _roles(values)
    node_id = _required(values, "node.id", "every node needs an id")
    voters = _voters(values)
    protocols = _protocols(values)
    endpoints = _endpoints("listeners", values["listeners"], protocols)
    controller_names = values["controller.listener.names"] or ()
    broker_listeners = tuple(e for e in endpoints if e.name not in controller_names)
    controller_listeners = [e for e in endpoints if e.name in controller_names]
    _check_roles(node_id, roles, voters, broker_listeners, controller_listeners)
    try:
        log_defaults = server_log_config(properties)
    except InvalidConfig as error:
        raise ConfigError(f"{error}") from error
    known = {*CONFIG_KEYS, *server_log_config_keys()}
    config = ServerConfig(
        properties=properties,
        values=values,
        node_id=node_id,
        roles=roles,
        voters=voters,
        broker_listeners=broker_listeners if BROKER_ROLE in roles else (),
        advertised=_advertised(values, broker_listeners, protocols) if BROKER_ROLE in roles else (),
        controller_listener=controller_listeners[0] if CONTROLLER_ROLE in roles else None,
        log_defaults=log_defaults,
        unknown_keys=tuple(sorted(properties.keys() - known)),
    )
    _check_timers(config)
    return config


def _value(name: str, properties: Mapping[str, str]) -> Any:
    key = CONFIG_KEYS[name]
    text = properties.get(name)
    if name == "log.dirs" and text is None:
        text = properties.get("log.dir")
    if text is None or (not text and key.default is None):
        text = key.default
    if text is None:
        return None
    try:
        return key.parse(text)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}; {key.doc}") from error


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


def _voters(values: Mapping[str, Any]) -> dict[int, str]:
    voters: dict[int, str] = {}
    for text in _required(values, "controller.quorum.voters", "a node has to know the controller quorum"):
        id_text, separator, address = text.partition("@")
        host, colon, port = address.rpartition(":")
        if not separator or not id_text.isdigit() or not colon or not host or not port.isdigit():
            raise ConfigError(f"controller.quorum.voters: {text!r} is not id@host:port")
        if int(id_text) in voters:
            raise ConfigError(f"controller.quorum.voters names node {id_text} twice")
        voters[int(id_text)] = address
    if not voters:
        raise ConfigError("controller.quorum.voters names no voter")
    return voters


def _protocols(values: Mapping[str, Any]) -> dict[str, str]:
    protocols = {}
    for text in values["listener.security.protocol.map"]:
        name, separator, protocol = text.partition(":")
        if not separator or protocol not in PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {text!r} is not NAME:PROTOCOL with one of {', '.join(PROTOCOLS)}"
            )
        protocols[name] = protocol
    return protocols


def _endpoints(key: str, texts: tuple[str, ...], protocols: Mapping[str, str]) -> tuple[Endpoint, ...]:
    endpoints: list[Endpoint] = []
    for text in texts:
        name, separator, address = text.partition("://")
        host, colon, port = address.rpartition(":")
        if not separator or not colon or not port.isdigit() or int(port) > 65535:
            raise ConfigError(f"{key}: {text!r} is not NAME://host:port")
        if any(name == other.name for other in endpoints):
            raise ConfigError(f"{key} names the listener {name} twice; give each its own name")
        if int(port) and any(int(port) == other.port and key == "listeners" for other in endpoints):
            raise ConfigError(f"{key}: port {port} is used twice; give each listener its own port")
        protocol = protocols.get(name)
        if protocol is None:
            raise ConfigError(
                f"{key}: the listener {name} has no protocol; add {name}:PLAINTEXT to listener.security.protocol.map"
            )
        endpoints.append(Endpoint(name, host.strip("[]"), int(port), protocol))
    return tuple(endpoints)


def _advertised(
    values: Mapping[str, Any], listeners: tuple[Endpoint, ...], protocols: Mapping[str, str]
) -> tuple[Endpoint, ...]:
    """What clients are told. A listener on every interface advertises its host's name (empty here)."""
    named = _endpoints("advertised.listeners", values["advertised.listeners"] or (), protocols)
    for endpoint in named:
        if endpoint.host in ("", "0.0.0.0", "::"):
            raise ConfigError(
                f"advertised.listeners: no client can reach {endpoint.host or 'an empty host'}; name this host's address"
            )
        if endpoint.name not in {listener.name for listener in listeners}:
            raise ConfigError(f"advertised.listeners names {endpoint.name}, which is not among the listeners")
    by_name = {endpoint.name: endpoint for endpoint in named}
    return tuple(
        by_name.get(listener.name)
        or listener._replace(host="" if listener.host in ("0.0.0.0", "::") else listener.host)
        for listener in listeners
    )


def _check_roles(
    node_id: int,
    roles: tuple[str, ...],
    voters: Mapping[int, str],
    broker_listeners: tuple[Endpoint, ...],
    controller_listeners: list[Endpoint],
) -> None:
    if CONTROLLER_ROLE in roles:
        if node_id not in voters:
            raise ConfigError(
                f"node {node_id} has the controller role but is not among controller.quorum.voters {sorted(voters)}"
            )
        if len(controller_listeners) != 1:
            raise ConfigError(
                "a controller needs exactly one of its listeners named in controller.listener.names"
            )
    elif node_id in voters:
        raise ConfigError(
            f"node {node_id} is among controller.quorum.voters but lacks the role; add controller to process.roles"
        )
    if BROKER_ROLE in roles and not broker_listeners:
        raise ConfigError("a broker needs a listener that is not in controller.listener.names")


def _check_timers(config: ServerConfig) -> None:
    heartbeat, session = config.get("broker.heartbeat.interval.ms"), config.get("broker.session.timeout.ms")
    if session < 2 * heartbeat:
        raise ConfigError(
            f"broker.session.timeout.ms={session} must be at least twice broker.heartbeat.interval.ms={heartbeat}"
        )
    name = config.get("inter.broker.listener.name")
    if config.is_broker and name is not None and name not in {e.name for e in config.broker_listeners}:
        raise ConfigError(f"inter.broker.listener.name: {name!r} is not among the broker's listeners")
