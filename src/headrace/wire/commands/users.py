"""Users, their permissions and passwords."""

import msgspec

from headrace.wire.codec import (
    NAME,
    NOTHING,
    SECRET,
    U8,
    U32,
    U64,
    Enumerated,
    Maybe,
    Optional,
    Record,
    Repeated,
)
from headrace.wire.commands.command import Command
from headrace.wire.identifiers import IDENTIFIER, Identifier
from headrace.wire.numbers import Operation, UserStatus
from headrace.wire.options import OPTIONS, SIZED_OPTIONS, Options
from headrace.wire.permissions import ANSWERED_PERMISSIONS, OPTIONAL_PERMISSIONS, Permissions

_STATUS = Enumerated(U8, UserStatus)


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user as lists show it."""

    id: int
    created_at: int
    status: UserStatus
    username: str
    options: Options = ()


class UserDetails(msgspec.Struct, frozen=True):
    """A user with its permissions; none means no permission at all, unless it is root."""

    user: User
    permissions: Permissions | None


class GetUser(msgspec.Struct, frozen=True):
    """Asks for one user."""

    user: Identifier


class CreateUser(msgspec.Struct, frozen=True, kw_only=True):
    """Adds a user."""

    username: str
    password: bytes
    status: UserStatus
    permissions: Permissions | None = None
    options: Options = ()


class UpdateUser(msgspec.Struct, frozen=True, kw_only=True):
    """Changes the name or the status of a user, whichever is given."""

    user: Identifier
    username: str | None = None
    status: UserStatus | None = None
    options: Options = ()


class DeleteUser(msgspec.Struct, frozen=True):
    """Removes a user."""

    user: Identifier


class UpdatePermissions(msgspec.Struct, frozen=True):
    """Replaces the permissions of a user; none removes them."""

    user: Identifier
    permissions: Permissions | None


class ChangePassword(msgspec.Struct, frozen=True):
    """Replaces the password of a user who knows the current one."""

    user: Identifier
    current_password: bytes
    new_password: bytes


_USER = Record(User, id=U32, created_at=U64, status=_STATUS, username=NAME, options=SIZED_OPTIONS)
_USER_DETAILS = Record(UserDetails, user=_USER, permissions=ANSWERED_PERMISSIONS)

GET_USER = Command(
    31, "get user", Operation.NON_REPLICATED, Record(GetUser, user=IDENTIFIER), Maybe(_USER_DETAILS)
)
GET_USERS = Command(32, "get users", Operation.NON_REPLICATED, NOTHING, Repeated(_USER))
CREATE_USER = Command(
    33,
    "create user",
    Operation.CREATE_USER,
    Record(
        CreateUser,
        username=NAME,
        password=SECRET,
        status=_STATUS,
        permissions=OPTIONAL_PERMISSIONS,
        options=OPTIONS,
    ),
    _USER_DETAILS,
)
DELETE_USER = Command(
    34, "delete user", Operation.DELETE_USER, Record(DeleteUser, user=IDENTIFIER), NOTHING
)
UPDATE_USER = Command(
    35,
    "update user",
    Operation.UPDATE_USER,
    Record(
        UpdateUser,
        user=IDENTIFIER,
        username=Optional(NAME),
        status=Optional(_STATUS),
        options=OPTIONS,
    ),
    NOTHING,
)
UPDATE_PERMISSIONS = Command(
    36,
    "update permissions",
    Operation.UPDATE_PERMISSIONS,
    Record(UpdatePermissions, user=IDENTIFIER, permissions=OPTIONAL_PERMISSIONS),
    NOTHING,
)
CHANGE_PASSWORD = Command(
    37,
    "change password",
    Operation.CHANGE_PASSWORD,
    Record(ChangePassword, user=IDENTIFIER, current_password=SECRET, new_password=SECRET),
    NOTHING,
)

COMMANDS = (
    GET_USER,
    GET_USERS,
    CREATE_USER,
    DELETE_USER,
    UPDATE_USER,
    UPDATE_PERMISSIONS,
    CHANGE_PASSWORD,
)
