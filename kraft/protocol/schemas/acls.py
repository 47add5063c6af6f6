"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31): who may do what (KIP-140, KIP-290).

Codes are those of Kafka's ResourceType, PatternType, AclOperation and AclPermissionType.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import Message, array, int8, int16, int32, message, sentence, string

ANY = 1
"""In a filter: whatever resource type, pattern type, operation or permission type there is."""


class PatternType(IntEnum):
    """How an ACL's name stands for resources. MATCH, in filters alone: whichever counts for a resource so named."""

    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class PermissionType(IntEnum):
    """Whether an ACL forbids or permits."""

    DENY = 2
    ALLOW = 3


@message
class DescribeAclsRequest(Message):
    """A filter; None stands for every name, principal or host."""

    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_ACLS

    resource_type_filter: int = int8("1+")
    resource_name_filter: str | None = string("1+", nullable="1+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string("1+", nullable="1+")
    host_filter: str | None = string("1+", nullable="1+")
    operation: int = int8("1+")
    permission_type: int = int8("1+")


@message
class AclDescription(Message):
    principal: str = string("1+")
    host: str = string("1+")
    operation: int = int8("1+")
    permission_type: int = int8("1+")


@message
class DescribeAclsResource(Message):
    resource_type: int = int8("1+")
    resource_name: str = string("1+")
    pattern_type: int = int8("1+", default=3)
    acls: list[AclDescription] = array(AclDescription, "1+")


@message
class DescribeAclsResponse(Message):
    """The ACLs that the filter names, by what they are about."""

    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_ACLS

    throttle_time_ms: int = int32("1+")
    error_code: int = int16("1+")
    error_message: str | None = sentence("1+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource, "1+")


@message
class AclCreation(Message):
    resource_type: int = int8("1+")
    resource_name: str = string("1+")
    resource_pattern_type: int = int8("1+", default=3)
    principal: str = string("1+")
    host: str = string("1+")
    operation: int = int8("1+")
    permission_type: int = int8("1+")


@message
class CreateAclsRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.CREATE_ACLS

    creations: list[AclCreation] = array(AclCreation, "1+")


@message
class AclCreationResult(Message):
    error_code: int = int16("1+")
    error_message: str | None = sentence("1+")


@message
class CreateAclsResponse(Message):
    """A result for each creation, in order."""

    API_KEY: ClassVar[ApiKey] = ApiKey.CREATE_ACLS

    throttle_time_ms: int = int32("1+")
    results: list[AclCreationResult] = array(AclCreationResult, "1+")


@message
class DeleteAclsFilter(Message):
    resource_type_filter: int = int8("1+")
    resource_name_filter: str | None = string("1+", nullable="1+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string("1+", nullable="1+")
    host_filter: str | None = string("1+", nullable="1+")
    operation: int = int8("1+")
    permission_type: int = int8("1+")


@message
class DeleteAclsRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DELETE_ACLS

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter, "1+")


@message
class DeleteAclsMatchingAcl(Message):
    error_code: int = int16("1+")
    error_message: str | None = sentence("1+")
    resource_type: int = int8("1+")
    resource_name: str = string("1+")
    pattern_type: int = int8("1+", default=3)
    principal: str = string("1+")
    host: str = string("1+")
    operation: int = int8("1+")
    permission_type: int = int8("1+")


@message
class DeleteAclsFilterResult(Message):
    error_code: int = int16("1+")
    error_message: str | None = sentence("1+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl, "1+")


@message
class DeleteAclsResponse(Message):
    """A result for each filter, in order."""

    API_KEY: ClassVar[ApiKey] = ApiKey.DELETE_ACLS

    throttle_time_ms: int = int32("1+")
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult, "1+")
