"""Frames and headers that are wrong: the end of that one connection, and of nothing else."""

from __future__ import annotations

import struct

import pytest

from kraft.protocol.api import SUPPORTED, ApiKey
from kraft.protocol.errors import ErrorCode
from kraft.protocol.schemas.api_versions import ApiVersionsRequest
from tests.support.node_processes import NodeProcesses
from tests.support.raw_client import (
    FETCH_VERSION,
    RawConnection,
    assert_works,
    batch,
    fetch_request,
)

pytestmark = pytest.mark.usefixtures("bystander")

METADATA_VERSION = 12
REQUEST_MAX_BYTES = 100 * 1024 * 1024


# -- frames and headers

HEADER = struct.Struct(">hhih")
"""API key, version, correlation id, and the length of the client id, -1 for none."""


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 7, REQUEST_MAX_BYTES + 1, 2**31 - 1])
def test_an_impossible_length_closes_the_connection(length: int, connection: RawConnection) -> None:
    connection.send(struct.pack(">i", length) + bytes(16))
    assert connection.was_closed()


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01" + bytes(200), b"\x00" * 64]
)
def test_another_protocol_closes_the_connection(data: bytes, connection: RawConnection) -> None:
    connection.send(data)
    assert connection.was_closed()


@pytest.mark.parametrize("api_key", [-1, 4, 999, 32767])
def test_an_unknown_api_closes_the_connection(api_key: int, connection: RawConnection) -> None:
    connection.send_frame(HEADER.pack(api_key, 0, 1, -1))
    assert connection.was_closed()


@pytest.mark.parametrize(
    "api_key", [key for key in SUPPORTED if key != ApiKey.API_VERSIONS], ids=lambda key: key.name
)
def test_an_unknown_version_closes_the_connection(api_key: ApiKey, connection: RawConnection) -> None:
    connection.send_frame(HEADER.pack(api_key, SUPPORTED[api_key].stop, 1, -1) + bytes(32))
    assert connection.was_closed()


@pytest.mark.parametrize("version", [SUPPORTED[ApiKey.API_VERSIONS].stop, 99, 32767])
def test_api_versions_above_the_maximum(version: int, connection: RawConnection) -> None:
    """KIP-511: error 35, in version 0, with what can be asked; and the client goes on with that."""
    connection.send_frame(HEADER.pack(ApiKey.API_VERSIONS, version, 77, -1) + b"\x00\x05kcat\x031.9\x00")
    frame = connection.receive_frame()
    correlation_id, error_code, count = struct.unpack_from(">ihi", frame)
    assert (correlation_id, error_code, count) == (77, 35, len(SUPPORTED))
    assert len(frame) == 10 + 6 * count, "an answer of version 0 has nothing behind its array"
    offered = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", frame[10:])}
    assert offered[18] == (0, SUPPORTED[ApiKey.API_VERSIONS].stop - 1)
    assert connection.call(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["", "-", "späti", "a b"])
def test_api_versions_of_a_client_with_a_wrong_name(name: str, connection: RawConnection) -> None:
    answer = connection.call(ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("api_key", list(SUPPORTED), ids=lambda key: key.name)
@pytest.mark.parametrize("filler", [b"", b"\xff" * 40, b"\x7f" * 40], ids=["short", "ff", "7f"])
def test_a_malformed_body_closes_the_connection(
    api_key: ApiKey, filler: bytes, connection: RawConnection
) -> None:
    """Cut off, or with lengths of billions: no answer, and no memory for what never comes."""
    version = SUPPORTED[api_key].stop - 1
    connection.send_frame(HEADER.pack(api_key, version, 5, -1) + b"\x00" + filler)
    if filler == b"\xff" * 40 and api_key == ApiKey.DESCRIBE_CLUSTER:
        return  # any byte is a boolean
    assert connection.was_closed()


def test_a_client_id_longer_than_its_frame(connection: RawConnection) -> None:
    connection.send_frame(HEADER.pack(ApiKey.METADATA, METADATA_VERSION, 1, 30_000) + b"short")
    assert connection.was_closed()


def test_half_a_frame_holds_up_nobody(connection: RawConnection, topic: str, leader: tuple[str, int]) -> None:
    """A client that never finishes its request costs a connection, not more."""
    connection.send(struct.pack(">i", REQUEST_MAX_BYTES) + bytes(1000))
    with RawConnection(leader) as other:
        assert_works(other, topic)


def test_what_came_before_a_bad_frame_is_answered(connection: RawConnection) -> None:
    sent = connection.send_request(ApiVersionsRequest(), 0)
    connection.send(struct.pack(">i", -5))
    assert connection.receive(ApiKey.API_VERSIONS, 0, sent).error_code == ErrorCode.NONE
    assert connection.was_closed()


def test_a_slow_fetch_holds_up_only_its_own_connection(
    connection: RawConnection, topic: str, leader: tuple[str, int], cluster: NodeProcesses
) -> None:
    quiet = cluster.create_topic("quiet")
    address = cluster.address(cluster.leader(quiet))
    with RawConnection(address) as slow, RawConnection(address) as other:
        fetch = slow.send_request(fetch_request(quiet, 0, max_wait_ms=15_000), FETCH_VERSION)
        behind = slow.send_request(ApiVersionsRequest(), 0)
        assert other.call(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
        assert not slow.has_answer()
        assert other.produce(quiet, batch(b"awaited")).error_code == ErrorCode.NONE
        answer = slow.receive(ApiKey.FETCH, FETCH_VERSION, fetch).responses[0].partitions[0]
        assert b"awaited" in bytes(answer.records)
        assert slow.receive(ApiKey.API_VERSIONS, 0, behind).error_code == ErrorCode.NONE
