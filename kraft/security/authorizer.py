"""Who may do what: the decisions of Kafka's StandardAuthorizer over the ACLs of the metadata (KIP-500, KIP-679).

Guarantees: a super user may do everything. For others an ACL that denies wins over all that allow; what no ACL about
the resource decides is denied, or, with `allow.everyone.if.no.acl.found`, allowed where there is no ACL about the
resource at all. READ, WRITE, DELETE and ALTER imply DESCRIBE, ALTER_CONFIGS implies DESCRIBE_CONFIGS. A decision takes
a few look-ups however many ACLs there are, and is remembered until one of them changes. Pure: it is told of changes as
a publisher of the metadata; `kraft.broker.authorization` asks it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

from kraft.protocol.api import AclOperation, ResourceType
from quorum.metadata.acls import ALLOW, PREFIXED, WILDCARD, Acl
from quorum.metadata.changes import MetadataChanges
from quorum.metadata.image import MetadataImage

ANYBODY: Final = f"User:{WILDCARD}"
MAX_REMEMBERED: Final = 20_000
"""Decisions that are remembered."""
MAX_REMEMBERED_NAME: Final = 255
"""Characters of a name in one: names of groups may be longer, and clients choose them."""


def bit(operation: int) -> int:
    """An operation in a set of them, as in answers that tell what is allowed (KIP-430)."""
    return 1 << operation


EVERYTHING: Final = sum(bit(operation) for operation in AclOperation if operation is not AclOperation.ALL)
_IMPLIED: Final = {
    AclOperation.READ: bit(AclOperation.DESCRIBE),
    AclOperation.WRITE: bit(AclOperation.DESCRIBE),
    AclOperation.DELETE: bit(AclOperation.DESCRIBE),
    AclOperation.ALTER: bit(AclOperation.DESCRIBE),
    AclOperation.ALTER_CONFIGS: bit(AclOperation.DESCRIBE_CONFIGS),
}
"""What is allowed along with an operation."""


class _Rule:
    """The ACLs of one principal and host about one pattern of resources."""

    __slots__ = ("acls", "allowed", "denied")

    def __init__(self) -> None:
        self.acls: set[Acl] = set()
        self.allowed = 0
        self.denied = 0

    def count(self) -> None:
        """Adds up what they say."""
        self.allowed = self.denied = 0
        for acl in self.acls:
            operation = AclOperation(acl.operation)
            named = EVERYTHING if operation is AclOperation.ALL else bit(operation)
            if acl.permission_type == ALLOW:
                self.allowed |= named | _IMPLIED.get(operation, 0)
            else:
                self.denied |= named


_Rules = dict[tuple[str, str], _Rule]
"""By principal and host."""


class _Patterns:
    """What ACLs are about among the resources of one type."""

    __slots__ = ("literal", "prefix_lengths", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _Rules] = {}
        self.prefixed: dict[str, _Rules] = {}
        self.prefix_lengths: tuple[int, ...] = ()

    def change(self, acl: Acl, *, is_there: bool) -> None:
        """Takes in one ACL that was added or removed."""
        patterns = self.prefixed if acl.pattern_type == PREFIXED else self.literal
        patterns_before = len(patterns)
        rules = patterns.setdefault(acl.resource_name, {})
        key = (acl.principal, canonical_host(acl.host))
        rule = rules.setdefault(key, _Rule())
        if is_there:
            rule.acls.add(acl)
        else:
            rule.acls.discard(acl)
        rule.count()
        if not rule.acls:
            del rules[key]
        if not rules:
            del patterns[acl.resource_name]
        if patterns is self.prefixed and len(patterns) != patterns_before:
            self.prefix_lengths = tuple(sorted({len(prefix) for prefix in patterns}))

    def about_all_beginning_with(self, name: str) -> Iterator[_Rules]:
        """What is about every resource whose name begins so."""
        if WILDCARD in self.literal:
            yield self.literal[WILDCARD]
        for length in self.prefix_lengths:
            if length > len(name):
                return
            rules = self.prefixed.get(name[:length])
            if rules is not None:
                yield rules

    def about(self, name: str) -> Iterator[_Rules]:
        """What is about the resource of that name."""
        yield from self.about_all_beginning_with(name)
        if name in self.literal and name != WILDCARD:
            yield self.literal[name]


class StandardAuthorizer:
    """The decisions of one broker. Not thread-safe; all calls come from the event loop."""

    def __init__(self, super_users: frozenset[str], *, allow_everyone_if_no_acl_found: bool = False) -> None:
        """`super_users` are principals, as in "User:admin"."""
        self._super_users = super_users
        self._allows_unfound = allow_everyone_if_no_acl_found
        self._patterns = {int(resource_type): _Patterns() for resource_type in ResourceType}
        self._remembered: dict[tuple[str, str, int, str], int] = {}
        self._remembered_any: dict[tuple[str, str, int, int], bool] = {}

    def on_metadata(self, changes: MetadataChanges, image: MetadataImage) -> None:
        """Takes in the ACLs that changed."""
        changed = changes.changed_acls
        for acl in changed:
            self._patterns[acl.resource_type].change(acl, is_there=acl in image.acls)
        if changed:
            self._remembered.clear()
            self._remembered_any.clear()

    def allowed(self, principal: str, host: str, resource_type: int, name: str) -> int:
        """The set of operations that somebody at this address may do with this resource."""
        key = (principal, host, resource_type, name)
        operations = self._remembered.get(key)
        if operations is None:
            operations = self._decide(principal, host, self._patterns[resource_type].about(name))
            if len(name) <= MAX_REMEMBERED_NAME:
                if len(self._remembered) >= MAX_REMEMBERED:
                    self._remembered.clear()
                self._remembered[key] = operations
        return operations

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Whether somebody at this address may do this with this resource."""
        return self.allowed(principal, host, resource_type, name) & bit(operation) != 0

    def allows_with_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether there is a name that a resource could have with which it is allowed (authorizeByResourceType)."""
        key = (principal, host, operation, resource_type)
        known = self._remembered_any.get(key)
        if known is None:
            wanted = bit(operation)
            known = any(
                decided & wanted for decided in self._decide_for_each_pattern(principal, host, resource_type)
            )
            if len(self._remembered_any) >= MAX_REMEMBERED:
                self._remembered_any.clear()
            self._remembered_any[key] = known
        return known

    def _decide_for_each_pattern(self, principal: str, host: str, resource_type: int) -> Iterator[int]:
        """What is allowed with a resource that no ACL names, then, pattern by pattern, with those that one does."""
        patterns = self._patterns[resource_type]
        yield self._decide(principal, host, patterns.about_all_beginning_with(""))
        for prefix in patterns.prefixed:
            yield self._decide(principal, host, patterns.about_all_beginning_with(prefix))
        for name in patterns.literal:
            yield self._decide(principal, host, patterns.about(name))

    def _decide(self, principal: str, host: str, all_rules: Iterator[_Rules]) -> int:
        if principal in self._super_users:
            return EVERYTHING
        host = canonical_host(host)
        allowed = denied = 0
        found = False
        for rules in all_rules:
            found = True
            for key in ((principal, host), (principal, WILDCARD), (ANYBODY, host), (ANYBODY, WILDCARD)):
                rule = rules.get(key)
                if rule is not None:
                    allowed |= rule.allowed
                    denied |= rule.denied
        if not found and self._allows_unfound:
            return EVERYTHING
        return allowed & ~denied


@lru_cache(maxsize=4096)
def canonical_host(text: str) -> str:
    """An address in the one way in which it is compared: IPv6 has many, and a socket for both families tells of an
    IPv4 address within one. Other texts stay as they are: they match nobody, as in Kafka."""
    try:
        address = ip_address(text)
    except ValueError:
        return text
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)
