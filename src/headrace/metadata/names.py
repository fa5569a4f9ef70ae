"""Which names things may have.

The codec has seen to it that a name is UTF-8 of 1 to 255 bytes. Control characters are refused by
their ranges and not by a table of Unicode: replicas on different Python versions must agree.
"""

import re

from headrace.base.limits import (
    TOKEN_NAME_BYTES_MAX,
    TOKEN_NAME_BYTES_MIN,
    USERNAME_BYTES_MAX,
    USERNAME_BYTES_MIN,
)
from headrace.wire.errors import Code, RefusedError

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def check_name(name: str, code: Code) -> None:
    """Refuse a name of a stream, topic or group that cannot be typed or read.

    Raises:
        RefusedError: It holds a control character.
    """
    if _CONTROL.search(name):
        raise RefusedError(code, name=name)


def check_username(name: str) -> None:
    """Refuse a user name out of its bounds.

    Raises:
        RefusedError: It is too short or too long, or holds a control character.
    """
    check_name(name, Code.INVALID_USERNAME)
    if not USERNAME_BYTES_MIN <= len(name.encode()) <= USERNAME_BYTES_MAX:
        raise RefusedError(Code.INVALID_USERNAME, name=name)


def check_token_name(name: str) -> None:
    """Refuse a token name out of its bounds.

    Raises:
        RefusedError: It is too short or too long, or holds a control character.
    """
    check_name(name, Code.INVALID_PERSONAL_ACCESS_TOKEN_NAME)
    if not TOKEN_NAME_BYTES_MIN <= len(name.encode()) <= TOKEN_NAME_BYTES_MAX:
        raise RefusedError(Code.INVALID_PERSONAL_ACCESS_TOKEN_NAME, name=name)
