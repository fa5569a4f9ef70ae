"""The client table of a group: sessions, request numbers, and replies that can be repeated.

Only applying committed ops changes it, so every replica has the same (VS-25 to VS-29, O4.1).
"""

from operator import itemgetter, lt

from headrace.base.limits import CLIENT_TABLE_REPLIES_MAX, HEADER_BYTES
from headrace.ports.machine import Verdict
from headrace.ports.network import Buffer
from headrace.wire.errors import CorruptError
from headrace.wire.replica.artifacts import ClientEntry, decode_client_table, encode_client_table
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.replies import REPLY
from headrace.wire.requests import RequestHeader

CLIENTS_MAX = 8192


class _Client:
    __slots__ = (
        "epoch",
        "is_connected",
        "replies",
        "user_id",
        "watermark",
        "watermark_checksum",
    )

    def __init__(self, user_id: int) -> None:
        self.epoch = 0
        self.user_id = user_id
        self.watermark = 0
        self.watermark_checksum = 0
        self.replies: dict[int, bytes] = {}  # by request number, oldest first
        self.is_connected = True

    @property
    def latest_op(self) -> int:
        """The latest op of the client that the table knows."""
        if not self.replies:
            return self.epoch
        return max(self.epoch, REPLY.decode(next(reversed(self.replies.values()))).op)

    def check(self, client_id: int, commit: int) -> None:
        """Assert what holds when all ops up to this one are applied."""
        assert 0 < self.epoch <= commit, "a session is numbered by an applied op"
        assert len(self.replies) <= CLIENT_TABLE_REPLIES_MAX, "replies are bounded"
        assert self.watermark == max(self.replies, default=0), "the last reply is always kept"
        request = op = 0
        for number, frame in self.replies.items():
            reply = REPLY.decode(frame)
            assert reply.client == client_id, "a reply is kept for its client"
            assert reply.request == number, "a reply is kept under its request"
            assert request < number, "requests are answered in their order"
            assert op < reply.op <= commit, "replies stand in the order of their ops"
            request, op = number, reply.op


class ClientTable:
    """The sessions of clients, with their last requests and replies."""

    is_lockstep = True

    def __init__(self, clients_max: int = CLIENTS_MAX) -> None:
        self._clients_max = clients_max
        # In the order of the latest op of each, so that the oldest client comes first.
        self._clients: dict[int, _Client] = {}

    def check(self, commit: int) -> None:
        """Assert what holds when all ops up to this one are applied."""
        assert len(self._clients) <= self._clients_max, "the table is bounded"
        before = 0
        for client_id, client in self._clients.items():
            client.check(client_id, commit)
            assert before < client.latest_op, "clients stand in the order of their latest ops"
            before = client.latest_op

    def judge(self, header: RequestHeader, body: Buffer) -> tuple[Verdict, bytes]:
        """Return the verdict on a request; for a replay, with the reply."""
        client = self._clients.get(header.client)
        if client is None:
            return Verdict.NO_SESSION, b""
        if header.session < client.epoch:
            return Verdict.FENCED, b""
        if header.session > client.epoch:
            return Verdict.UNMINTED, b""
        if header.request > client.watermark:
            return Verdict.NEW, b""
        reply = client.replies.get(header.request)
        if header.request_checksum and _is_another(header, client, reply):
            return Verdict.REUSED, b""
        return (Verdict.ALREADY_APPLIED, b"") if reply is None else (Verdict.REPLAY, reply)

    def is_of_another_user(self, client_id: int, user_id: int) -> bool:
        """Return whether a login would take over somebody else's client id."""
        client = self._clients.get(client_id)
        return client is not None and client.user_id != user_id

    def register(self, header: PrepareHeader) -> bool:
        """Bind a client to a session numbered by this op; return whether there was room.

        Watermark and replies of an earlier session stay, so that a request sent again after a
        reconnect is still known.
        """
        client = self._clients.pop(header.client, None)
        if client is None:
            if len(self._clients) >= self._clients_max and not self._make_room():
                return False
            client = _Client(header.user_id)
        client.epoch = header.op
        client.is_connected = True
        self._clients[header.client] = client
        return True

    def _make_room(self) -> bool:
        """Drop the disconnected client of the oldest op; return whether there was one."""
        gone = (number for number, client in self._clients.items() if not client.is_connected)
        oldest = next(gone, None)
        if oldest is None:
            return False
        del self._clients[oldest]
        return True

    def record(self, header: PrepareHeader, body: Buffer, reply: bytes) -> None:
        """Keep the reply of an applied request."""
        client = self._clients.get(header.client)
        if client is None or header.request <= client.watermark:
            return  # It logged out, or its entry was dropped, while the request was in flight.
        client.watermark = header.request
        client.watermark_checksum = header.request_checksum
        self._clients[header.client] = self._clients.pop(header.client)
        client.replies[header.request] = reply
        if len(client.replies) > CLIENT_TABLE_REPLIES_MAX:
            del client.replies[next(iter(client.replies))]
        assert len(client.replies) <= CLIENT_TABLE_REPLIES_MAX, "replies are bounded"

    def logout(self, client_id: int) -> None:
        """Forget a client."""
        self._clients.pop(client_id, None)

    def disconnect(self, client_id: int) -> None:
        """Mark a client as disconnected; it may come back."""
        client = self._clients.get(client_id)
        if client is not None:
            client.is_connected = False

    def is_connected(self, client_id: int) -> bool:
        """Return whether a client is known and its connection was not lost."""
        client = self._clients.get(client_id)
        return client is not None and client.is_connected

    def connected_clients(self) -> list[int]:
        """Return the clients whose connection was not lost."""
        return [number for number, client in self._clients.items() if client.is_connected]

    def user_of(self, client_id: int) -> int | None:
        """Return the user of a client's session."""
        client = self._clients.get(client_id)
        return None if client is None else client.user_id

    def session_of(self, client_id: int, user_id: int) -> int:
        """Return the session of a user's client, 0 if it has none."""
        client = self._clients.get(client_id)
        return client.epoch if client is not None and client.user_id == user_id else 0

    def is_applied(self, header: RequestHeader | PrepareHeader) -> bool:
        """Return whether an op repeats a request that was applied before."""
        client = self._clients.get(header.client)
        return client is not None and 0 < header.request <= client.watermark

    def encode(self) -> bytes:
        """Write the table; equal tables give equal bytes."""
        return encode_client_table(
            tuple(
                ClientEntry(
                    client=client_id,
                    epoch=client.epoch,
                    user_id=client.user_id,
                    watermark=client.watermark,
                    watermark_checksum=client.watermark_checksum,
                    is_connected=client.is_connected,
                    replies=tuple(client.replies.values()),
                )
                for client_id, client in sorted(self._clients.items())
            )
        )

    def install(self, data: bytes, commit: int) -> None:
        """Replace the table by one that was written when all ops up to `commit` were applied.

        Raises:
            CorruptError: The bytes are damaged, or contradict each other; nothing has changed.
        """
        entries = decode_client_table(data)
        if len(entries) > self._clients_max:
            raise CorruptError(f"client table of {len(entries)} clients, limit {self._clients_max}")
        clients: dict[int, tuple[int, int, _Client]] = {}
        for entry in entries:
            client = _read_client(entry, commit)
            clients[entry.client] = (client.latest_op, entry.client, client)
        in_order = sorted(clients.values(), key=itemgetter(0))
        ops = [op for op, _, _ in in_order]
        if len(clients) != len(entries) or not all(map(lt, ops, ops[1:])):
            raise CorruptError("client table with a client twice, or one op of two clients")
        self._clients = {number: client for _, number, client in in_order}


def _read_client(entry: ClientEntry, commit: int) -> _Client:
    """Take up an entry that was written; an entry that no log can lead to is refused."""
    client = _Client(entry.user_id)
    client.epoch = entry.epoch
    client.watermark = entry.watermark
    client.watermark_checksum = entry.watermark_checksum
    client.is_connected = entry.is_connected
    request = op = 0
    for frame in entry.replies:
        if len(frame) < HEADER_BYTES:
            raise CorruptError(f"client {entry.client} with a reply of {len(frame)} bytes")
        reply = REPLY.decode(frame)
        if reply.client != entry.client or reply.request <= request or not op < reply.op <= commit:
            raise CorruptError(
                f"client {entry.client} with reply {reply.request} of client {reply.client} at op "
                f"{reply.op}, behind reply {request} at op {op} and up to op {commit}"
            )
        request, op = reply.request, reply.op
        client.replies[request] = frame
    if not 0 < entry.epoch <= commit or entry.watermark != request:
        raise CorruptError(
            f"client {entry.client} with session {entry.epoch} and watermark {entry.watermark}, "
            f"its last reply is {request}, the last op {commit}"
        )
    return client


def _is_another(header: RequestHeader, client: _Client, reply: bytes | None) -> bool:
    """Return whether the number was used for a request with other content."""
    checksum = 0
    if header.request == client.watermark:
        checksum = client.watermark_checksum
    elif reply is not None:
        checksum = REPLY.decode(reply).request_checksum
    return checksum not in (0, header.request_checksum)
