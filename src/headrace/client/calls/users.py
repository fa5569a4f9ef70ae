"""Users, their permissions and passwords, and personal access tokens."""

from headrace.base.secret import Secret
from headrace.base.units import parse_duration
from headrace.client.session.call import Call, make_call, make_get
from headrace.wire.commands import tokens, users
from headrace.wire.commands.tokens import EXPIRY_NEVER, Token
from headrace.wire.commands.users import User, UserDetails
from headrace.wire.errors import Code
from headrace.wire.identifiers import Identifier
from headrace.wire.numbers import UserStatus
from headrace.wire.permissions import Permissions


def create_user(
    username: str,
    password: str,
    *,
    permissions: Permissions | None = None,
    status: UserStatus = UserStatus.ACTIVE,
) -> Call[UserDetails]:
    """Add a user; without permissions the user can only log in.

    >>> client.create_user("ada", "correct horse battery").user.username
    'ada'
    """
    request = users.CreateUser(
        username=username,
        password=Secret(password.encode()),
        status=status,
        permissions=permissions,
    )
    return make_call(users.CREATE_USER, request, username)


def get_user(user: Identifier) -> Call[UserDetails]:
    """Return a user and its permissions; `NotFound` if it does not exist.

    >>> client.get_user("iggy").user.id
    0
    """
    return make_get(users.GET_USER, users.GetUser(user), user, Code.RESOURCE_NOT_FOUND)


def get_users() -> Call[tuple[User, ...]]:
    """Return all users.

    >>> [user.username for user in client.get_users()]
    ['iggy']
    """
    return make_call(users.GET_USERS, None)


def update_user(
    user: Identifier, *, username: str | None = None, status: UserStatus | None = None
) -> Call[None]:
    """Change the name or the status of a user.

    >>> _ = client.create_user("ada", "correct horse battery")
    >>> client.update_user("ada", username="grace")
    """
    request = users.UpdateUser(user=user, username=username, status=status)
    return make_call(users.UPDATE_USER, request, user)


def delete_user(user: Identifier) -> Call[None]:
    """Remove a user.

    >>> _ = client.create_user("ada", "correct horse battery")
    >>> client.delete_user("ada")
    """
    return make_call(users.DELETE_USER, users.DeleteUser(user), user)


def update_permissions(user: Identifier, permissions: Permissions | None) -> Call[None]:
    """Replace the permissions of a user; None removes them all.

    >>> from headrace.wire.permissions import GlobalPermissions, Permissions
    >>> _ = client.create_user("ada", "correct horse battery")
    >>> reader = Permissions(everywhere=GlobalPermissions(read_streams=True))
    >>> client.update_permissions("ada", reader)
    """
    request = users.UpdatePermissions(user, permissions)
    return make_call(users.UPDATE_PERMISSIONS, request, user)


def change_password(user: Identifier, *, current: str, new: str) -> Call[None]:
    """Replace the password of a user.

    >>> _ = client.create_user("ada", "correct horse battery")
    >>> client.change_password("ada", current="correct horse battery", new="staple staple staple")
    """
    request = users.ChangePassword(user, Secret(current.encode()), Secret(new.encode()))
    return make_call(users.CHANGE_PASSWORD, request, user)


def create_token(name: str, *, expiry: str | None = None) -> Call[str]:
    """Create a personal access token and return its secret, which is never shown again.

    `expiry` is its lifetime, such as `"30 days"`; without it the token never expires.

    >>> secret = client.create_token("laptop", expiry="30 days")
    >>> len(secret) > 20
    True
    """
    micros = EXPIRY_NEVER if expiry is None else parse_duration(expiry)
    call = make_call(tokens.CREATE_TOKEN, tokens.CreateToken(name, micros), name)
    return Call(call.command, call.body, lambda payload: call.read(payload).token, call.asked)


def get_tokens() -> Call[tuple[Token, ...]]:
    """Return the personal access tokens of this user, without their secrets.

    >>> _ = client.create_token("laptop")
    >>> [token.name for token in client.get_tokens()]
    ['laptop']
    """
    return make_call(tokens.GET_TOKENS, None)


def delete_token(name: str) -> Call[None]:
    """Revoke a personal access token.

    >>> _ = client.create_token("laptop")
    >>> client.delete_token("laptop")
    """
    return make_call(tokens.DELETE_TOKEN, tokens.DeleteToken(name), name)
