"""The judge of sessions, told what a connection says and what a broker makes of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kraft.chaos import security
from kraft.chaos.oracles.secured.sessions import (
    ENDED,
    REFUSED,
    REMOVED,
    RENEWED,
    Known,
    Sessions,
    claimed,
)
from kraft.network.connection import CloseConnectionError
from kraft.network.session import Session
from kraft.protocol.api import ApiKey
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.metadata import MetadataResponse
from kraft.protocol.schemas.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.unit.chaos.oracles.test_permissions import Said

SESSION_S = 5.0


class Broker:
    """A dispatcher that answers as it is told, before the judge."""

    def __init__(self):
        self.said = Said()
        self.users = {"alice", "bob"}
        self.now_s = 0.0
        self.session = Session(security.CLIENTS)
        whose = SimpleNamespace(node=lambda: 1)
        self.judge = Sessions(self.said, whose, session_max_s=SESSION_S)
        image = SimpleNamespace(scram_credentials={})
        self.services = SimpleNamespace(
            loop=SimpleNamespace(time=lambda: self.now_s), metadata=SimpleNamespace(image=image)
        )

    def handle(self, key, body, answer, principal=None):
        self.services.metadata.image.scram_credentials = {(name, 1): None for name in self.users}

        def original(dispatcher, key, request):
            if principal is not None:
                self.session.principal = f"User:{principal}"
            return answer

        dispatcher = SimpleNamespace(_services=self.services)
        request = SimpleNamespace(session=self.session, body=body)
        assert self.judge._handled(original, dispatcher, key, request) is answer

    def say(self, name, becomes=None, code=ErrorCode.NONE):
        """A client proves that it is `name`; the broker takes it for `becomes`."""
        handshake = SaslHandshakeRequest(security.MECHANISM)
        self.handle(ApiKey.SASL_HANDSHAKE, handshake, SaslHandshakeResponse(0, []))
        first = SaslAuthenticateRequest(f"n,,n={name},r=nonce".encode())
        self.handle(ApiKey.SASL_AUTHENTICATE, first, SaslAuthenticateResponse())
        last = SaslAuthenticateRequest(b"c=biws,r=nonce,p=proof")
        answer = SaslAuthenticateResponse(code)
        self.handle(ApiKey.SASL_AUTHENTICATE, last, answer, None if code else becomes or name)

    def ask(self):
        """It asks for Metadata, and is answered."""
        self.handle(ApiKey.METADATA, None, MetadataResponse())

    def close_at(self, now_s):
        """The broker closes the connection for what it is asked."""
        self.now_s = now_s

        def original(dispatcher, context):
            raise CloseConnectionError("closed")

        dispatcher = SimpleNamespace(_services=self.services)
        with pytest.raises(CloseConnectionError):
            self.judge._asked(original, dispatcher, SimpleNamespace(session=self.session))


@pytest.fixture
def broker():
    return Broker()


def test_who_said_who_he_is_is_served_until_his_session_ends(broker):
    broker.say("alice")
    broker.ask()
    broker.now_s = 4.9
    broker.ask()
    assert (broker.said.oracles, broker.said.events) == ([], [])
    broker.close_at(4.9)
    assert broker.said.events == []
    broker.close_at(5.0)
    assert broker.said.events == [ENDED]
    broker.ask()
    assert broker.said.oracles == ["session-outlived"]


def test_a_session_is_renewed_also_after_its_end(broker):
    broker.say("alice")
    broker.now_s = 6.0
    broker.say("alice")
    broker.now_s = 10.9
    broker.ask()
    assert (broker.said.oracles, broker.said.events) == ([], [RENEWED])


def test_who_did_not_say_who_he_is_is_not_served(broker):
    broker.ask()
    assert broker.said.oracles == ["authentication"]


def test_who_was_refused_is_not_served(broker):
    broker.say("alice", code=ErrorCode.SASL_AUTHENTICATION_FAILED)
    broker.ask()
    assert (broker.said.oracles, broker.said.events) == (["authentication"], [])


def test_a_connection_does_not_change_hands(broker):
    broker.say("alice")
    broker.say("bob", code=ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert (broker.said.oracles, broker.said.events) == ([], [REFUSED])
    broker.say("bob")
    assert broker.said.oracles == ["principal-changed"]


def test_nobody_becomes_somebody_else(broker):
    broker.say("alice", becomes="bob")
    assert broker.said.oracles == ["principal-changed"]


def test_a_user_that_is_no_more_is_not_believed(broker):
    broker.say("alice")
    broker.users = {"bob"}
    broker.say("alice", code=ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert (broker.said.oracles, broker.said.events) == ([], [REMOVED])
    broker.say("alice")
    assert broker.said.oracles == ["authentication"]


def test_names_are_read_out_of_tokens():
    assert claimed("PLAIN", b"\0admin\0secret") == "admin"
    assert claimed("SCRAM-SHA-256", b"n,,n=alice,r=nonce") == "alice"


def test_whoever_was_known_at_any_time_of_the_exchange_may_be_believed():
    known = Known()
    known.handshake("SCRAM-SHA-256", {"alice"})
    known.token(b"n,,n=bob,r=nonce", {"bob"})
    assert (known.claimed, known.has_said_all, known.users) == ("bob", False, {"alice", "bob"})
    known.token(b"c=biws,r=nonce,p=proof", set())
    assert (known.claimed, known.has_said_all) == ("bob", True)
    known.handshake("PLAIN", set())
    assert (known.has_said_all, known.users) == (False, set())
