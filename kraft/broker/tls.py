"""TLS for client listeners, from PEM files (KIP-651): `ssl.keystore.location` and friends."""

from __future__ import annotations

import ssl

from kraft.config import ConfigError, ServerConfig


def server_context(config: ServerConfig) -> ssl.SSLContext:
    """The context of SSL listeners. Raises ConfigError if a file is missing or is no PEM."""
    keystore = config.get("ssl.keystore.location")
    if keystore is None:
        raise ConfigError("ssl.keystore.location is not set: an SSL listener needs a key and a certificate")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(keystore, password=config.get("ssl.key.password"))
        if (truststore := config.get("ssl.truststore.location")) is not None:
            context.load_verify_locations(truststore)
    except OSError as error:
        raise ConfigError(f"the TLS files cannot be used: {error.strerror or error}") from error
    if config.get("ssl.client.auth") == "required":
        context.verify_mode = ssl.CERT_REQUIRED
    return context
