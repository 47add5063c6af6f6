"""Where an experiment's clients dial, and how they speak there: one value for librdkafka, raw sockets, and programs."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from kraft.spark.security import Security


@dataclass(frozen=True)
class Brokers:
    """Those of one cluster."""

    servers: str
    """HOST:PORT[,…], through the relays."""
    security: Security = field(default_factory=Security)
    config: Path | None = None
    """A file that says the same with librdkafka's keys; None where brokers are spoken to in plain text."""

    @property
    def settings(self) -> dict[str, Any]:
        """librdkafka's."""
        security = {} if self.config is None else self.security.producer_properties()
        return {"bootstrap.servers": self.servers, **security}

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each."""
        parts = [address.rpartition(":") for address in self.servers.split(",")]
        return [(host, int(port)) for host, _, port in parts]

    @cached_property
    def tls(self) -> ssl.SSLContext | None:
        """What a raw connection is wrapped with; None: nothing."""
        return self.security.context()
