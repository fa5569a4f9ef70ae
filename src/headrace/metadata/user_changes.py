"""What ops do to users. Each refuses first and changes then.

Passwords arrive as hashes in PHC form; who compares and makes them is the primary, before.

Flow: apply.
"""

from headrace.base.ids import ROOT_USER
from headrace.metadata import resolve
from headrace.metadata.admission import check_no_options
from headrace.metadata.bounds import PERMISSION_ENTRIES_MAX, USERS_MAX
from headrace.metadata.describe import detail_user
from headrace.metadata.grants import make_grants
from headrace.metadata.names import check_username
from headrace.metadata.state import State, User
from headrace.wire.commands.users import (
    CREATE_USER,
    ChangePassword,
    CreateUser,
    DeleteUser,
    UpdatePermissions,
    UpdateUser,
)
from headrace.wire.errors import Code, CorruptError, RefusedError
from headrace.wire.numbers import UserStatus
from headrace.wire.permissions import Permissions
from headrace.wire.replica.prepares import PrepareHeader


def create_user(state: State, header: PrepareHeader, request: CreateUser) -> bytes:
    """Add a user; reply with its details.

    The server itself adds one user only, the first: the root user (O3.7).
    """
    check_no_options(request.options)
    check_username(request.username)
    is_taken = state.users.find(request.username) is not None
    if is_taken or (header.client == 0 and len(state.users)):
        raise RefusedError(Code.USER_ALREADY_EXISTS, username=request.username)
    if len(state.users) >= USERS_MAX:
        raise RefusedError(Code.USERS_LIMIT_REACHED, limit=USERS_MAX)
    _check_permissions(request.permissions)
    password_hash = _read_hash(request.password)
    user = User(
        id=state.user_keys.take(),
        name=request.username,
        created_at=header.timestamp,
        created_op=header.op,
        status=request.status,
        password_hash=password_hash,
        permissions=request.permissions,
        grants=make_grants(request.permissions),
    )
    assert (user.id == ROOT_USER) == (len(state.users) == 0)
    state.users.add(user)
    return CREATE_USER.encode_reply(detail_user(user))


def update_user(state: State, _header: PrepareHeader, request: UpdateUser) -> bytes:
    """Change the name or the status of a user; the root user stays active."""
    user = resolve.user(state, request.user)
    check_no_options(request.options)
    if request.username is not None:
        check_username(request.username)
        if state.users.is_taken(request.username, but_for=user):
            raise RefusedError(Code.USER_ALREADY_EXISTS, username=request.username)
    if user.id == ROOT_USER and request.status == UserStatus.INACTIVE:
        raise RefusedError(Code.INVALID_USER_STATUS, user=user.id)
    if request.username is not None:
        state.users.rename(user, request.username)
    if request.status is not None:
        user.status = request.status
    return b""


def delete_user(state: State, _header: PrepareHeader, request: DeleteUser) -> bytes:
    """Remove a user with its tokens."""
    user = resolve.user(state, request.user)
    if user.id == ROOT_USER:
        raise RefusedError(Code.CANNOT_DELETE_USER, user=user.id)
    for token in user.tokens.values():
        del state.token_owners[token.token_hash]
    state.users.remove(user)
    state.user_keys.give_back(user.id)
    return b""


def update_permissions(state: State, _header: PrepareHeader, request: UpdatePermissions) -> bytes:
    """Replace what a user may do; what root may do cannot be changed."""
    user = resolve.user(state, request.user)
    if user.id == ROOT_USER:
        raise RefusedError(Code.CANNOT_CHANGE_PERMISSIONS, user=user.id)
    _check_permissions(request.permissions)
    user.permit(request.permissions)
    return b""


def change_password(state: State, _header: PrepareHeader, request: ChangePassword) -> bytes:
    """Replace a password, if the one that the primary verified is still the user's."""
    user = resolve.user(state, request.user)
    verified, new = _read_hash(request.current_password), _read_hash(request.new_password)
    if user.password_hash != verified:
        raise RefusedError(Code.INVALID_CREDENTIALS, user=user.id)
    user.password_hash = new
    return b""


def _check_permissions(permissions: Permissions | None) -> None:
    if permissions is None:
        return
    entries = len(permissions.streams) + sum(len(stream.topics) for stream in permissions.streams)
    if entries > PERMISSION_ENTRIES_MAX:
        raise RefusedError(Code.CANNOT_CHANGE_PERMISSIONS, entries=entries)


def _read_hash(data: bytes) -> str:
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise CorruptError("password hash that is not ASCII") from None
