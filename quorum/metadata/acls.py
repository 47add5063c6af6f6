"""ACLs as the metadata have them, the filters that name some of them, and what is wrong with either.

An ACL says who may, or may not, do what from where to which resources. Whole, it is its own identity: there are no two
that are equal. Types, operations and permissions are Kafka's codes. Records and images hold ACLs,
`quorum.controller.acl_control` judges new ones and removes others, brokers describe them (KIP-140, KIP-290). Pure.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from quorum.metadata import wire

ANY: Final = 1
"""In a filter, whatever it is the code of."""
CLUSTER: Final = 4
RESOURCE_TYPES: Final = range(2, 8)
"""Topic, group, cluster, transactional id, delegation token, user."""
OPERATIONS: Final = range(2, 16)
"""ALL, READ, … TWO_PHASE_COMMIT."""
MATCH: Final = 2
"""In a filter: whichever patterns count for a resource of that name."""
LITERAL: Final = 3
PREFIXED: Final = 4
DENY: Final = 2
ALLOW: Final = 3
WILDCARD: Final = "*"
"""As a literal name, host, or name of a user: any."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type `CLUSTER`."""
TEXT_CHARACTERS: Final = 32_767
"""The longest name, principal or host: a string in Kafka's protocol can hold no more."""


class Acl(NamedTuple):
    """One ACL. `pattern_type` says whether `resource_name` is a resource's name or what names begin with."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


def acl(value: object) -> Acl:
    """A check for one encoded ACL."""
    fields = wire.array(value, len(_CHECKS), "an ACL")
    return Acl(*[check(field) for check, field in zip(_CHECKS, fields, strict=True)])


_CODE = wire.integer(-128, 127)
_TEXT = wire.text(TEXT_CHARACTERS)
_CHECKS = (_CODE, _TEXT, _CODE, _TEXT, _TEXT, _CODE, _CODE)


class AclFilter(NamedTuple):
    """Names the ACLs that are as it says; None, and the codes `ANY`, stand for everything."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def matches(self, one: Acl) -> bool:
        """Whether it names this ACL."""
        return (
            self.resource_type in (ANY, one.resource_type)
            and self.operation in (ANY, one.operation)
            and self.permission_type in (ANY, one.permission_type)
            and self.principal in (None, one.principal)
            and self.host in (None, one.host)
            and self._matches_pattern(one)
        )

    def _matches_pattern(self, one: Acl) -> bool:
        if self.pattern_type not in (ANY, MATCH, one.pattern_type):
            return False
        name = self.resource_name
        if name is None or name == one.resource_name:
            # With MATCH a prefix of exactly that name counts for it, too.
            return True
        if self.pattern_type != MATCH:
            return False
        if one.pattern_type == PREFIXED:
            return name.startswith(one.resource_name)
        return one.resource_name == WILDCARD


def acl_filter(value: object) -> AclFilter:
    """A check for one encoded filter."""
    fields = wire.array(value, len(_FILTER_CHECKS), "an ACL filter")
    return AclFilter(*[check(field) for check, field in zip(_FILTER_CHECKS, fields, strict=True)])


_MAY_BE_NONE = wire.optional(_TEXT)
_FILTER_CHECKS = (_CODE, _MAY_BE_NONE, _CODE, _MAY_BE_NONE, _MAY_BE_NONE, _CODE, _CODE)


def acl_problem(one: Acl) -> str | None:
    """Why there can be no such ACL; None if there can."""
    if one.resource_type not in RESOURCE_TYPES:
        return f"Invalid resource type {one.resource_type}; there are 2 (topic) to 7 (user)."
    if one.pattern_type not in (LITERAL, PREFIXED):
        return f"Invalid pattern type {one.pattern_type}; an ACL is literal ({LITERAL}) or prefixed ({PREFIXED})."
    if one.operation not in OPERATIONS:
        return f"Invalid operation {one.operation}; name one, or ALL (2)."
    if one.permission_type not in (DENY, ALLOW):
        return f"Invalid permission type {one.permission_type}; an ACL denies ({DENY}) or allows ({ALLOW})."
    if not one.resource_name:
        return "Resource name should not be empty."
    if one.resource_type == CLUSTER and one.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}."
    kind, colon, name = one.principal.partition(":")
    if not (kind and colon and name):
        return f"Could not parse principal from {one.principal!r}; it is a type, a colon and a name, as in User:alice."
    if not one.host:
        return f"The host should not be empty; {WILDCARD} is any."
    return None


def filter_problem(wanted: AclFilter) -> str | None:
    """Why nothing can be looked for so; None if it can."""
    codes = (
        ("resource type", wanted.resource_type in (ANY, *RESOURCE_TYPES)),
        ("pattern type", wanted.pattern_type in (ANY, MATCH, LITERAL, PREFIXED)),
        ("operation", wanted.operation in (ANY, *OPERATIONS)),
        ("permission type", wanted.permission_type in (ANY, DENY, ALLOW)),
    )
    unknown = [what for what, is_known in codes if not is_known]
    return (
        f"The filter has an unknown {unknown[0]}; ask for one that Kafka has, or for any (1)."
        if unknown
        else None
    )
