"""The interface through which a transport passes received frames to the shard's pump."""

from typing import Protocol

from headrace.ports.network import ConnectionClosed, ConnectionOpened, RepliesWritten


class Inbox(Protocol):
    """Collects the input of all connections in one loop turn, which is closed after all of them."""

    def put(self, connection: int, frame: bytearray) -> None:
        """Accept a whole frame, which now belongs to the core."""

    def tell(self, event: ConnectionOpened | ConnectionClosed | RepliesWritten) -> None:
        """Accept an event of a connection: opened before its first frame, closed after its last.

        Or of all connections together: what was written to them, and what waits.
        """
