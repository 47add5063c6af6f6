"""Our bytes of the APIs of stored offsets are those of kio and of kafka-python, in every version, both ways."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft.protocol import Message
from kraft.protocol.compiler import compile_codec
from kraft.protocol.schemas import group_offsets
from tests.property.test_protocol_kafka_python import PACKAGES, same
from tests.support.protocol_oracles import kio_class, kio_decode, kio_encode, kio_values, to_ours

VERSIONS = {
    "OffsetCommit": (range(2, 11), 8),
    "OffsetFetch": (range(1, 11), 6),
    "TxnOffsetCommit": (range(6), 3),
    "OffsetDelete": (range(1), 1),
}
"""By API: the versions, and the first of them that is flexible."""


class Case(NamedTuple):
    of: type[Message]
    version: int
    is_flexible: bool

    @property
    def is_request(self) -> bool:
        return self.of.__name__.endswith("Request")

    @property
    def theirs(self) -> Any:
        return kio_class(self.of.API_KEY, self.version, self.is_request)

    def encode(self, message: Message) -> bytes:
        codec = compile_codec(self.of, self.version, self.is_flexible, is_request=self.is_request)
        parts, size_bytes = codec.encode(message)
        data = b"".join(parts)  # type: ignore[arg-type]  # no slices here
        assert len(data) == size_bytes
        return data

    def decode(self, data: bytes) -> Message:
        codec = compile_codec(self.of, self.version, self.is_flexible, is_request=self.is_request)
        message, end = codec.decode(data, 0)
        assert end == len(data)
        assert isinstance(message, Message)
        return message


CASES = [
    Case(getattr(group_offsets, stem + kind), version, version >= flexible_from)
    for stem, (versions, flexible_from) in VERSIONS.items()
    for version in versions
    for kind in ("Request", "Response")
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.of.__name__}-{case.version}")
quickly = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@every_case
@quickly
@given(data=st.data())
def test_kio_reads_what_we_write_and_we_read_what_kio_writes(case: Case, data: st.DataObject) -> None:
    theirs = data.draw(kio_values(case.theirs))
    ours = to_ours(theirs, case.of)
    expected = kio_encode(theirs)
    assert case.encode(ours) == expected
    assert case.decode(expected) == ours
    assert kio_decode(case.theirs, case.encode(ours)) == theirs


def kafka_python_class(case: Case) -> Any:
    name = case.of.__name__
    found = next((getattr(package, name) for package in PACKAGES if hasattr(package, name)), None)
    return found if found is not None and case.version <= found.max_version else None


COVERED = [case for case in CASES if kafka_python_class(case) is not None]


def test_kafka_python_knows_nearly_all_of_them() -> None:
    assert {case.of.__name__ for case in COVERED} == {case.of.__name__ for case in CASES}
    assert len(COVERED) >= len(CASES) - 4


@pytest.mark.parametrize("case", COVERED, ids=lambda case: f"{case.of.__name__}-{case.version}")
@quickly
@given(data=st.data())
def test_kafka_python_agrees(case: Case, data: st.DataObject) -> None:
    ours = to_ours(data.draw(kio_values(case.theirs)), case.of)
    encoded = case.encode(ours)
    of = kafka_python_class(case)
    decoded = of.decode(encoded, version=case.version)
    assert same(decoded, ours, case.version)
    decoded._header = None  # decoding leaves it unset, and encoding asks for it
    assert decoded.encode(version=case.version) == encoded
