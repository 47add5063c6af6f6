"""The check of a field, from its declared type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest

from quorum.errors import MalformedError
from quorum.metadata import wire
from quorum.metadata.typed_fields import field_checks

Small = Annotated[int, wire.integer(0, 3)]


@dataclass
class Fields:
    number: int
    small: Small
    perhaps: Small | None
    several: tuple[Small, ...]
    pair: tuple[str, Small]


CHECKS = field_checks(Fields)


def test_the_checks_are_in_the_order_of_the_fields() -> None:
    assert list(CHECKS) == ["number", "small", "perhaps", "several", "pair"]


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("number", 4, "4"),
        ("number", wire.INT64_MAX, wire.INT64_MAX + 1),
        ("number", 1, True),
        ("small", 3, 4),
        ("perhaps", None, 4),
        ("perhaps", 2, "2"),
        ("several", (0, 3), (0, 4)),
        ("pair", ("a", 1), ("a", 1, 2)),
        ("pair", ("a", 1), ("a", 4)),
    ],
)
def test_a_field_takes_what_its_type_says(field: str, good: object, bad: object) -> None:
    assert CHECKS[field](good) == good
    with pytest.raises(MalformedError):
        CHECKS[field](bad)


@dataclass
class Unknown:
    field: dict[str, int]


def test_a_type_without_a_check_is_a_defect() -> None:
    with pytest.raises(TypeError, match="no check for a field"):
        field_checks(Unknown)
