"""What the requests of the controller listener declare of themselves, and answers on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from quorum.errors import MalformedMessageError
from quorum.rpc import messages
from quorum.rpc.message_codec import decode_response, encode_response
from quorum.rpc.messages import METHODS, ControllerRequest, RpcRequest, rpc


def test_every_request_is_declared() -> None:
    defined = {
        value
        for value in vars(messages).values()
        if isinstance(value, type) and issubclass(value, RpcRequest) and value.__name__.endswith("Request")
    }
    assert {declared.request for declared in METHODS.values()} == defined - {RpcRequest, ControllerRequest}


@pytest.mark.parametrize("method", METHODS)
def test_names_belong_together(method: str) -> None:
    declared = METHODS[method]
    stem = declared.request.__name__.removesuffix("Request")
    assert declared.response.__name__ == f"{stem}Response"
    assert method.replace("_", "") == stem.lower()
    assert declared.request.RPC is declared


def test_reading_leaves_no_traces() -> None:
    assert {method for method, declared in METHODS.items() if not declared.writes} == {
        "list_partition_reassignments",
        "describe_quorum",
        "fetch_metadata",
    }
    assert {
        method: set(declared.own_traces) for method, declared in METHODS.items() if declared.own_traces
    } == {
        "create_topics": {"TOPIC_ALREADY_EXISTS"},
        "delete_topics": {"UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"},
        "create_partitions": {"INVALID_PARTITIONS"},
        "alter_partition_reassignments": {"NO_REASSIGNMENT_IN_PROGRESS"},
        "alter_user_scram_credentials": {"RESOURCE_NOT_FOUND"},
        "unregister_broker": {"BROKER_ID_NOT_REGISTERED"},
    }


def test_a_method_is_declared_once() -> None:
    with pytest.raises(AssertionError, match="heartbeat is declared twice"):
        rpc("heartbeat")(messages.HeartbeatRequest)


REQUEST = messages.AllocateProducerIdsRequest(1, 1)
RESPONSE = messages.AllocateProducerIdsResponse(1000, 5)


def test_an_answer_is_read_as_written() -> None:
    answer = decode_response(REQUEST, encode_response(RESPONSE, 7))
    assert (answer.response, answer.offset) == (RESPONSE, 7)


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {"offset": 7},
        {"response": {"first": 1000, "count": 5}},
        {"offset": 7, "response": {"first": 1000, "count": 5}, "surprise": 1},
        {"offset": -2, "response": {"first": 1000, "count": 5}},
        {"offset": 2**63, "response": {"first": 1000, "count": 5}},
        {"offset": "7", "response": {"first": 1000, "count": 5}},
        {"offset": 7, "response": {"first": 1000}},
        {"offset": 7, "response": 5},
    ],
)
def test_answers_that_are_none(body: Any) -> None:
    with pytest.raises(MalformedMessageError):
        decode_response(REQUEST, body)
