"""Calls from the command line to the controllers themselves, signed with the quorum's secret.

A node's server.properties has the secret. If it sets none, the secret is the cluster's id, and a broker tells all that
is needed. A failure is a UserError that says what to do.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kraft.broker.tls import controller_client_context
from kraft.cli.shared.bootstrap import address_text, config_of_this_folder, parse_bootstrap
from kraft.config import ConfigError, ServerConfig
from kraft.runtime.disk import RealDisk
from kraft.storage import read_config
from kraft.user_error import EXIT_FAILED, EXIT_USAGE, UserError
from partitions.log.errors import DataDirectoryError
from partitions.log.node_logs.meta_properties import read_meta_properties
from quorum.errors import MalformedMessageError
from quorum.rpc import messages
from quorum.rpc.client import ControllerChannel, RpcClient, TlsSource
from quorum.rpc.envelope import RpcError, RpcUnavailable
from quorum.rpc.message_codec import decode_response, encode

CALL_TIMEOUT_S = 10.0
ATTEMPT_TIMEOUT_S = 3.0
NAME_A_CONFIG = (
    "name a node's server.properties with --config FILE (of a `kraft cluster`: .kraft/node-1/server.properties, or"
    " the same below its --dir)"
)

T = TypeVar("T")
Response = TypeVar("Response", bound=messages.ControllerResponse)


@dataclass(frozen=True)
class Controllers:
    """The voters' addresses by node id (or by number, for addresses without an id), and the secret."""

    voters: Mapping[int, str]
    secret: bytes
    cluster_id: str | None
    advice: str
    """What to do when the secret is refused."""
    listener_name: str = "CONTROLLER"
    tls: TlsSource | None = None


def controllers_of_config(path: Path, addresses: str | None = None) -> Controllers:
    """The controllers that a server.properties names, and more `addresses`, HOST:PORT[,…]."""
    config = read_config(path)
    directory = str(Path(config.metadata_log_dir).absolute())
    try:
        identity = read_meta_properties(RealDisk(), directory)
    except (DataDirectoryError, OSError):
        identity = None
    secret = config.get("controller.listener.secret") or (identity.cluster_id if identity else None)
    if secret is None:
        raise UserError(
            f"{path} sets no controller.listener.secret, so the secret is the cluster's id; but {directory}"
            " is not a formatted data directory of this host. Use the file of a node that runs here"
        )
    voters = dict(config.voters)
    if addresses is not None:
        # Numbers below 0 are nobody's id: an answer that names the leader's id finds it among the others.
        for number, (host, port) in enumerate(parse_bootstrap(addresses, "--bootstrap-controller"), 1):
            voters[-number] = address_text(host, port)
    return Controllers(
        voters,
        secret.encode(),
        identity.cluster_id if identity else None,
        f"check that {path} is of this cluster and has its controller.listener.secret",
        next(iter(config.get("controller.listener.names") or ()), Controllers.listener_name).upper(),
        _tls(path, config),
    )


def _tls(path: Path, config: ServerConfig) -> TlsSource | None:
    try:
        return controller_client_context(config)
    except ConfigError as error:
        raise UserError(f"{path}: {error}") from error


class ControllerCalls:
    """Typed calls to the active controller."""

    def __init__(self, controllers: Controllers, channel: ControllerChannel, unanswered: int) -> None:
        """`unanswered`: the exit code when no controller answers."""
        self._controllers = controllers
        self._channel = channel
        self._unanswered = unanswered

    async def call(self, request: messages.RpcRequest[Response]) -> Response:
        """One request object in, one response object out. Raises UserError."""
        method = request.RPC.method
        try:
            body = await self._channel.call(
                method, encode(request), timeout_s=CALL_TIMEOUT_S, attempt_timeout_s=ATTEMPT_TIMEOUT_S
            )
            return decode_response(request, body).response
        except RpcError as error:
            if error.code == "CLUSTER_AUTHORIZATION_FAILED":
                raise UserError(f"the controllers refused the secret; {self._controllers.advice}") from error
            if isinstance(error, RpcUnavailable):
                asked = ", ".join(sorted(self._controllers.voters.values()))
                raise UserError(f"{error.message}; asked were {asked}", self._unanswered) from error
            raise UserError(f"{method}: {error.message} ({error.code})") from error
        except MalformedMessageError as error:
            raise UserError(f"the controller's answer cannot be read: {error}") from error


def run_with_controllers(
    controllers: Controllers,
    work: Callable[[ControllerCalls], Awaitable[T]],
    *,
    unanswered: int = EXIT_FAILED,
) -> T:
    """Runs `work` with calls to the active controller. Raises UserError."""

    async def main() -> T:
        client = RpcClient(controllers.secret, tls=controllers.tls)
        try:
            channel = ControllerChannel(client, controllers.voters, random.Random())
            return await work(ControllerCalls(controllers, channel, unanswered))
        finally:
            await client.close()

    return asyncio.run(main())


def require_config(config: Path | None) -> Path:
    """The file that the secret is in: the one that was named, or of the cluster in `./.kraft`. Raises UserError, wrong
    usage."""
    config = config or config_of_this_folder()
    if config is None:
        raise UserError(
            "--bootstrap-controller needs --config FILE, the server.properties of a node: it has the quorum's"
            " secret",
            EXIT_USAGE,
        )
    return config
