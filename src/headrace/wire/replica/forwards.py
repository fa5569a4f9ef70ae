"""Headers by which a backup forwards a login or a logout to the primary.

Nobody sends them yet: they come with the links between nodes.
"""

from headrace.wire.layout import Header, Layout
from headrace.wire.numbers import FrameKind


class ForwardRegisterHeader(Header, frozen=True):
    """A backup verified a login and asks the primary to propose it."""

    client: int = 0
    nonce: int = 0
    user_id: int = 0


class ForwardRegisterResultHeader(Header, frozen=True):
    """The outcome of a forwarded login."""

    nonce: int = 0
    client: int = 0
    epoch: int = 0
    watermark: int = 0
    outcome: int = 0


class ForwardLogoutHeader(Header, frozen=True):
    """A backup asks the primary to propose a logout."""

    client: int = 0
    nonce: int = 0
    session: int = 0
    request: int = 0


class ForwardLogoutResultHeader(Header, frozen=True):
    """The outcome of a forwarded logout."""

    nonce: int = 0
    client: int = 0
    commit: int = 0
    outcome: int = 0


FORWARD_REGISTER = Layout(
    FrameKind.FORWARD_REGISTER,
    ForwardRegisterHeader,
    reserved_zero=True,
    client=(128, 16),
    nonce=(144, 16),
    user_id=(160, 4),
)
FORWARD_REGISTER_RESULT = Layout(
    FrameKind.FORWARD_REGISTER_RESULT,
    ForwardRegisterResultHeader,
    reserved_zero=True,
    nonce=(128, 16),
    client=(144, 16),
    epoch=(160, 8),
    watermark=(168, 8),
    outcome=(255, 1),
)
FORWARD_LOGOUT = Layout(
    FrameKind.FORWARD_LOGOUT,
    ForwardLogoutHeader,
    reserved_zero=True,
    client=(128, 16),
    nonce=(144, 16),
    session=(160, 8),
    request=(168, 8),
)
FORWARD_LOGOUT_RESULT = Layout(
    FrameKind.FORWARD_LOGOUT_RESULT,
    ForwardLogoutResultHeader,
    reserved_zero=True,
    nonce=(128, 16),
    client=(144, 16),
    commit=(160, 8),
    outcome=(255, 1),
)
