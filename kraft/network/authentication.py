"""A connection to another broker says who this node is, or a command: SASL over `BrokerConnection` (KIP-43, KIP-152).

No other request may be under way or begin meanwhile. The error names the broker, the mechanism, and what the broker
says, unless that repeats the password.
"""

from __future__ import annotations

from typing import Any

from kraft.network.client import BrokerConnection, ConnectionLostError
from kraft.protocol.api import APIS
from kraft.security.exchange import SaslRefusal, sasl_exchange
from kraft.security.mechanisms import Credentials
from kraft.security.scram import SaslError


class AuthenticationFailedError(ConnectionLostError):
    """The broker does not believe this node, or the other way round; the connection is of no use."""


async def authenticate(
    connection: BrokerConnection, credentials: Credentials, nonce: str, *, timeout_s: float
) -> float | None:
    """Returns for how many seconds the broker grants the session; None: for ever. `timeout_s` is for each answer.

    Raises ConnectionLostError.
    """
    steps = sasl_exchange(credentials, nonce)
    answer: Any = None
    try:
        while True:
            request = steps.send(answer)
            answer = await connection.request(
                request, APIS[request.API_KEY].versions[-1], timeout_s=timeout_s
            )
    except StopIteration as end:
        lifetime_s: float | None = end.value
        return lifetime_s
    except SaslRefusal as refusal:
        said = "" if credentials.password in refusal.message else refusal.message
        reason = f"{refusal.code.name}: {said}"
        if refusal.mechanisms:
            reason = f"{refusal.code.name}; it offers {', '.join(refusal.mechanisms)}"
    except SaslError as error:
        reason = str(error)
    connection.close()
    raise AuthenticationFailedError(
        f"authentication by {credentials.mechanism} as {credentials.username} with {connection.name} failed: {reason}"
    )
