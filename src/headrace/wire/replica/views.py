"""Headers by which a group agrees on a view, and by which a restarted replica asks for it."""

from headrace.wire.layout import Header, Layout
from headrace.wire.numbers import FrameKind


class StartViewChangeHeader(Header, frozen=True):
    """Suspects the primary."""

    group: int = 0


class DoViewChangeHeader(Header, frozen=True):
    """A vote for a view; its body is the suffix of prepare headers, newest first."""

    op: int = 0
    commit: int = 0
    group: int = 0
    log_view: int = 0
    is_suspect: int = 0  # its log may have lost acknowledged ops, so its shortness proves nothing
    nack_bitset: int = 0
    present_bitset: int = 0


class StartViewHeader(Header, frozen=True):
    """Announces a view; body as in a vote, maybe empty."""

    op: int = 0
    commit: int = 0
    group: int = 0
    incarnation: int = 0


class RequestStartViewHeader(Header, frozen=True):
    """A restarted replica asks for the current view; a wiped one, for reports of all."""

    group: int = 0
    is_wiped: int = 0
    incarnation: int = 0


class RecoveryReportHeader(Header, frozen=True):
    """A replica in normal status reports the commit point of its group to a wiped one."""

    group: int = 0
    commit: int = 0
    incarnation: int = 0


START_VIEW_CHANGE = Layout(FrameKind.START_VIEW_CHANGE, StartViewChangeHeader, group=(128, 8))
DO_VIEW_CHANGE = Layout(
    FrameKind.DO_VIEW_CHANGE,
    DoViewChangeHeader,
    op=(128, 8),
    commit=(136, 8),
    group=(144, 8),
    log_view=(152, 4),
    is_suspect=(156, 1),
    nack_bitset=(224, 16),
    present_bitset=(240, 16),
)
START_VIEW = Layout(
    FrameKind.START_VIEW,
    StartViewHeader,
    op=(128, 8),
    commit=(136, 8),
    group=(144, 8),
    incarnation=(240, 16),
)
REQUEST_START_VIEW = Layout(
    FrameKind.REQUEST_START_VIEW,
    RequestStartViewHeader,
    group=(128, 8),
    is_wiped=(136, 1),
    incarnation=(240, 16),
)
RECOVERY_REPORT = Layout(
    FrameKind.RECOVERY_REPORT,
    RecoveryReportHeader,
    reserved_zero=True,
    group=(128, 8),
    commit=(136, 8),
    incarnation=(240, 16),
)
