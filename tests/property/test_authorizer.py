"""The authorizer decides as Kafka's documentation says, whichever ACLs came and went in whichever order.

The model knows no index: it walks through all ACLs for each question, sentence by sentence of the documentation.
"""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kraft.protocol.api import AclOperation, ResourceType
from kraft.security.authorizer import EVERYTHING, StandardAuthorizer, bit
from quorum.metadata.acls import ALLOW, DENY, LITERAL, PREFIXED, Acl
from quorum.metadata.changes import ImageDiff
from quorum.metadata.delta import MetadataDelta
from quorum.metadata.image import EMPTY, MetadataImage
from quorum.metadata.records import AccessControlEntry, RemoveAccessControlEntry, Topic

PRINCIPALS = ["User:alice", "User:bob", "User:admin"]
HOSTS = ["10.0.0.1", "10.0.0.2", "::1"]
NAMES = ["a", "ab", "abc", "b", "kafka-cluster"]
FRESH = "\N{SNOWMAN}"
"""No ACL of these tests has it in its name."""
OPERATIONS = [operation for operation in AclOperation if operation is not AclOperation.ALL]
TYPES = [ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER]

some_acl = st.builds(
    Acl,
    st.sampled_from([int(kind) for kind in TYPES]),
    st.sampled_from(["*", *NAMES]),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:*", *PRINCIPALS]),
    st.sampled_from(["*", *HOSTS]),
    st.sampled_from([int(operation) for operation in AclOperation]),
    st.sampled_from([DENY, ALLOW]),
)
acls = st.lists(some_acl, max_size=12, unique=True)

IMPLYING = {
    AclOperation.DESCRIBE: {
        AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE
    },
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS},
}  # fmt: skip


def is_about(acl: Acl, resource_type: int, name: str) -> bool:
    """A literal ACL is about the resource of its name, or with * about all; a prefixed one about all that begin so."""
    if acl.resource_type != resource_type:
        return False
    if acl.pattern_type == PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in ("*", name)


def model(
    present: list[Acl],
    super_users: set[str],
    everyone: bool,
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: int,
    name: str,
) -> bool:
    if principal in super_users:
        return True
    about = [acl for acl in present if is_about(acl, resource_type, name)]
    if not about:
        return everyone
    mine = [acl for acl in about if acl.principal in ("User:*", principal) and acl.host in ("*", host)]
    denials = [acl for acl in mine if acl.permission_type == DENY]
    if any(acl.operation in (AclOperation.ALL, operation) for acl in denials):
        return False
    allowing = IMPLYING.get(operation, {operation}) | {AclOperation.ALL}
    return any(acl.operation in allowing for acl in mine if acl.permission_type == ALLOW)


def told(
    authorizer: StandardAuthorizer, before: MetadataImage, added: list[Acl], removed: list[Acl]
) -> MetadataImage:
    """The image after the changes, which the authorizer was told of."""
    delta = MetadataDelta(before)
    for acl in added:
        delta.apply(AccessControlEntry(acl), before.offset + 1, 1)
    for acl in removed:
        delta.apply(RemoveAccessControlEntry(acl), before.offset + 1, 1)
    image = delta.finish(before.offset + 1, 1)
    authorizer.on_metadata(delta, image)
    return image


@settings(max_examples=1_000)
@given(
    acls,
    acls,
    st.booleans(),
    st.sampled_from([set(), {"User:admin"}]),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(TYPES),
    st.sampled_from([*NAMES, "*", FRESH]),
)
@example(
    [Acl(2, "a", PREFIXED, "User:*", "*", 3, ALLOW)], [], False, set(), "User:bob", "::1", TYPES[0], "ab"
)
def test_decisions_are_kafkas(
    first: list[Acl],
    second: list[Acl],
    everyone: bool,
    super_users: set[str],
    principal: str,
    host: str,
    resource_type: ResourceType,
    name: str,
) -> None:
    authorizer = StandardAuthorizer(frozenset(super_users), allow_everyone_if_no_acl_found=everyone)
    image = told(authorizer, EMPTY, first, [])
    new = [acl for acl in second if acl not in image.acls]
    for present in (first, [*first[::2], *new]):
        if present is not first:
            image = told(authorizer, image, new, first[1::2])
        assert set(present) == image.acls
        expected = {
            operation: model(present, super_users, everyone, principal, host, operation, resource_type, name)
            for operation in OPERATIONS
        }
        allowed = authorizer.allowed(principal, host, resource_type, name)
        assert {one: bool(allowed & bit(one)) for one in OPERATIONS} == expected
        assert allowed & ~EVERYTHING == 0


@settings(max_examples=100)
@given(acls, st.booleans(), st.sampled_from(PRINCIPALS), st.sampled_from(HOSTS), st.sampled_from(OPERATIONS))
def test_any_of_a_type_is_allowed_if_there_is_a_name_with_which_one_is(
    present: list[Acl], everyone: bool, principal: str, host: str, operation: AclOperation
) -> None:
    authorizer = StandardAuthorizer(frozenset(), allow_everyone_if_no_acl_found=everyone)
    told(authorizer, EMPTY, present, [])
    for resource_type in TYPES:
        names = [FRESH, *(name + end for name in ["*", *NAMES] for end in ("", FRESH))]
        expected = any(
            model(present, set(), everyone, principal, host, operation, resource_type, name) for name in names
        )
        assert authorizer.allows_with_any(principal, host, operation, resource_type) == expected


@given(acls)
def test_a_snapshot_makes_the_same_authorizer_as_the_changes(present: list[Acl]) -> None:
    by_records, by_snapshot = StandardAuthorizer(frozenset()), StandardAuthorizer(frozenset())
    image = MetadataImage.decode(told(by_records, EMPTY, present, []).encode())
    by_snapshot.on_metadata(ImageDiff(EMPTY, image), image)
    for name in NAMES:
        asked = ("User:alice", "::1", ResourceType.TOPIC, name)
        assert by_snapshot.allowed(*asked) == by_records.allowed(*asked)


def test_other_changes_leave_what_is_remembered() -> None:
    authorizer = StandardAuthorizer(frozenset())
    image = told(authorizer, EMPTY, [Acl(2, "a", LITERAL, "User:bob", "*", 3, ALLOW)], [])
    assert authorizer.allows("User:bob", "h", AclOperation.READ, ResourceType.TOPIC, "a")
    delta = MetadataDelta(image)
    delta.apply(Topic("t", b"t" * 16), 5, 1)
    remembered = dict(authorizer._remembered)
    authorizer.on_metadata(delta, delta.finish(5, 1))
    assert authorizer._remembered == remembered != {}
