"""kafka-python reads our bytes as the same values, and writes them again as the same bytes."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft.protocol import ApiKey, Message, encode_request, encode_response
from kraft.protocol.api import APIS
from kraft.protocol.primitives import ZERO_UUID
from kraft.protocol.schemas.api_versions import ApiVersionsResponse
from kraft.protocol.schemas.group_admin import OPERATIONS_NOT_ASKED_FOR
from tests.support.protocol_oracles import MESSAGES, kio_class, kio_values, message_id, our_class, to_ours

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of importlib.resources, at kafka's import
    PACKAGES = [
        import_module(f"kafka.protocol.{name}")
        for name in ("producer", "consumer", "metadata", "admin", "sasl")
    ]


RENAMED = {"authorized_operations"}  # Kafka's topic_ and cluster_authorized_operations


def their_class(api_key: ApiKey, is_request: bool) -> Any:
    name = APIS[api_key].stem + ("Request" if is_request else "Response")
    return next((getattr(package, name) for package in PACKAGES if hasattr(package, name)), None)


COVERED = [
    message
    for message in MESSAGES
    if (theirs := their_class(message[0], message[2])) is not None and message[1] <= theirs.max_version
]


def same(theirs: Any, ours: Any, version: int) -> bool:
    """Whether a value of kafka-python says what ours says; a struct of defaults is our None."""
    if hasattr(theirs, "to_dict"):
        present = [field.name for field in theirs._struct._fields if field.for_version_q(version)]
        fields = {name: getattr(theirs, name) for name in present}
        if ours is None:
            return all(value == -1 for value in fields.values())
        if state := fields.pop("replica_state", None):
            state = (state.replica_id, state.replica_epoch)
            if state != (-1, -1) and state != (ours.replica_id, ours.replica_epoch):
                return False
        known = {name: value for name, value in fields.items() if name in ours.NAMES}
        assert set(fields) - set(known) <= RENAMED, f"{set(fields) - set(known)} are unknown to us"
        return all(same(value, getattr(ours, name), version) for name, value in known.items())
    if isinstance(theirs, list | tuple):
        return len(theirs) == len(ours) and all(
            same(their_item, our_item, version) for their_item, our_item in zip(theirs, ours, strict=True)
        )
    if isinstance(theirs, set | frozenset):  # of bits
        return {int(bit) for bit in theirs} == {bit for bit in range(32) if ours >> bit & 1}
    if isinstance(theirs, UUID):
        return bool(theirs.bytes == ours)
    if theirs is None and ours in (ZERO_UUID, OPERATIONS_NOT_ASKED_FOR):
        return True
    return bool(theirs == ours)


def test_kafka_python_knows_nearly_all_of_our_messages() -> None:
    assert len(COVERED) >= len(MESSAGES) - 10


@pytest.mark.parametrize("message", COVERED, ids=message_id)
@settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_kafka_python_agrees(message: tuple[ApiKey, int, bool], data: st.DataObject) -> None:
    api_key, version, is_request = message
    ours: Message = to_ours(data.draw(kio_values(kio_class(*message))), our_class(api_key, is_request))
    if isinstance(ours, ApiVersionsResponse):
        ours.error_code = 0  # an answer with an error is read as version 0 whatever is asked for
    encoded = encode_request(ours, version) if is_request else b"".join(encode_response(ours, version)[0])
    of = their_class(api_key, is_request)
    decoded = of.decode(encoded, version=version)
    assert same(decoded, ours, version)
    decoded._header = None  # decoding leaves it unset, and encoding asks for it
    assert decoded.encode(version=version) == encoded
