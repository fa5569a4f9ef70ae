"""What the groups of a plane must still take: requests, ops of the server, answers of the disk.

Flow: replicate.
"""

from collections import deque
from collections.abc import Callable, Mapping

from headrace.ports.network import Buffer, SendReply
from headrace.vsr.events import GroupEvent, OwnOp, RequestReceived, TailSettled
from headrace.vsr.replica import Replica
from headrace.wire.errors import Code
from headrace.wire.replies import encode_reply
from headrace.wire.requests import RequestHeader


class Inbox:
    """One queue for all groups, in the order in which things came.

    `is_awake` says whether the plane has anything to do at the end of the turn. `refuse` takes the
    reply to a request that came too early.
    """

    __slots__ = ("_groups", "_refuse", "has_begun", "has_ended", "is_awake", "queue")

    def __init__(self, groups: Mapping[int, Replica], refuse: Callable[[SendReply], None]) -> None:
        self._groups = groups
        self._refuse = refuse
        self.queue: deque[tuple[Replica, GroupEvent]] = deque()
        self.has_begun = False  # whether the groups live
        self.has_ended = False  # whether the store is marked as cleanly stopped
        self.is_awake = True

    def put_request(self, replica: Replica, header: RequestHeader, body: Buffer) -> None:
        """Take one request for a group; its effects come with the end of the turn."""
        self.is_awake = True
        if not self.has_begun or self.has_ended:
            # The replica would take what it ordered now for something that the disk remembered;
            # and a store that is marked as cleanly stopped takes no more ops.
            frame = encode_reply(header, b"", status=Code.TRANSIENT_NOT_ACCEPTED)
            self._refuse(SendReply(header.client, frame, ticket=header.ticket))
            return
        assert self._groups[replica.group] is replica, "a request is for a group that is here"
        self.queue.append((replica, RequestReceived(header, body)))

    def propose(self, group: int, event: OwnOp) -> None:
        """Take an op of the server itself; before the groups live it finds no place."""
        if self.has_begun and not self.has_ended:
            self.is_awake = True
            self.queue.append((self._groups[group], event))

    def settle_tail(self, group: int) -> None:
        """Have a group forget that its tail was lost with the power: its log says so now."""
        assert self.has_begun, "only a group that lives has its files judged"
        self.is_awake = True
        self.queue.append((self._groups[group], TailSettled()))

    def hand_back(self, replica: Replica, event: GroupEvent) -> None:
        """Put what a group asked for, unless it is gone or another one has its number."""
        group, groups = replica.group, self._groups
        if group in groups and groups[group] is replica:
            self.is_awake = True
            self.queue.append((replica, event))

    def check(self) -> None:
        """Assert that what was put is taken by the end of the turn, by groups that are here."""
        for replica, _ in self.queue:
            assert self._groups.get(replica.group) is replica, "nothing is put for what is gone"
        if self.queue:
            assert self.is_awake, "what was put is taken by the end of the turn"
            assert self.has_begun, "before the groups live nothing is put"
        assert self.has_begun or not self.has_ended, "only what lived can end"
