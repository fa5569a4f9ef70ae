"""What ops say of the time; every op says some by its stamp.

Flow: apply.
"""

from headrace.metadata.state import State
from headrace.wire.codec import encode
from headrace.wire.commands.clock import ACCEPTED_TIME, AcceptedTime
from headrace.wire.commands.internal import AcceptTime
from headrace.wire.replica.prepares import PrepareHeader


def note_time(state: State, header: PrepareHeader, request: None) -> bytes:
    """Change nothing: the stamp of the op is all that it says."""
    return b""


def accept_time(state: State, header: PrepareHeader, request: AcceptTime) -> bytes:
    """Take what the primary's clock said as committed time, which never falls."""
    state.timestamp = max(state.timestamp, request.clock)
    return encode(ACCEPTED_TIME, AcceptedTime(request.before, request.clock))
