"""One blocking connection to one broker: a request, its answer.

An answer belongs to its request (correlation id) and is bounded in size. Both sides agree on the version: the first
exchange is ApiVersions, and `call` uses the highest version that both know. With credentials the connection then says
who it is (`authentication.py`), and again before the session that the broker grants is over (KIP-368). After any
OSError, ProtocolError or AuthenticationError the connection is of no use any more; its owner, `client.py`, closes it.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, TypeVar

from kraft.protocol import (
    FRAME_LENGTH_BYTES,
    ApiKey,
    ErrorCode,
    Message,
    ProtocolError,
    api_name,
    decode_response,
    decode_response_header,
    encode_request_frame,
)
from kraft.protocol.api import APIS
from kraft.protocol.schemas.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraft.security.mechanisms import Credentials
from kraft.security.token_login import TokenLogin
from kraft.spark.authentication import authenticate
from kraft.spark.errors import UnsupportedBrokerError

MAX_RESPONSE_BYTES = 512 << 20
"""Above every answer we ask for; a longer one is not from a broker."""

_API_VERSIONS_VERSION = 0
"""The version that every broker can read and answer."""
_FIRST_USABLE_VERSION = {
    ApiKey.METADATA: 12,  # topic ids (KIP-516)
    ApiKey.LIST_OFFSETS: 4,  # current leader epoch (KIP-320)
    ApiKey.FETCH: 13,  # topics by id (KIP-516)
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 3,  # asked by consumers (KIP-320)
    ApiKey.FIND_COORDINATOR: 4,  # a list of keys (KIP-699)
}
_RENEWED_AFTER = 0.9
"""Of a session's time; Kafka's clients take 0.85 to 0.95."""

R = TypeVar("R", bound=Message)


class BrokerAddress(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class BlockingConnection:
    """Opens on construction; raises OSError, ProtocolError, UnsupportedBrokerError, or AuthenticationError.

    `clock` tells seconds; by it the session of `credentials` runs out.
    """

    def __init__(
        self,
        address: BrokerAddress,
        *,
        client_id: str,
        connect_timeout_s: float,
        request_timeout_s: float,
        tls: ssl.SSLContext | None = None,
        credentials: Credentials | TokenLogin | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self._credentials = credentials
        self._clock = clock
        self._authenticate_at: float | None = None
        """When, by the clock, the session is renewed; None: never."""
        self._client_id = client_id
        self._correlation_id = 0
        self._sent: tuple[Message, int]
        self._versions: dict[int, tuple[int, int]] = {}
        self._socket = socket.create_connection((address.host, address.port), timeout=connect_timeout_s)
        try:
            self._socket.settimeout(request_timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=address.host)
            self._learn_versions()
            self._authenticate()
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> BlockingConnection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent."""
        self._socket.close()

    def set_timeout(self, request_timeout_s: float) -> None:
        """For all waits from now on."""
        self._socket.settimeout(request_timeout_s)

    def call(self, request: Message, answer: type[R]) -> R:
        """Sends `request` and waits for its answer, of the class `answer`.

        The request timeout bounds every wait for bytes, not the whole answer. Raises OSError,
        ProtocolError, UnsupportedBrokerError if no version is common, or AuthenticationError.
        """
        self._renew_session()
        return self._call_at_once(request, answer)

    def fileno(self) -> int:
        """For waiting, with others, until `receive` has something to read."""
        return self._socket.fileno()

    def send(self, request: Message) -> None:
        """The first half of `call`; `receive` is the second. One request at a time."""
        self._renew_session()
        self._send(request, self._version_of(request.API_KEY))

    def receive(self, answer: type[R]) -> R:
        """The answer to what was sent last."""
        request, version = self._sent
        frame = self._receive_frame()
        correlation_id, position = decode_response_header(request.API_KEY, version, frame)
        if correlation_id != self._correlation_id:
            raise ProtocolError(
                f"{self.address} answered request {correlation_id} instead of {self._correlation_id}"
            )
        response = decode_response(request.API_KEY, version, frame, position)
        if not isinstance(response, answer):
            raise ProtocolError(f"the answer decoded to {type(response).__name__}, not {answer.__name__}")
        return response

    def _exchange(self, request: Message, version: int, answer: type[R]) -> R:
        self._send(request, version)
        return self.receive(answer)

    def _send(self, request: Message, version: int) -> None:
        self._correlation_id += 1
        self._sent = request, version
        self._socket.sendall(
            encode_request_frame(
                request, version, correlation_id=self._correlation_id, client_id=self._client_id
            )
        )

    def _receive_frame(self) -> bytearray:
        head = self._receive(FRAME_LENGTH_BYTES)
        length = int.from_bytes(head, "big", signed=True)
        if not 0 <= length <= MAX_RESPONSE_BYTES:
            raise ProtocolError(f"{self.address} sent a frame of {length} bytes: is it a Kafka broker?")
        return self._receive(length)

    def _receive(self, length: int) -> bytearray:
        data = bytearray(length)
        with memoryview(data) as view:
            received = 0
            while received < length:
                count = self._socket.recv_into(view[received:])
                if not count:
                    raise ConnectionResetError(f"{self.address} closed the connection before it answered")
                received += count
        return data

    def _learn_versions(self) -> None:
        response = self._exchange(ApiVersionsRequest(), _API_VERSIONS_VERSION, ApiVersionsResponse)
        if response.error_code:
            raise ProtocolError(
                f"{self.address} refused to name its versions: {ErrorCode.of(response.error_code).name}"
            )
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _renew_session(self) -> None:
        if self._authenticate_at is not None and self._clock() >= self._authenticate_at:
            self._authenticate()

    def _authenticate(self) -> None:
        if self._credentials is None:
            return
        lifetime_s = authenticate(self._call_at_once, self.address, self._credentials)
        self._authenticate_at = None if lifetime_s is None else self._clock() + lifetime_s * _RENEWED_AFTER

    def _call_at_once(self, request: Message, answer: type[R]) -> R:
        return self._exchange(request, self._version_of(request.API_KEY), answer)

    def _version_of(self, api_key: ApiKey) -> int:
        ours = APIS[api_key].versions
        first = max(ours[0], _FIRST_USABLE_VERSION.get(api_key, 0))
        theirs = self._versions.get(api_key)
        if theirs is None or theirs[1] < first or theirs[0] > ours[-1]:
            offer = "does not offer it" if theirs is None else f"offers {theirs[0]} to {theirs[1]}"
            advice = "Use a broker of Kafka 3.1 or later."
            if api_key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
                advice = "Where brokers have no SASL, kafka.security.protocol is PLAINTEXT or SSL."
            raise UnsupportedBrokerError(
                f"The connector needs {api_name(api_key)} in a version from {first} to {ours[-1]},"
                f" and the broker {self.address} {offer}. {advice}"
            )
        return min(ours[-1], theirs[1])
