"""`--command-config FILE`: how a command's connections are secured, in librdkafka's or in Java's names of keys.

Every command that has --bootstrap-server has this option too, and gets both as one value: `Servers`, a text that also
knows how its brokers are spoken to. `bootstrap.servers` of the file counts where --bootstrap-server is not given. Keys
that are not of security are left alone, as Kafka's own tools do; an unknown key of security is refused. No error shows
a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kraft.properties import PropertiesError, parse_properties
from kraft.spark.errors import OptionError
from kraft.spark.security import Security, parse_security
from kraft.user_error import EXIT_USAGE, UserError

OPTION: Final = "--command-config"
_SERVERS: Final = "bootstrap.servers"
_SECURITY: Final = ("security.", "sasl.", "ssl.", "https.ca.")
_MODULES: Final = "org.apache.kafka.common.security"
_RENAMED: Final = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
}
"""librdkafka's names, where another one says the same for Java."""


@dataclass(frozen=True)
class CommandConfig:
    """A file's content. `options` are those of the connector: kafka.… by Java's names."""

    servers: str | None = None
    security: Security = field(default_factory=Security)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


PLAIN: Final = CommandConfig()


class Servers(str):
    """HOST:PORT[,…], and how these brokers are spoken to."""

    config: CommandConfig = PLAIN

    @classmethod
    def of(cls, text: str, config: CommandConfig) -> Servers:
        servers = cls(text)
        servers.config = config
        return servers


def config_of(servers: str) -> CommandConfig:
    """How the brokers are spoken to; in plain text where nothing says otherwise."""
    return servers.config if isinstance(servers, Servers) else PLAIN


def read_command_config(path: Path) -> CommandConfig:
    """Raises UserError."""
    return _read(path)[0]


def security_values(path: Path) -> dict[str, str]:
    """What such a file says of brokers and security, in its own names; files that it names are named from the root.
    Raises UserError."""
    return {
        key: str(Path(value).absolute()) if key.endswith(".location") and value else value
        for key, value in _read(path)[1].items()
        if key.startswith(_SECURITY) or key == _SERVERS
    }


def _read(path: Path) -> tuple[CommandConfig, Mapping[str, str]]:
    try:
        values = parse_properties(path.read_text(encoding="utf-8")).values
        return _parsed(values, _read_text), values
    except OSError as error:
        raise UserError(f"{OPTION}: cannot read {error.filename or path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise UserError(f"{OPTION}: {path} is not UTF-8", EXIT_USAGE) from None
    except (PropertiesError, OptionError) as error:
        raise UserError(f"{OPTION} {path}: {error}", EXIT_USAGE) from None


def _read_text(path: str) -> str:
    return Path(path).read_text(encoding="ascii", errors="replace")


def _parsed(values: Mapping[str, str], read_text: Callable[[str], str]) -> CommandConfig:
    given = {
        _RENAMED.get(key, key): value for key, value in values.items() if key.startswith(_SECURITY) and value
    }
    name, password = given.pop("sasl.username", None), given.pop("sasl.password", None)
    if name is not None or password is not None:
        given["sasl.jaas.config"] = _module(given.get("sasl.mechanism", ""), name or "", password or "")
    certificate, key = given.pop("ssl.certificate.location", None), given.pop("ssl.key.location", None)
    if certificate is not None or key is not None:
        given["ssl.keystore.certificate.chain"] = read_text(certificate or "")
        given["ssl.keystore.key"] = read_text(key or "")
    if (
        given.get("ssl.endpoint.identification.algorithm") == "none"
    ):  # librdkafka's word for Java's empty text
        given["ssl.endpoint.identification.algorithm"] = ""
    options = {f"kafka.{key}": value for key, value in given.items()}
    return CommandConfig(values.get(_SERVERS), parse_security(options), options)


def _module(mechanism: str, name: str, password: str) -> str:
    """The login module that says what sasl.username and sasl.password say."""
    module = "plain.PlainLoginModule" if mechanism.upper() == "PLAIN" else "scram.ScramLoginModule"
    texts = (text.replace("\\", "\\\\").replace('"', '\\"') for text in (name, password))
    return '{}.{} required username="{}" password="{}";'.format(_MODULES, module, *texts)
