"""Which requests of clients a partition has applied: each is applied once (O4.2).

```
client, user -> watermark      highest number applied
                bitmap         which of the 128 numbers below it were applied
                answers        of the last 16: what the original reply is made of
```

A number may stand for several requests: clients of some languages send all that goes to partitions
under one. What is remembered for it is the first; another body is another request, and so is what
came after the answer (marked by the home of its connection), equal or not.

Numbers that one partition sees have gaps, and several may be uncommitted. A number with an answer
is answered again however far below the watermark it lies: a power failure that lost a range, or a
client that sends to many partitions, leaves gaps wider than the window. Any other number below the
window counts as applied: a second apply would be worse than an error.

Invariants: changed at apply only; clients stand in the order of their latest op, so equal tables
            are equal bytes, and a full table drops the one that has been silent longest.
"""

import struct

from headrace.base.checksum import xxh3_64
from headrace.base.ids import GroupId, unpack_namespace
from headrace.base.limits import HEADER_BYTES
from headrace.kernel import BATCH_HEADER_BYTES
from headrace.partitions.confirm import confirmations
from headrace.ports.machine import Verdict
from headrace.ports.network import Buffer
from headrace.ports.probes import Probes
from headrace.wire.batches import admit_batch, decode_batch_header
from headrace.wire.codec import Reader
from headrace.wire.errors import Code, CorruptError, DecodeError, RefusedError
from headrace.wire.numbers import Operation, is_result_framed
from headrace.wire.replica.prepares import PrepareHeader
from headrace.wire.replies import RESULT_OK, encode_committed, encode_rejection, read_rejection
from headrace.wire.requests import RequestHeader

CLIENTS_MAX = 4096
WINDOW = 128
ANSWERS_MAX = 16

_MAGIC = b"HRDEDUP1"
_VERSION = 1
_HEAD = struct.Struct("<8sII16s")  # then the number of clients and the cluster
_CLIENT = struct.Struct("<16sI4xQ16sI4x")  # client, user, watermark, bitmap, answers
# Request, operation, result, op, its timestamp, base offset, base timestamp, checksum of the body.
_ANSWER = struct.Struct("<QIIQQQQQ")
_BATCH_STAMPS = struct.Struct("<8xQQ16xQ")  # of a batch: its offset, its stamp, its checksum
_CHECKSUM_BYTES = 8
_WINDOW_MASK = (1 << WINDOW) - 1

assert WINDOW == 8 * 16, "the bitmap of a client fills its field"
assert ANSWERS_MAX <= WINDOW, "a number with an answer is in the window, unless there was a gap"

_NEW = (Verdict.NEW, b"")
_SEND = int(Operation.SEND_MESSAGES)
_KNOWN = (
    _SEND,
    Operation.STORE_CONSUMER_OFFSET,
    Operation.DELETE_CONSUMER_OFFSET,
    Operation.DELETE_SEGMENTS,
)


class _Client:
    __slots__ = ("answers", "bitmap", "watermark")

    def __init__(self, watermark: int, bitmap: int) -> None:
        self.watermark = watermark
        self.bitmap = bitmap  # bit n: whether the number watermark - 1 - n was applied
        self.answers: dict[int, bytes] = {}  # by number, oldest first

    def is_applied(self, request: int) -> bool:
        """Return whether a number is known to be applied."""
        below = self.watermark - request
        if 0 < below <= WINDOW:
            return bool(self.bitmap >> below - 1 & 1)
        return below == 0 or request in self.answers

    def is_used(self, request: int) -> bool:
        """Return whether a number stands for a request, as far as anybody knows."""
        return self.is_applied(request) or request + WINDOW < self.watermark

    def note(self, request: int) -> None:
        """Remember that a number was applied."""
        above = request - self.watermark
        assert above != 0, "a number is recorded once: consensus refuses to order it twice"
        if above > 0:
            # Far above, all that is known falls out of the window; no shift is ever larger.
            shift = above if above <= WINDOW else WINDOW + 1
            self.bitmap = ((self.bitmap << 1 | 1) << shift - 1) & _WINDOW_MASK
            self.watermark = request
        elif -above <= WINDOW:
            assert not self.bitmap >> -above - 1 & 1, "a number is recorded once"
            self.bitmap |= 1 << -above - 1

    def check(self, commit: int) -> None:
        """Assert that the answers are of applied numbers, in the order of their ops."""
        assert 0 <= self.bitmap <= _WINDOW_MASK, "what falls out of the window is forgotten"
        assert len(self.answers) <= ANSWERS_MAX, "the oldest answer left"
        op_before = 0
        for request, answer in self.answers.items():
            number, _, _, op, *_ = _ANSWER.unpack(answer)
            assert number == request, "an answer is found by its number"
            assert op_before < op <= commit, "answers stand in the order of their ops"
            assert request <= self.watermark, "the watermark is the highest number"
            assert self.is_applied(request), "a number with an answer is applied"
            op_before = op


class DedupTable:
    """The request table of one partition."""

    is_lockstep = False

    def __init__(self, namespace: GroupId, probes: Probes, clients_max: int = CLIENTS_MAX) -> None:
        assert clients_max > 0
        self._namespace = unpack_namespace(namespace)
        self._confirm = confirmations(self._namespace)
        self._probes = probes
        self._clients_max = clients_max
        self._clients: dict[tuple[int, int], _Client] = {}
        self._cluster = 0  # the prepares', for the replies that are made again

    def __len__(self) -> int:
        return len(self._clients)

    # Judging.

    def judge(self, header: RequestHeader, body: Buffer) -> tuple[Verdict, bytes]:
        """Return the verdict on a request; for a replay, with the original reply made again."""
        key = (header.client, header.user_id)
        if key not in self._clients or header.client == 0 or header.is_anew:
            return _NEW
        client = self._clients[key]
        if header.request > client.watermark:
            return _NEW  # The usual case.
        answer = client.answers.get(header.request)
        if answer is not None:
            return self._judge_again(header, body, answer)
        is_used = client.is_used(header.request)
        return (Verdict.ALREADY_APPLIED if is_used else Verdict.NEW), b""

    def _judge_again(
        self, header: RequestHeader, body: Buffer, answer: bytes
    ) -> tuple[Verdict, bytes]:
        number, operation, code, op, timestamp, base_offset, stamp, checksum = _ANSWER.unpack(
            answer
        )
        assert number == header.request, "an answer is found by its number"
        if header.operation != operation or checksum != self._checksum_again(
            header, body, base_offset=base_offset, base_timestamp=stamp
        ):
            return Verdict.ANEW, b""
        payload = b""
        if operation == Operation.SEND_MESSAGES:
            payload = self._confirm(base_offset)
        elif is_result_framed(Operation(operation)):
            payload = encode_rejection(Code.read(code)) if code else RESULT_OK
        prepare = PrepareHeader(
            cluster=self._cluster,
            request_checksum=header.request_checksum,
            client=header.client,
            op=op,
            timestamp=timestamp,
            request=header.request,
            operation=operation,
        )
        return Verdict.REPLAY, encode_committed(prepare, payload)

    def _checksum_again(
        self, header: RequestHeader, body: Buffer, *, base_offset: int, base_timestamp: int
    ) -> int:
        """Return the checksum that a body would have in the log, or 0 if it cannot be in it.

        A batch is stamped again as it was the first time: its checksum covers the stamps.
        """
        if header.operation == Operation.DELETE_SEGMENTS:
            return header.request_checksum
        if header.operation != Operation.SEND_MESSAGES:
            return xxh3_64(body)
        if len(body) < BATCH_HEADER_BYTES:
            return 0
        try:
            return admit_batch(
                bytearray(body),
                decode_batch_header(body).messages_count,
                partition_id=self._namespace.partition,
                base_offset=base_offset,
                base_timestamp=base_timestamp,
            )
        except RefusedError:
            return 0

    def is_applied(self, header: RequestHeader | PrepareHeader) -> bool:
        """Return whether a number is known to be applied, and not said to be used anew."""
        key = (header.client, header.user_id)
        if key not in self._clients or header.is_anew:
            return False
        client = self._clients[key]
        # Above the watermark is the usual case.
        return header.request <= client.watermark and client.is_applied(header.request)

    # Recording.

    def record(self, header: PrepareHeader, body: Buffer, reply: bytes) -> None:
        """Note an applied request of a client; ops of the server itself have none.

        What is remembered for a number stays, whatever comes under it later.
        """
        if header.client == 0 or header.operation not in _KNOWN:
            return
        self._cluster = header.cluster
        key = (header.client, header.user_id)
        clients = self._clients
        if key not in clients:
            client = _Client(header.request, 0)
            if len(clients) >= self._clients_max:
                del clients[next(iter(clients))]
                self._probes.hit("dedup_evictions_total")
            clients[key] = client
        else:
            client = clients[key]
            del clients[key]
            clients[key] = client  # last: its op is the latest
            if header.is_anew and client.is_used(header.request):
                self._probes.hit("dedup.number_used_anew")
                return
            if header.request == client.watermark + 1:  # the usual case of `note`
                client.bitmap = (client.bitmap << 1 | 1) & _WINDOW_MASK
                client.watermark = header.request
            else:
                client.note(header.request)
        assert header.request not in client.answers, "what is remembered for a number stays"
        assert client.watermark >= header.request, "the watermark is the highest number"
        client.answers[header.request] = _answer_of(header, body, reply)
        if len(client.answers) > ANSWERS_MAX:
            del client.answers[next(iter(client.answers))]

    def check(self, commit: int) -> None:
        """Assert the relations of the table between two ops; all ops up to `commit` are applied."""
        assert len(self._clients) <= self._clients_max, "the client that was silent longest left"
        for (client_id, _), client in self._clients.items():
            assert client_id != 0, "ops of the server have no number"
            client.check(commit)

    # Bytes.

    def encode(self) -> bytes:
        """Write the table; equal tables give equal bytes."""
        cluster = self._cluster.to_bytes(16, "little")
        parts = [_HEAD.pack(_MAGIC, _VERSION, len(self._clients), cluster)]
        for (client_id, user_id), client in self._clients.items():
            parts.append(
                _CLIENT.pack(
                    client_id.to_bytes(16, "little"),
                    user_id,
                    client.watermark,
                    client.bitmap.to_bytes(16, "little"),
                    len(client.answers),
                )
            )
            parts += client.answers.values()
        covered = b"".join(parts)
        answers_count = sum(len(client.answers) for client in self._clients.values())
        size = _HEAD.size + len(self._clients) * _CLIENT.size + answers_count * _ANSWER.size
        assert len(covered) == size, "every client is written with all its answers"
        return covered + xxh3_64(covered).to_bytes(_CHECKSUM_BYTES, "little")

    def install(self, data: bytes, commit: int) -> None:
        """Replace the table by one that was written when all ops up to `commit` were applied.

        No bytes at all are an empty table.

        Raises:
            CorruptError: The bytes are damaged, or contradict each other; nothing has changed.
        """
        if not data:
            self._clients, self._cluster = {}, 0
            return
        covered = memoryview(data)[:-_CHECKSUM_BYTES]
        if len(data) < _HEAD.size + _CHECKSUM_BYTES:
            raise CorruptError(f"request table of {len(data)} bytes")
        if xxh3_64(covered) != int.from_bytes(data[-_CHECKSUM_BYTES:], "little"):
            raise CorruptError(f"request table of {len(data)} bytes has a wrong checksum")
        magic, version, count, cluster = _HEAD.unpack_from(covered)
        if magic != _MAGIC or version != _VERSION:
            raise CorruptError(f"request table begins with {magic!r}, version {version}")
        reader = Reader(covered[_HEAD.size :])
        try:
            clients = dict([_read_client(reader, commit) for _ in range(count)])
        except DecodeError as error:
            raise CorruptError(f"request table: {error}") from None
        if reader.remaining or len(clients) != count:
            raise CorruptError(f"request table of {count} clients with bytes left, or one twice")
        if count > self._clients_max:
            raise CorruptError(f"request table of {count} clients, limit {self._clients_max}")
        self._clients = clients
        self._cluster = int.from_bytes(cluster, "little")


def _answer_of(header: PrepareHeader, body: Buffer, reply: bytes) -> bytes:
    """Return the parts of the reply, and the checksum that identifies a retry."""
    base_offset = base_timestamp = code = 0
    if header.operation == _SEND:
        base_offset, base_timestamp, checksum = _BATCH_STAMPS.unpack_from(body)
    else:
        # Up to where segments go is decided anew for a retry: it is known by what was asked for.
        is_resolved = header.operation == Operation.DELETE_SEGMENTS
        checksum = header.request_checksum if is_resolved else xxh3_64(body)
        payload = reply[HEADER_BYTES:]
        if payload[: len(RESULT_OK)] != RESULT_OK[: len(payload)]:
            code = read_rejection(payload)
    return _ANSWER.pack(
        header.request,
        header.operation,
        code,
        header.op,
        header.timestamp,
        base_offset,
        base_timestamp,
        checksum,
    )


def _read_client(reader: Reader, commit: int) -> tuple[tuple[int, int], _Client]:
    client_data, user_id, watermark, bitmap, count = _CLIENT.unpack(reader.take(_CLIENT.size))
    client_id = int.from_bytes(client_data, "little")
    if count > ANSWERS_MAX:
        raise DecodeError(f"{count} answers, limit {ANSWERS_MAX}")
    if client_id == 0:
        raise DecodeError("client 0, whose ops have no number")
    client = _Client(watermark, int.from_bytes(bitmap, "little"))
    op_before = 0
    for _ in range(count):
        answer = bytes(reader.take(_ANSWER.size))
        request, _, _, op, *_ = _ANSWER.unpack(answer)
        if not client.is_used(request) or request in client.answers:
            raise DecodeError(f"an answer to {request}, which is not applied or has one already")
        if not op_before < op <= commit:
            raise DecodeError(f"an answer of op {op} behind op {op_before}, up to op {commit}")
        client.answers[request] = answer
        op_before = op
    return (client_id, user_id), client
