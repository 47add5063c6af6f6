"""The one table of served APIs."""

from __future__ import annotations

import subprocess
import sys

import pytest
from kio.index import load_request_schema
from kio.schema.index import api_key_map

from kraft.protocol import SUPPORTED, ApiKey, UnsupportedVersion, api_name, decode_request, is_supported
from kraft.protocol.api import APIS, is_flexible
from kraft.protocol.messages import request_class, request_codec, response_class, response_codec


def test_what_is_advertised() -> None:
    assert {key.name: (versions[0], versions[-1]) for key, versions in SUPPORTED.items()} == {
        "PRODUCE": (0, 12),
        "FETCH": (4, 16),
        "LIST_OFFSETS": (1, 11),
        "METADATA": (0, 13),
        "API_VERSIONS": (0, 4),
        "CREATE_TOPICS": (2, 7),
        "DELETE_TOPICS": (1, 6),
        "DELETE_RECORDS": (0, 2),
        "INIT_PRODUCER_ID": (0, 5),
        "OFFSET_FOR_LEADER_EPOCH": (2, 4),
        "DESCRIBE_CONFIGS": (1, 4),
        "CREATE_PARTITIONS": (0, 3),
        "ALTER_CONFIGS": (0, 2),
        "INCREMENTAL_ALTER_CONFIGS": (0, 1),
        "ELECT_LEADERS": (0, 2),
        "ALTER_PARTITION_REASSIGNMENTS": (0, 1),
        "LIST_PARTITION_REASSIGNMENTS": (0, 0),
        "DESCRIBE_QUORUM": (0, 2),
        "UPDATE_FEATURES": (0, 2),
        "UNREGISTER_BROKER": (0, 0),
        "DESCRIBE_CLUSTER": (0, 2),
        "DESCRIBE_TOPIC_PARTITIONS": (0, 0),
    }


def test_the_keys_are_kafkas() -> None:
    assert {(key.name, int(key)) for key in ApiKey} == {
        (name.upper(), key) for key, name in api_key_map.items()
    }


@pytest.mark.parametrize("api_key", SUPPORTED)
def test_flexible_versions_are_kafkas(api_key: ApiKey) -> None:
    for version in SUPPORTED[api_key]:
        if api_key != ApiKey.PRODUCE or version >= 3:
            assert is_flexible(api_key, version) == load_request_schema(int(api_key), version).__flexible__


@pytest.mark.parametrize("api_key", SUPPORTED)
def test_message_classes_know_their_api(api_key: ApiKey) -> None:
    for of, suffix in ((request_class(api_key), "Request"), (response_class(api_key), "Response")):
        assert of.API_KEY is api_key
        assert of.__name__ == APIS[api_key].stem + suffix


@pytest.mark.parametrize("api_key", SUPPORTED)
def test_versions_outside_the_range_have_no_codec(api_key: ApiKey) -> None:
    for version in (SUPPORTED[api_key][0] - 1, SUPPORTED[api_key][-1] + 1):
        assert not is_supported(api_key, version)
        for codec in (request_codec, response_codec):
            with pytest.raises(UnsupportedVersion):
                codec(api_key, version)


def test_apis_that_are_not_served() -> None:
    assert not is_supported(ApiKey.JOIN_GROUP, 0)
    assert not is_supported(12345, 0)
    with pytest.raises(UnsupportedVersion, match="API key 11 version 0 is not supported here"):
        decode_request(ApiKey.JOIN_GROUP, 0, b"")


def test_names_for_logs() -> None:
    assert api_name(10) == "FIND_COORDINATOR"
    assert api_name(999) == "API key 999"


def test_importing_the_protocol_loads_neither_messages_nor_the_network() -> None:
    code = (
        "import sys; import kraft.protocol; "
        "unwanted = ('asyncio', 'socket', 'threading', 'dataclasses', 'inspect', 'kraft.protocol.compiler', "
        "'kraft.protocol.fetch', 'kraft.protocol.schemas', 'partitions', 'kraft.broker'); "
        "print([name for name in unwanted if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
