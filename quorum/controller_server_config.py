"""The settings of a controller server; `kraft.node` builds them from server.properties."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from quorum.controller.decision import ControllerConfig
from quorum.raft.config import RaftConfig
from quorum.rpc.client import TlsSource


@dataclass(frozen=True)
class ControllerServerConfig:
    """`host` and `port` are where its controller listener binds."""

    raft: RaftConfig
    controller: ControllerConfig
    host: str
    port: int
    secret: bytes
    server_tls: ssl.SSLContext | None = None
    client_tls: TlsSource | None = None
    """For a controller listener that speaks TLS."""
