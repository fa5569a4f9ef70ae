"""A producer whose `send` returns at once: a thread sends the batches in order."""

import threading
from collections.abc import Callable, Iterable, Mapping

from headrace.client.base_client import BlockingCaller
from headrace.client.calls.messages import Sent
from headrace.client.calls.names import TopicName, join_topic
from headrace.client.closing import Closable
from headrace.client.errors import BufferFull, ClientClosed, HeadraceError
from headrace.client.messages import encode_headers, encode_value
from headrace.client.produce import unclosed
from headrace.client.produce.batching import (
    Batch,
    Batcher,
    Delivery,
    Place,
    size_of,
)
from headrace.client.produce.options import ProducerSettings
from headrace.client.produce.pieces import cut_values
from headrace.client.produce.routing import Router
from headrace.kernel import NATIVE
from headrace.wire.fields import FieldValue


class SyncDelivery(Delivery):
    """The outcome of one message, now or later."""

    __slots__ = ()

    def wait(self, timeout: float | None = None) -> Place:
        """Wait until the message is confirmed; return where it is stored.

        Raises:
            TimeoutError: It is neither confirmed nor failed after that many seconds.
            HeadraceError: It could not be sent; with `Unavailable` the outcome may be unknown.
        """
        return self.place_in(self.future.result(timeout))


class Producer(Closable, unclosed.FlushedAtExit):
    """Sends messages to one topic in batches, in the order of the calls.

    A batch that is sent again after a lost connection is applied once. Use it in a `with` block:
    the end of the block waits until everything is confirmed, and raises the first failure.

    >>> _ = client.create_stream("shop")
    >>> _ = client.create_topic("shop/orders")
    >>> with client.producer("shop/orders", linger="5 ms") as producer:
    ...     delivery = producer.send("one order", headers={"source": "web"})
    >>> delivery.wait()
    Place(partition=0, offset=0)
    """

    def __init__(
        self,
        client: BlockingCaller,
        topic: TopicName,
        settings: ProducerSettings,
        on_close: Callable[["Producer"], None],
    ) -> None:
        self._batcher: Batcher[SyncDelivery]
        super().__init__(topic, Batcher(settings, Router(topic), SyncDelivery))
        self._client = client
        self._on_close = on_close
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        # A call of the native kernel is one step to other threads, so it needs no lock.
        self._add_plain = self._batcher.add_plain if NATIVE else self._add_plain_locked

    @property
    def confirmed_count(self) -> int:
        """How many messages the server has confirmed."""
        return self._batcher.confirmed_count

    def send(
        self,
        value: bytes | str,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, FieldValue] | None = None,
    ) -> SyncDelivery:
        """Buffer a message to be sent; waits only while the buffer is full.

        Messages with the same key go to one partition, in order; the key itself is not sent.

        Raises:
            BufferFull: There was no room in time; the message was not accepted.
            ValueError: The message is empty or too large.
        """
        if key is None and not headers:
            delivery = self._add_plain(value)
            if delivery is not None:
                return delivery
        payload, encoded = encode_value(value), encode_headers(headers)
        with self._changed:
            self._check_open()
            if self._batcher.must_ask(key):
                self._client.follow(self._batcher.router.refresh())
            size = size_of(payload, encoded)
            if not self._batcher.has_room(size):
                self._wait_room(size)
            delivery = self._batcher.add(payload, encoded, key)
            if self._thread is None:
                self._start()
            # Wake the thread for a first message or a full batch only.
            if delivery.index == 0 or self._batcher.ready:
                self._changed.notify_all()
        return delivery

    def send_many(
        self,
        values: Iterable[bytes | str],
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, FieldValue] | None = None,
    ) -> None:
        """Buffer many messages that share key and headers: much cheaper than one by one.

        Accepts any iterable, and holds no more at a time than the buffer and 1000 messages or 1
        MiB. Failures are raised by `flush` or `close`.

        Raises:
            BufferFull: There was no room in time; the first messages may have been accepted.
            ValueError: A message is empty or too large. Of a sequence nothing was accepted then, of
                another iterable the messages before it were.

        >>> _ = client.create_stream("shop")
        >>> _ = client.create_topic("shop/orders")
        >>> with client.producer("shop/orders") as producer:
        ...     producer.send_many(["one", "two", "three"])
        >>> producer.confirmed_count
        3
        """
        encoded = encode_headers(headers)
        for piece in cut_values(values):
            taken = 0
            while taken < len(piece):
                taken += self._take_some(piece, taken, encoded, key)

    def _take_some(
        self, piece: list[bytes], first: int, headers: bytes, key: bytes | str | None
    ) -> int:
        with self._changed:
            self._check_open()
            if self._batcher.must_ask(key):
                self._client.follow(self._batcher.router.refresh())
            size = size_of(piece[first], headers)
            if not self._batcher.has_room(size):
                self._wait_room(size)
            taken = self._batcher.add_many(piece, first, headers, key)
            if self._thread is None:
                self._start()
            self._changed.notify_all()
        return taken

    def check(self) -> None:
        """Raise the first failure since the last flush or check, without waiting.

        Raises:
            HeadraceError: Something that was sent could not be confirmed.
        """
        with self._changed:
            self._batcher.raise_failure()

    def flush(self) -> None:
        """Send buffered messages, and wait until all earlier messages are confirmed.

        Raises:
            HeadraceError: The first failure since the last flush.
        """
        with self._changed:
            self._batcher.seal_all()
            self._changed.notify_all()
            waiting = self._batcher.unsettled()
        for future in waiting:
            future.exception()
        with self._changed:
            self._batcher.raise_failure()

    def close(self) -> None:
        """Flush, and accept no more messages; raises the first failure."""
        with self._changed:
            if self._is_closed:
                return
            self._stop_taking()
        if self._thread is not None:
            self._thread.join()
        self._on_close(self)
        self._batcher.raise_failure()

    def _end(self, *, is_clean: bool) -> None:
        self.close()

    def _stop_taking(self) -> None:
        self._is_closed = True
        self._batcher.seal_all()
        self._changed.notify_all()

    def _begin_leaving(self) -> None:
        if self._changed.acquire(timeout=unclosed.SECONDS_MAX):
            self._stop_taking()
            self._changed.release()

    def _finish_leaving(self, seconds: float) -> None:
        if self._thread is not None:
            self._thread.join(seconds)

    # Before the thread.

    def _add_plain_locked(self, value: bytes | str) -> SyncDelivery | None:
        with self._changed:
            return self._batcher.add_plain(value)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed(f"the producer of {join_topic(self._topic)!r} is closed")

    def _wait_room(self, size: int) -> None:
        seconds = self._batcher.settings.block_seconds
        if not self._changed.wait_for(lambda: self._has_room(size), seconds):
            raise BufferFull(
                f"{self._batcher.buffered_bytes} bytes wait for {join_topic(self._topic)!r},"
                f" and none was confirmed within {seconds:g} s"
            )
        self._check_open()

    def _has_room(self, size: int) -> bool:
        return self._is_closed or self._batcher.has_room(size)

    # The thread.

    def _start(self) -> None:
        name = f"headrace producer {join_topic(self._topic)}"
        self._thread = threading.Thread(target=self._send_all, name=name, daemon=True)
        self._thread.start()

    def _send_all(self) -> None:
        try:
            while (batch := self._wait_batch()) is not None:
                outcome = self._deliver(batch)
                with self._changed:
                    self._batcher.settle(batch, outcome, is_closing=self._is_closed)
                    self._changed.notify_all()
        finally:
            # Only a bug or the interpreter's exit leaves batches here: no waiter must hang.
            with self._changed:
                self._is_closed = True
                self._batcher.fail_all(ClientClosed("the producer's thread has ended"))
                self._changed.notify_all()

    def _wait_batch(self) -> Batch | None:
        with self._changed:
            while True:
                batch = self._batcher.take()
                if batch is not None:
                    return batch
                if self._is_closed and self._batcher.is_empty:
                    return None
                self._changed.wait(self._batcher.seconds_until_due())

    def _deliver(self, batch: Batch) -> Sent | HeadraceError:
        try:
            if self._batcher.router.is_known and self._batcher.router.is_stale:
                self._client.follow(self._batcher.router.refresh())
            return self._client.ask(batch.make_call(self._topic))
        except HeadraceError as error:
            return error
