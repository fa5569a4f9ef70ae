"""What ops do to personal access tokens. Each refuses first and changes then.

Flow: apply.
"""

from headrace.metadata import resolve
from headrace.metadata.bounds import TOKENS_PER_USER_MAX
from headrace.metadata.names import check_token_name
from headrace.metadata.state import NEVER, State, Token
from headrace.wire.commands.internal import CreateTokenHashed
from headrace.wire.commands.tokens import EXPIRY_NEVER, DeleteToken
from headrace.wire.errors import Code, RefusedError
from headrace.wire.replica.prepares import PrepareHeader

_TIME_MAX = (1 << 64) - 1


def create_token(state: State, header: PrepareHeader, request: CreateTokenHashed) -> bytes:
    """Add a token of the user who asks, by its hash; only the primary can tell the secret."""
    if header.client != 0 and request.user_id != header.user_id:
        raise RefusedError(Code.UNAUTHORIZED, user=header.user_id, owner=request.user_id)
    user = resolve.user(state, request.user_id)
    check_token_name(request.name)
    if request.name in user.tokens or request.token_hash in state.token_owners:
        raise RefusedError(Code.PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS, name=request.name)
    if len(user.tokens) >= TOKENS_PER_USER_MAX:
        raise RefusedError(Code.PERSONAL_ACCESS_TOKENS_LIMIT_REACHED, limit=TOKENS_PER_USER_MAX)
    token = Token(request.name, request.token_hash, _expires_at(request.expiry, header.timestamp))
    user.tokens[token.name] = token
    state.token_owners[token.token_hash] = user
    return b""


def delete_token(state: State, header: PrepareHeader, request: DeleteToken) -> bytes:
    """Revoke a token of the user who asks."""
    user = resolve.user(state, header.user_id)
    token = user.tokens.get(request.name)
    if token is None:
        raise RefusedError(Code.RESOURCE_NOT_FOUND, token=request.name)
    del user.tokens[token.name]
    del state.token_owners[token.token_hash]
    return b""


def _expires_at(expiry: int, now: int) -> int:
    if expiry in (NEVER, EXPIRY_NEVER):
        return NEVER
    if now + expiry > _TIME_MAX:
        raise RefusedError(Code.INVALID_PERSONAL_ACCESS_TOKEN_EXPIRY, expiry=expiry)
    return now + expiry
