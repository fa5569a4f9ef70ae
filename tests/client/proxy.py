"""A proxy between a client and a node that loses answers and cuts connections, by a seed.

```
before   the request is cut off before the node has it whole
after    the node has the request, and the connection is cut before the answer
half     the connection is cut in the middle of the answer
swallow  the answer is lost, and the connection stays
```
"""

import random
import socket
import threading
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal

from headrace.base.endpoints import Endpoint
from headrace.wire.frames import FrameCutter
from headrace.wire.numbers import Operation
from headrace.wire.requests import REQUEST

Fault = Literal["before", "after", "half", "swallow"]
_OPERATION_AT = REQUEST.at("operation")
_PIECE_BYTES = 1 << 16


@dataclass
class Plan:
    """What happens to requests of some operations, decided by a seed; others, logins say, pass."""

    seed: int
    chance: float
    kinds: Sequence[Fault]
    operations: Container[int] = (Operation.SEND_MESSAGES,)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._lock = threading.Lock()
        self.faults: Counter[Fault] = Counter()
        self.requests = 0
        self.is_on = True

    def decide(self, frame: memoryview) -> Fault | None:
        if frame[_OPERATION_AT] not in self.operations:
            return None
        with self._lock:
            self.requests += 1
            if not self.is_on or self._random.random() >= self.chance:
                return None
            fault = self._random.choice(self.kinds)
            self.faults[fault] += 1
            return fault


@contextmanager
def faulty_proxy(node: Endpoint, plan: Plan) -> Iterator[Endpoint]:
    """Give the address of a proxy to the node; it is gone at the end."""
    listener = socket.create_server(("127.0.0.1", 0))
    pairs: list[tuple[socket.socket, socket.socket]] = []
    threads: list[threading.Thread] = []

    def accept() -> None:
        with suppress(OSError):  # The listener is closed at the end.
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(node)
                pairs.append((near, far))
                thread = threading.Thread(target=_serve, args=(near, far, plan), daemon=True)
                threads.append(thread)
                thread.start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield Endpoint(*listener.getsockname())
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for pair in pairs:
            for each in pair:
                _cut(each)
        for thread in threads:
            thread.join()


def _serve(near: socket.socket, far: socket.socket, plan: Plan) -> None:
    """Carry one connection, a request and its answer at a time: clients are lockstep."""
    requests, answers = FrameCutter(), FrameCutter()
    with near, far, suppress(OSError):
        while piece := near.recv(_PIECE_BYTES):
            for frame in requests.feed(piece):
                if not _carry(near, far, answers, bytes(frame), plan):
                    return


def _carry(
    near: socket.socket, far: socket.socket, answers: FrameCutter, request: bytes, plan: Plan
) -> bool:
    """Carry one request and its answer; give whether the connection lives on."""
    fault = plan.decide(memoryview(request))
    if fault == "before":
        far.sendall(request[: len(request) // 2])
        return False
    far.sendall(request)
    answer = _take(far, answers)
    if fault == "after" or answer is None:
        return False
    if fault == "half":
        near.sendall(answer[: len(answer) // 2])
        return False
    if fault != "swallow":
        near.sendall(answer)
    return True


def _take(far: socket.socket, answers: FrameCutter) -> bytes | None:
    while piece := far.recv(_PIECE_BYTES):
        for frame in answers.feed(piece):
            return bytes(frame)
    return None


def _cut(link: socket.socket) -> None:
    with suppress(OSError):  # It may be closed already.
        link.shutdown(socket.SHUT_RDWR)
