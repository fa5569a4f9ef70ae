"""Clients of whole nodes with names, and the words in which a scenario tells what they are told."""

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from headrace import kernel
from headrace.wire.commands.command import Command
from headrace.wire.commands.messages import (
    RESYNC_PARTITION,
    SEND_MESSAGES,
    Confirmation,
    PolledMessages,
    StoredOffset,
)
from headrace.wire.commands.session import LOGIN_PASSWORD, PasswordLogin, Register, Registered
from headrace.wire.commands.topics import TopicDetails
from headrace.wire.errors import RefusedError
from headrace.wire.evictions import EvictedError
from headrace.wire.identifiers import ToPartition
from headrace.wire.replies import read_answer
from tests.kernel.samples import rows_of_columns
from tests.shard.whole import VERSION, Client, Whole

_NO_BOUND = (1 << 63) - 1
_SHOWN_MAX = 12  # of a payload
_ROWS_MAX = 6  # of a poll, one line each


class Person(Client):
    """One connection of a client, in lockstep; `numbers` holds the request numbers of all."""

    def __init__(self, name: str, node: Whole, client: int, numbers: dict[str, int]) -> None:
        super().__init__(node, client)
        self.name = name
        self._numbers = numbers
        self._nothing = "ok"  # what an empty answer says
        self._read: Callable[[memoryview], Any] | None = None  # the answer that it waits for

    def next_number(self) -> int:
        self._numbers[self.name] = self._numbers.get(self.name, 0) + 1
        return self._numbers[self.name]

    def begin(self, command: Command[Any, Any], request: Any = None) -> None:
        """Ask, and do not wait."""
        self._nothing = "none" if command.name.startswith("get") else "ok"
        self._post(self.make_frame(command, request), command.decode_reply)

    def begin_login(self, user: str, password: str) -> None:
        login = Register(VERSION, password=PasswordLogin(user, password.encode()))
        self.begin(LOGIN_PASSWORD, login)

    def begin_send(self, place: tuple[str, str, int], payloads: list[bytes], number: int) -> None:
        """Send a batch under a request number, and do not wait."""
        stream, topic, partition = place
        to = ToPartition(partition)
        frame = self.send_frame_of(stream, topic, payloads, to=to, number=number)
        self._post(frame, SEND_MESSAGES.decode_reply)

    def _post(self, frame: bytes | bytearray, read: Callable[[memoryview], Any]) -> None:
        assert self._read is None, f"{self.name} waits for an answer"
        self._read = read
        self.post(frame)

    def answers(self) -> Iterator[str]:
        """Yield, as words, the answers that came since the last call."""
        while self.has_answer():
            read, self._read = self._read, None
            try:
                payload = read_answer(self.take())
                assert read is not None, f"{self.name} was answered without a question"
                yield from self._tell(read(payload))
            except RefusedError as error:
                yield f"refused: {error.code} {error.code.name}"
            except EvictedError as error:
                yield f"evicted: {error.reason.name if error.reason else '?'}"

    def _tell(self, answer: Any) -> Iterator[str]:
        match answer:
            case None:
                yield self._nothing
            case Registered():
                self.session = answer.session
                yield "logged in"
            case (Confirmation(), *_):
                yield f"offset {answer[0].base_offset}"
            case StoredOffset():
                yield f"stored {answer.stored_offset}"
            case PolledMessages():
                yield from tell_polled(answer)
            case TopicDetails():
                counts = [each.messages_count for each in answer.partitions]
                yield f"partitions {len(counts)}, messages {sum(counts)}"
            case _:
                yield "ok"


def tell_polled(polled: PolledMessages) -> Iterator[str]:
    """Yield a line for each message, or for each run of them if they are many."""
    if polled.partition_id == RESYNC_PARTITION:
        yield "not yours: synchronize"
    elif not polled.messages_count:
        yield "nothing"
    else:
        rows = rows_of_columns(kernel.columns(polled.batches, 0, _NO_BOUND, True))
        if len(rows) <= _ROWS_MAX:
            yield from (f"{row.offset} {_short(row.message.payload)}" for row in rows)
            return
        runs = groupby(enumerate(rows), lambda each: each[1].offset - each[0])
        for _, run in runs:
            offsets = [row.offset for _, row in run]
            yield f"{offsets[0]} to {offsets[-1]}"


def _short(payload: bytes) -> str:
    text = payload.decode()
    return text if len(text) <= _SHOWN_MAX else f"{text[0]}*{len(text)}"
