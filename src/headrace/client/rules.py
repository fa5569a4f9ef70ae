"""The rules for names and passwords, as text for the errors that report a violation.

The server's refusal has only a code, so the client adds the rule.
"""

from headrace.base.limits import (
    NAME_BYTES_MAX,
    PASSWORD_BYTES_MAX,
    TOKEN_NAME_BYTES_MAX,
    TOKEN_NAME_BYTES_MIN,
    USERNAME_BYTES_MAX,
    USERNAME_BYTES_MIN,
)
from headrace.wire.errors import Code


def _rule(bytes_min: int, bytes_max: int) -> str:
    return f"a name has {bytes_min} to {bytes_max} bytes of UTF-8 and no control character"


RULES: dict[Code, str] = {
    Code.INVALID_STREAM_NAME: _rule(1, NAME_BYTES_MAX),
    Code.INVALID_TOPIC_NAME: _rule(1, NAME_BYTES_MAX),
    Code.INVALID_CONSUMER_GROUP_NAME: _rule(1, NAME_BYTES_MAX),
    Code.INVALID_USERNAME: _rule(USERNAME_BYTES_MIN, USERNAME_BYTES_MAX),
    Code.INVALID_PERSONAL_ACCESS_TOKEN_NAME: _rule(TOKEN_NAME_BYTES_MIN, TOKEN_NAME_BYTES_MAX),
    Code.INVALID_PASSWORD: (
        f"a password has at least security.password_min bytes of the node's configuration, at most"
        f" {PASSWORD_BYTES_MAX}, and is not the user's name"
    ),
}
