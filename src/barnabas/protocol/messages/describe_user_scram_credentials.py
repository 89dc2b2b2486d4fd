"""DescribeUserScramCredentials (50): SCRAM mechanisms of users; never the credentials themselves."""

from __future__ import annotations

from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.schema.fields import array, int8, int16, int32, string
from barnabas.protocol.schema.message import Message


class UserName(Message):
    name: str = string()


class DescribeUserScramCredentialsRequest(Message, api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS):
    # Null or empty asks for all users.
    users: list[UserName] | None = array(UserName, nullable="0+")


class CredentialInfo(Message):
    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Message):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Message, api=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
