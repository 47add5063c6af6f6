"""What bounds the authorizer, and how addresses and super users are written; its decisions are a property test's."""

from __future__ import annotations

import pytest

from kraft.protocol.api import AclOperation, ResourceType
from kraft.security.authorizer import MAX_REMEMBERED, StandardAuthorizer, canonical_host
from kraft.security.super_users import parse_super_users
from quorum.metadata.acls import ALLOW, LITERAL, PREFIXED, Acl
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import EMPTY
from quorum.metadata.records import AccessControlEntry

TOPIC = ResourceType.TOPIC


def authorizer(*acls: Acl, **options: bool) -> StandardAuthorizer:
    made = StandardAuthorizer(frozenset({"User:admin"}), **options)
    delta = MetadataDelta(EMPTY)
    for acl in acls:
        delta.apply(AccessControlEntry(acl), 1, 1)
    made.on_metadata(delta, delta.finish(1, 1))
    return made


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("*", "*"),
        ("broker.example", "broker.example"),
    ],
)
def test_an_address_is_compared_in_one_way(text: str, canonical: str) -> None:
    assert canonical_host(text) == canonical


def test_a_host_is_an_address_however_it_is_written() -> None:
    made = authorizer(Acl(TOPIC, "t", LITERAL, "User:bob", "0:0:0:0:0:0:0:1", AclOperation.READ, ALLOW))
    assert made.allows("User:bob", "::1", AclOperation.READ, TOPIC, "t")
    assert not made.allows("User:bob", "::2", AclOperation.READ, TOPIC, "t")


def test_what_is_remembered_is_bounded() -> None:
    made = authorizer(Acl(TOPIC, "t", PREFIXED, "User:bob", "*", AclOperation.READ, ALLOW))
    for number in range(MAX_REMEMBERED + 10):
        assert made.allows("User:bob", "h", AclOperation.READ, TOPIC, f"t{number}")
    assert made.allows("User:bob", "h", AclOperation.READ, ResourceType.TOPIC, "t" * 1_000)
    assert len(made._remembered) <= MAX_REMEMBERED
    assert max(len(name) for *_, name in made._remembered) < 1_000


def test_super_users_are_parted_by_semicolons() -> None:
    assert parse_super_users("User:a; User:CN=b,O=c ;") == {"User:a", "User:CN=b,O=c"}
    assert parse_super_users("") == frozenset()
    with pytest.raises(ValueError, match="'alice' is no principal"):
        parse_super_users("alice")


def test_ten_thousand_acls_are_not_walked_through() -> None:
    """A decision looks at what is about the resource alone, however many principals have ACLs about others."""
    acls = [
        Acl(TOPIC, f"t{number}", LITERAL, f"User:u{number % 1_000}", "*", AclOperation.READ, ALLOW)
        for number in range(10_000)
    ]
    made = authorizer(*acls)
    patterns = made._patterns[TOPIC]
    assert len(list(patterns.about("t5"))) == 1
    assert made.allows("User:u5", "h", AclOperation.READ, TOPIC, "t5")
    assert not made.allows("User:u6", "h", AclOperation.READ, TOPIC, "t5")
