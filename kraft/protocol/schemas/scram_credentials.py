"""DescribeUserScramCredentials (50) and AlterUserScramCredentials (51): users that authenticate by SCRAM (KIP-554).

A client salts and hashes a password itself: brokers never see it. Mechanisms are 1 (SHA-256) and 2 (SHA-512).
"""

from __future__ import annotations

from typing import ClassVar

from kraft.protocol.api import ApiKey
from kraft.protocol.schema import Message, array, binary, int8, int16, int32, message, sentence, string


@message
class UserName(Message):
    name: str = string("0+")


@message
class DescribeUserScramCredentialsRequest(Message):
    """None or no user asks for all."""

    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS

    users: list[UserName] | None = array(UserName, "0+", nullable="0+")


@message
class CredentialInfo(Message):
    mechanism: int = int8("0+")
    iterations: int = int32("0+")


@message
class DescribeUserScramCredentialsResult(Message):
    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = sentence("0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo, "0+")


@message
class DescribeUserScramCredentialsResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = sentence("0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult, "0+")


@message
class ScramCredentialDeletion(Message):
    name: str = string("0+")
    mechanism: int = int8("0+")


@message
class ScramCredentialUpsertion(Message):
    """`salted_password` is what RFC 5802 calls SaltedPassword: as good as the password."""

    name: str = string("0+")
    mechanism: int = int8("0+")
    iterations: int = int32("0+")
    salt: bytes = binary("0+")
    salted_password: bytes = binary("0+")


@message
class AlterUserScramCredentialsRequest(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.ALTER_USER_SCRAM_CREDENTIALS

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion, "0+")
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion, "0+")


@message
class AlterUserScramCredentialsResult(Message):
    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = sentence("0+")


@message
class AlterUserScramCredentialsResponse(Message):
    API_KEY: ClassVar[ApiKey] = ApiKey.ALTER_USER_SCRAM_CREDENTIALS

    throttle_time_ms: int = int32("0+")
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult, "0+")
