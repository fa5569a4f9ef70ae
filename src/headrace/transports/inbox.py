"""Where a transport puts what has arrived: the shard's pump, seen from here."""

from typing import Protocol

from headrace.ports.network import ConnectionClosed, ConnectionOpened, RepliesWritten


class Inbox(Protocol):
    """Gathers what the connections of one loop turn bring; the turn is closed after all of them."""

    def put(self, connection: int, frame: bytearray) -> None:
        """Take a whole frame, which now belongs to the core."""

    def tell(self, event: ConnectionOpened | ConnectionClosed | RepliesWritten) -> None:
        """Take news of a connection: opened before its first frame, closed after its last.

        Or of all together: what was written to them, and what waits.
        """
