"""The messages of classic groups, of their administration and of FindCoordinator have the bytes of kio and of
kafka-python, in every version, both ways."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft.protocol import ApiKey, Message
from kraft.protocol.compiler import compile_codec
from kraft.protocol.schemas import classic_groups, find_coordinator, group_admin
from tests.support.protocol_oracles import kio_class, kio_decode, kio_encode, kio_values, to_ours

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of importlib.resources, at kafka's import
    PACKAGES = [import_module(f"kafka.protocol.{name}") for name in ("consumer", "metadata", "admin")]

CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large]


class Api(NamedTuple):
    module: Any
    stem: str
    last_version: int
    first_flexible: int

    def ours(self, is_request: bool) -> type[Message]:
        of: type[Message] = getattr(self.module, self.stem + ("Request" if is_request else "Response"))
        return of


APIS = {
    ApiKey.JOIN_GROUP: Api(classic_groups, "JoinGroup", 9, 6),
    ApiKey.HEARTBEAT: Api(classic_groups, "Heartbeat", 4, 4),
    ApiKey.LEAVE_GROUP: Api(classic_groups, "LeaveGroup", 5, 4),
    ApiKey.SYNC_GROUP: Api(classic_groups, "SyncGroup", 5, 4),
    ApiKey.DESCRIBE_GROUPS: Api(group_admin, "DescribeGroups", 6, 5),
    ApiKey.LIST_GROUPS: Api(group_admin, "ListGroups", 5, 3),
    ApiKey.DELETE_GROUPS: Api(group_admin, "DeleteGroups", 2, 2),
    ApiKey.FIND_COORDINATOR: Api(find_coordinator, "FindCoordinator", 6, 3),
}
MESSAGES = [
    (key, version, is_request)
    for key, api in APIS.items()
    for version in range(api.last_version + 1)
    for is_request in (True, False)
]


def their_class(key: ApiKey, is_request: bool) -> Any:
    name = APIS[key].stem + ("Request" if is_request else "Response")
    return next(getattr(package, name) for package in PACKAGES if hasattr(package, name))


@pytest.mark.parametrize(
    "message", MESSAGES, ids=lambda m: f"{m[0].name}-{m[1]}-{'request' if m[2] else 'response'}"
)
@settings(max_examples=8, deadline=None, suppress_health_check=CHECKS)
@given(data=st.data())
def test_the_bytes_are_those_of_others(message: tuple[ApiKey, int, bool], data: st.DataObject) -> None:
    key, version, is_request = message
    api = APIS[key]
    of = kio_class(*message)
    value = data.draw(kio_values(of))
    ours = to_ours(value, api.ours(is_request))
    assert ours.API_KEY is key
    codec = compile_codec(type(ours), version, version >= api.first_flexible, is_request=is_request)
    segments, size_bytes = codec.encode(ours)
    encoded = b"".join(segments)  # type: ignore[arg-type]  # no slices here
    assert len(encoded) == size_bytes
    assert encoded == kio_encode(value)
    assert codec.decode(encoded, 0) == (ours, size_bytes)
    assert kio_decode(of, encoded) == value
    theirs = their_class(key, is_request)
    if version <= theirs.max_version:
        decoded = theirs.decode(encoded, version=version)
        decoded._header = None  # decoding leaves it unset, and encoding asks for it
        assert decoded.encode(version=version) == encoded


def test_kafka_python_knows_nearly_all_of_them() -> None:
    unknown = [m for m in MESSAGES if m[1] > their_class(m[0], m[2]).max_version]
    assert len(unknown) <= 2, unknown
