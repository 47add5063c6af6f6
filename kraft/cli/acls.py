"""`kraft acls`: lists, adds and removes ACLs, with the options of Kafka's `kafka-acls` (KIP-140, KIP-290).

`new_acls` and `filters_of`, both pure, say what options stand for: each combination of a resource, a principal, a host
and an operation is an ACL.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Annotated, Any, cast

import typer

from kraft.cli.shared.admin_client import AdminClient, raise_for, run_admin
from kraft.cli.shared.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, reflowed
from kraft.cli.shared.output import print_json, print_line, print_rows
from kraft.cli.shared.tables import Rows
from kraft.protocol.api import AclOperation, ResourceType
from kraft.protocol.schemas.acls import (
    ANY,
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
    PatternType,
    PermissionType,
)
from kraft.user_error import EXIT_UNDECIDED, EXIT_USAGE, UserError
from quorum.metadata.acls import CLUSTER_NAME, WILDCARD, Acl, AclFilter

app = typer.Typer(help="ACLs: who may do what, where authorizer.class.name turns the authorizer on.")

ACLS_VERSION = 3
_OPERATIONS = {operation.name.replace("_", "").lower(): operation for operation in AclOperation}
_PATTERNS = {pattern.name.lower(): pattern.value for pattern in PatternType} | {"any": ANY}
_NEW_PATTERNS = ("literal", "prefixed")
_PRODUCER = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
_TRANSACTIONAL = (AclOperation.WRITE, AclOperation.DESCRIBE)
_CONSUMER = (AclOperation.READ, AclOperation.DESCRIBE)


@dataclass
class Named:
    """What the options name."""

    resources: list[tuple[ResourceType, str]] = field(default_factory=list)
    pattern: str = "literal"
    allow_principals: Sequence[str] = ()
    deny_principals: Sequence[str] = ()
    allow_hosts: Sequence[str] = ()
    deny_hosts: Sequence[str] = ()
    operations: Sequence[str] = ()
    producer: bool = False
    consumer: bool = False
    idempotent: bool = False

    @property
    def entries(self) -> Iterator[tuple[str, str, int]]:
        """Principal, host and permission of each combination."""
        for principals, hosts, permission in (
            (self.allow_principals, self.allow_hosts, PermissionType.ALLOW),
            (self.deny_principals, self.deny_hosts, PermissionType.DENY),
        ):
            yield from ((*one, permission.value) for one in product(principals, hosts or (WILDCARD,)))


def parse_operation(text: str) -> AclOperation:
    """An operation as people write it: Read, IdempotentWrite, IDEMPOTENT_WRITE. Raises UserError, wrong usage."""
    operation = _OPERATIONS.get(text.replace("_", "").replace("-", "").lower())
    if operation is None:
        names = ", ".join(one.name.title().replace("_", "") for one in AclOperation)
        raise UserError(f"--operation is one of {names}, not {text!r}", EXIT_USAGE)
    return operation


def _rights(named: Named) -> list[tuple[ResourceType, str, AclOperation]]:
    """Each resource with each operation. Raises UserError."""
    if not (named.producer or named.consumer or named.idempotent):
        operations = [parse_operation(text) for text in named.operations] or [AclOperation.ALL]
        return [(*resource, operation) for resource in named.resources for operation in operations]
    if named.operations or named.deny_principals:
        raise UserError(
            "--producer, --consumer and --idempotent say what is allowed: leave --operation and --deny-principal out",
            EXIT_USAGE,
        )
    kinds = {kind for kind, _ in named.resources}
    if (named.producer or named.consumer) and ResourceType.TOPIC not in kinds:
        raise UserError("--producer and --consumer need a --topic", EXIT_USAGE)
    if named.consumer and ResourceType.GROUP not in kinds:
        raise UserError("--consumer needs a --group", EXIT_USAGE)
    wanted: dict[ResourceType, list[AclOperation]] = {kind: [] for kind in ResourceType}
    if named.producer:
        wanted[ResourceType.TOPIC] += _PRODUCER
        wanted[ResourceType.TRANSACTIONAL_ID] += _TRANSACTIONAL
    if named.consumer:
        wanted[ResourceType.TOPIC] += _CONSUMER
        wanted[ResourceType.GROUP].append(AclOperation.READ)
    rights = [
        (kind, name, operation) for kind, name in named.resources for operation in dict.fromkeys(wanted[kind])
    ]
    if named.idempotent:
        rights.append((ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.IDEMPOTENT_WRITE))
    return rights


def new_acls(named: Named) -> list[Acl]:
    """The ACLs that options stand for. Raises UserError, wrong usage."""
    rights, entries = _rights(named), list(named.entries)
    if not rights:
        raise UserError(
            "name a resource: --topic, --group, --transactional-id, --cluster or --user-principal", EXIT_USAGE
        )
    if not entries:
        raise UserError("name somebody: --allow-principal User:NAME, or --deny-principal", EXIT_USAGE)
    if named.pattern not in _NEW_PATTERNS:
        raise UserError(
            f"a new ACL is {' or '.join(_NEW_PATTERNS)}, not {named.pattern!r}: that is for list and remove",
            EXIT_USAGE,
        )
    return [
        Acl(kind, name, _pattern_of(named, kind), principal, host, operation, permission)
        for kind, name, operation in rights
        for principal, host, permission in entries
    ]


def filters_of(named: Named) -> list[AclFilter]:
    """What names the ACLs that are to be removed. Without a principal those of everybody. Raises UserError."""
    if not named.resources and not named.idempotent and not (named.allow_principals or named.deny_principals):
        raise UserError("name what to remove: a resource, or a principal", EXIT_USAGE)
    entries: list[tuple[str | None, str | None, int]] = [*named.entries] or [(None, None, ANY)]
    rights: list[tuple[int, str | None, int]]
    if named.producer or named.consumer or named.idempotent:
        rights = [*_rights(named)]
    else:
        resources: list[tuple[int, str | None]] = [*named.resources] or [(ANY, None)]
        operations: list[int] = [parse_operation(text) for text in named.operations] or [ANY]
        rights = [(*resource, operation) for resource in resources for operation in operations]
    return [
        AclFilter(
            kind,
            name,
            ANY if name is None else _pattern_of(named, kind),
            principal,
            host,
            operation,
            permission,
        )
        for kind, name, operation in rights
        for principal, host, permission in entries
    ]


def _pattern_of(named: Named, kind: int) -> int:
    """The one cluster has a name, whichever pattern is meant for topics beside it."""
    return PatternType.LITERAL if kind == ResourceType.CLUSTER else pattern_code(named.pattern)


def pattern_code(text: str) -> int:
    """Raises UserError, wrong usage."""
    code = _PATTERNS.get(text.lower())
    if code is None:
        raise UserError(f"--resource-pattern-type is one of {', '.join(_PATTERNS)}, not {text!r}", EXIT_USAGE)
    return code


def acl_document(acl: Acl) -> dict[str, Any]:
    """An ACL with Kafka's names for its codes."""
    return {
        "resource_type": _name(ResourceType, acl.resource_type),
        "resource_name": acl.resource_name,
        "pattern_type": _name(PatternType, acl.pattern_type),
        "principal": acl.principal,
        "host": acl.host,
        "operation": _name(AclOperation, acl.operation),
        "permission_type": _name(PermissionType, acl.permission_type),
    }


def _name(kinds: Any, code: int) -> str:
    """The code itself where a newer broker has one that is not known here."""
    return str(kinds(code).name) if code in [one.value for one in kinds] else str(code)


# -- options

Texts = list[str] | None
Topics = Annotated[Texts, typer.Option("--topic", metavar="NAME", help="A topic; * is every one.")]
Groups = Annotated[Texts, typer.Option("--group", metavar="ID", help="A group; * is every one.")]
Ids = Annotated[
    Texts, typer.Option("--transactional-id", metavar="ID", help="A transactional id; * is every one.")
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Users = Annotated[Texts, typer.Option("--user-principal", metavar="PRINCIPAL", help="A user, as a resource.")]
Pattern = Annotated[
    str,
    typer.Option(
        "--resource-pattern-type",
        metavar="TYPE",
        help="literal, or prefixed: all names that begin so. To list or remove also any, and match: whatever"
        " counts for a resource of that name.",
    ),
]
AllowPrincipals = Annotated[
    Texts,
    typer.Option("--allow-principal", metavar="PRINCIPAL", help="Whom to allow it: User:NAME, or User:*."),
]
DenyPrincipals = Annotated[
    Texts, typer.Option("--deny-principal", metavar="PRINCIPAL", help="Whom to deny it, whatever allows it.")
]
AllowHosts = Annotated[
    Texts, typer.Option("--allow-host", metavar="IP", help="From which addresses they are allowed it; any.")
]
DenyHosts = Annotated[
    Texts, typer.Option("--deny-host", metavar="IP", help="From which addresses they are denied it; any.")
]
Operations = Annotated[
    Texts, typer.Option("--operation", metavar="NAME", help="Read, Write, Describe, …; all without it.")
]
Producer = Annotated[bool, typer.Option("--producer", help="What a producer to --topic needs.")]
Consumer = Annotated[bool, typer.Option("--consumer", help="What a consumer of --topic in --group needs.")]
Idempotent = Annotated[
    bool, typer.Option("--idempotent", help="With --producer: what an old broker's asks for.")
]


def _resources(
    topics: Texts, groups: Texts, ids: Texts, cluster: bool, users: Texts
) -> list[tuple[ResourceType, str]]:
    named = [
        (kind, name)
        for kind, names in (
            (ResourceType.TOPIC, topics),
            (ResourceType.GROUP, groups),
            (ResourceType.TRANSACTIONAL_ID, ids),
            (ResourceType.USER, users),
        )
        for name in names or ()
    ]
    return [*named, (ResourceType.CLUSTER, CLUSTER_NAME)] if cluster else named


# -- commands


@app.command("list")
@reflowed
def list_acls(
    topic: Topics = None,
    group: Groups = None,
    transactional_id: Ids = None,
    cluster: Cluster = False,
    user_principal: Users = None,
    resource_pattern_type: Pattern = "any",
    principal: Annotated[
        Texts, typer.Option("--principal", metavar="PRINCIPAL", help="Those of these principals alone.")
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show the ACLs, all or those of the resources that are named.

    Exit code 0: shown; 1: failed; 2: wrong usage; 3: no broker answers.
    """
    pattern = pattern_code(resource_pattern_type)
    resources: Sequence[tuple[int, str | None]] = _resources(
        topic, group, transactional_id, cluster, user_principal
    ) or [(ANY, None)]
    requests = [
        DescribeAclsRequest(kind, name, pattern, who, None, ANY, ANY)
        for kind, name in resources
        for who in principal or (None,)
    ]

    async def work(admin: AdminClient) -> list[Acl]:
        found: set[Acl] = set()
        for request in requests:
            answer = cast("DescribeAclsResponse", await admin.request(request, version=ACLS_VERSION))
            raise_for(answer.error_code, answer.error_message, "the ACLs cannot be told")
            found |= {
                Acl(
                    about.resource_type,
                    about.resource_name,
                    about.pattern_type,
                    one.principal,
                    one.host,
                    one.operation,
                    one.permission_type,
                )
                for about in answer.resources
                for one in about.acls
            }
        return sorted(found)

    _show(run_admin(bootstrap_server, work, unanswered=EXIT_UNDECIDED), as_json)


def _show(acls: Sequence[Acl], as_json: bool) -> None:
    documents = [acl_document(acl) for acl in acls]
    if as_json:
        print_json({"acls": documents})
        return
    rows = Rows(["RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"])
    for document in documents:
        rows.add(*(text.replace(" ", "\\x20") for text in document.values()))
    print_rows(rows)


@app.command()
@reflowed
def add(
    topic: Topics = None,
    group: Groups = None,
    transactional_id: Ids = None,
    cluster: Cluster = False,
    user_principal: Users = None,
    resource_pattern_type: Pattern = "literal",
    allow_principal: AllowPrincipals = None,
    deny_principal: DenyPrincipals = None,
    allow_host: AllowHosts = None,
    deny_host: DenyHosts = None,
    operation: Operations = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Add ACLs: one for each resource, principal, host and operation. Those that are there already stay.

    Exit code 0: done; 1: refused, or no broker answers; 2: wrong usage; 3: it cannot be told.
    """
    acls = new_acls(
        Named(
            _resources(topic, group, transactional_id, cluster, user_principal),
            resource_pattern_type,
            allow_principal or (),
            deny_principal or (),
            allow_host or (),
            deny_host or (),
            operation or (),
            producer,
            consumer,
            idempotent,
        )
    )
    request = CreateAclsRequest([AclCreation(*acl) for acl in acls])

    async def work(admin: AdminClient) -> CreateAclsResponse:
        return cast("CreateAclsResponse", await admin.request(request, version=ACLS_VERSION))

    for acl, result in zip(acls, run_admin(bootstrap_server, work).results, strict=True):
        sentence = f"an ACL of {acl.principal} on {acl.resource_name} was not added"
        raise_for(result.error_code, result.error_message, sentence, change="the ACLs were added")
    _show(acls, as_json)


@app.command()
@reflowed
def remove(
    topic: Topics = None,
    group: Groups = None,
    transactional_id: Ids = None,
    cluster: Cluster = False,
    user_principal: Users = None,
    resource_pattern_type: Pattern = "literal",
    allow_principal: AllowPrincipals = None,
    deny_principal: DenyPrincipals = None,
    allow_host: AllowHosts = None,
    deny_host: DenyHosts = None,
    operation: Operations = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    force: Annotated[bool, typer.Option("--force", help="Do not ask first.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Remove ACLs: those that `add` adds with the same options or, without a principal, all of the resources named.

    Exit code 0: done, also if there were none; 1: refused, or no broker answers; 2: wrong usage; 3: it cannot be told.
    """
    filters = filters_of(
        Named(
            _resources(topic, group, transactional_id, cluster, user_principal),
            resource_pattern_type,
            allow_principal or (),
            deny_principal or (),
            allow_host or (),
            deny_host or (),
            operation or (),
            producer,
            consumer,
            idempotent,
        )
    )
    if not force:
        _confirm(filters)
    request = DeleteAclsRequest([DeleteAclsFilter(*one) for one in filters])

    async def work(admin: AdminClient) -> DeleteAclsResponse:
        return cast("DeleteAclsResponse", await admin.request(request, version=ACLS_VERSION))

    removed: set[Acl] = set()
    for result in run_admin(bootstrap_server, work).filter_results:
        raise_for(
            result.error_code, result.error_message, "no ACL was removed", change="the ACLs were removed"
        )
        for one in result.matching_acls:
            removed.add(
                Acl(
                    one.resource_type,
                    one.resource_name,
                    one.pattern_type,
                    one.principal,
                    one.host,
                    one.operation,
                    one.permission_type,
                )
            )
    _show(sorted(removed), as_json)
    if not removed and not as_json:
        print_line("there was no such ACL")


def _confirm(filters: Sequence[AclFilter]) -> None:
    """Asks whoever sits there. Raises UserError where nobody does, or the answer is no."""
    if not sys.stdin.isatty():
        raise UserError("nobody can be asked whether to remove these ACLs: add --force", EXIT_USAGE)
    names = sorted({one.resource_name or "all resources" for one in filters})
    if not typer.confirm(f"Remove the ACLs of {', '.join(names)}?"):
        raise UserError("nothing was removed")
