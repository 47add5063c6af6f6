"""Changes of the ACLs: CreateAcls and DeleteAcls (KIP-140).

Guarantees: what one request adds, or removes, is committed together. Adding what is there, and naming by several
filters what goes, is no error, as in Kafka. Called by `requests`. (KRaft's AclControlManager.)
"""

from __future__ import annotations

from typing import Final

from quorum.controller.decision import ClusterView, Decision, Unit, decided
from quorum.errors import ControllerError
from quorum.metadata.acls import Acl, acl_problem, filter_problem
from quorum.metadata.records import AccessControlEntry, RemoveAccessControlEntry
from quorum.rpc.messages import (
    AclResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeletedAcls,
)

MAX_REMOVED: Final = 10_000
"""ACLs that one request may remove, as in Kafka, each counted as often as a filter names it."""


def create_acls(view: ClusterView, request: CreateAclsRequest) -> Decision:
    """Adds ACLs."""
    new: dict[Acl, None] = {}
    results = []
    for one in request.acls:
        problem = acl_problem(one)
        if problem is not None:
            results.append(AclResult("INVALID_REQUEST", problem))
            continue
        if one not in view.image.acls:
            new[one] = None
        results.append(AclResult())
    units = [Unit(*map(AccessControlEntry, new))] if new else []
    return decided(CreateAclsResponse(tuple(results)), *units)


def delete_acls(view: ClusterView, request: DeleteAclsRequest) -> Decision:
    """Removes what the filters name. Raises ControllerError POLICY_VIOLATION if that is too much at once."""
    gone: dict[Acl, None] = {}
    results, named = [], 0
    for wanted in request.filters:
        problem = filter_problem(wanted)
        if problem is not None:
            results.append(DeletedAcls(error="INVALID_REQUEST", message=problem))
            continue
        found = sorted(filter(wanted.matches, view.image.acls))
        named += len(found)
        if named > MAX_REMOVED:
            raise ControllerError(
                "POLICY_VIOLATION",
                f"The filters name more than {MAX_REMOVED} ACLs; name fewer, and remove them step by step.",
            )
        gone.update(dict.fromkeys(found))
        results.append(DeletedAcls(tuple(found)))
    units = [Unit(*map(RemoveAccessControlEntry, sorted(gone)))] if gone else []
    return decided(DeleteAclsResponse(tuple(results)), *units)
