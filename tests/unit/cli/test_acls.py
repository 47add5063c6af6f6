"""Which ACLs the options of `kraft acls` stand for: as `kafka-acls` has it."""

from __future__ import annotations

import pytest

from kraft.cli.acls import Named, acl_document, filters_of, new_acls, parse_operation
from kraft.protocol.api import AclOperation as Op
from kraft.protocol.api import ResourceType
from kraft.user_error import EXIT_USAGE, UserError
from quorum.metadata.acls import ALLOW, ANY, DENY, LITERAL, PREFIXED, Acl, AclFilter

T, G, C, X = (
    (ResourceType.TOPIC, "t"),
    (ResourceType.GROUP, "g"),
    (ResourceType.CLUSTER, "kafka-cluster"),
    (ResourceType.TRANSACTIONAL_ID, "x"),
)
BOB = "User:bob"


def allowed(resource: tuple[ResourceType, str], operation: Op, pattern: int = LITERAL) -> Acl:
    return Acl(*resource, pattern, BOB, "*", operation, ALLOW)


@pytest.mark.parametrize(
    ("named", "acls"),
    [
        (Named([T], allow_principals=[BOB]), [allowed(T, Op.ALL)]),
        (
            Named([T, C], "prefixed", [BOB], operations=["Read", "describe"]),
            [
                allowed(T, Op.READ, PREFIXED),
                allowed(T, Op.DESCRIBE, PREFIXED),
                allowed(C, Op.READ),
                allowed(C, Op.DESCRIBE),
            ],
        ),
        (
            Named([G], allow_principals=[BOB], deny_principals=["User:*"], deny_hosts=["h", "i"]),
            [
                allowed(G, Op.ALL),
                Acl(*G, LITERAL, "User:*", "h", Op.ALL, DENY),
                Acl(*G, LITERAL, "User:*", "i", Op.ALL, DENY),
            ],
        ),
        (
            Named([T, X], allow_principals=[BOB], producer=True, idempotent=True),
            [
                allowed(T, Op.WRITE),
                allowed(T, Op.DESCRIBE),
                allowed(T, Op.CREATE),
                allowed(X, Op.WRITE),
                allowed(X, Op.DESCRIBE),
                allowed(C, Op.IDEMPOTENT_WRITE),
            ],
        ),
        (
            Named([T, G], allow_principals=[BOB], consumer=True),
            [allowed(T, Op.READ), allowed(T, Op.DESCRIBE), allowed(G, Op.READ)],
        ),
    ],
)
def test_what_is_added(named: Named, acls: list[Acl]) -> None:
    assert new_acls(named) == acls
    assert {acl for acl in acls for one in filters_of(named) if one.matches(acl)} == set(acls)


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        (Named(allow_principals=[BOB]), "name a resource"),
        (Named([T]), "name somebody"),
        (Named([T], "match", [BOB]), "a new ACL is literal or prefixed"),
        (Named([T], "fuzzy", [BOB]), "a new ACL is literal or prefixed"),
        (Named([T], allow_principals=[BOB], consumer=True), "--consumer needs a --group"),
        (Named([G], allow_principals=[BOB], producer=True), "need a --topic"),
        (Named([T], allow_principals=[BOB], producer=True, operations=["read"]), "leave --operation"),
        (Named([T], allow_principals=[BOB], operations=["reed"]), "--operation is one of All, Read"),
    ],
)
def test_what_cannot_be_added(named: Named, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as refused:
        new_acls(named)
    assert refused.value.exit_code == EXIT_USAGE


def test_what_is_removed() -> None:
    assert filters_of(Named([T])) == [AclFilter(*T, LITERAL, None, None, ANY, ANY)]
    assert filters_of(Named([T], "any", [BOB])) == [AclFilter(*T, ANY, BOB, "*", ANY, ALLOW)]
    assert filters_of(Named([], deny_principals=[BOB], operations=["read"])) == [
        AclFilter(ANY, None, ANY, BOB, "*", Op.READ, DENY)
    ]
    with pytest.raises(UserError, match="name what to remove"):
        filters_of(Named())
    with pytest.raises(UserError, match="--resource-pattern-type is one of match, literal, prefixed, any"):
        filters_of(Named([T], "fuzzy"))


def test_operations_are_written_as_people_write_them() -> None:
    for text in ("IdempotentWrite", "idempotent_write", "IDEMPOTENT-WRITE"):
        assert parse_operation(text) is Op.IDEMPOTENT_WRITE


def test_a_code_of_a_newer_broker_is_shown_as_it_is() -> None:
    assert acl_document(Acl(99, "n", 3, BOB, "*", 3, 3))["resource_type"] == "99"
