"""TLS from PEM files (KIP-651): for listeners of clients and of controllers, and for who connects there."""

from __future__ import annotations

import ssl

from kraft.config import ConfigError, ServerConfig


def server_context(config: ServerConfig) -> ssl.SSLContext:
    """The context of SSL listeners. Raises ConfigError if a file is missing or is no PEM."""
    context = _with_files(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), config)
    if config.get("ssl.client.auth") == "required":
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def follower_context(config: ServerConfig) -> ssl.SSLContext | None:
    """The context that followers connect to leaders with; None where the inter-broker listener is plain.

    Certificates are verified against `ssl.truststore.location` (else the host's authorities) and must
    name the host that the leader advertises. Raises ConfigError as `server_context` does.
    """
    name = config.inter_broker_listener_name
    if all(endpoint.protocol != "SSL" for endpoint in config.broker_listeners if endpoint.name == name):
        return None
    return _with_files(ssl.create_default_context(ssl.Purpose.SERVER_AUTH), config)


def controller_server_context(config: ServerConfig) -> ssl.SSLContext | None:
    """The context of the controller listener; None where it is plain. Raises as `server_context` does."""
    return server_context(config) if config.controller_protocol == "SSL" else None


def controller_client_context(config: ServerConfig) -> ssl.SSLContext | None:
    """The context that brokers and voters connect to controllers with; None where these are plain.

    Certificates are verified as those of leaders are, and ours is shown. Raises as `server_context` does.
    """
    if config.controller_protocol != "SSL":
        return None
    return _with_files(ssl.create_default_context(ssl.Purpose.SERVER_AUTH), config)


def _with_files(context: ssl.SSLContext, config: ServerConfig) -> ssl.SSLContext:
    keystore = config.get("ssl.keystore.location")
    if keystore is None:
        raise ConfigError("ssl.keystore.location is not set: an SSL listener needs a key and a certificate")
    try:
        context.load_cert_chain(keystore, password=config.get("ssl.key.password"))
        if (truststore := config.get("ssl.truststore.location")) is not None:
            context.load_verify_locations(truststore)
    except OSError as error:
        raise ConfigError(f"the TLS files cannot be used: {error.strerror or error}") from error
    return context
