"""Sends one batch directly: for a few messages whose confirmation is awaited."""

import time
from array import array
from collections.abc import Mapping, Sequence

from headrace.client.calls.messages import Sent, send_batch
from headrace.client.calls.names import TopicName
from headrace.client.messages import build_batch, encode_headers, encode_values
from headrace.client.produce.options import MESSAGES_MAX
from headrace.client.produce.routing import Router
from headrace.client.session.call import Call, Flow, ask
from headrace.wire.fields import FieldValue

ROUTERS_MAX = 1000


class Sender:
    """Sends batches, and caches the number of partitions of each topic."""

    def __init__(self) -> None:
        self._routers: dict[TopicName, Router] = {}

    def send(
        self,
        topic: TopicName,
        values: Sequence[bytes | str],
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        headers: Mapping[str, FieldValue] | None = None,
    ) -> Call[Sent] | Flow[Sent]:
        """Return the call that sends messages as one batch, and returns where they were stored.

        If the number of partitions must be requested first, return a flow that does both.

        Raises:
            ValueError: There are no messages or too many, or one is empty or too large.
        """
        if isinstance(values, (str, bytes)) or not 1 <= len(values) <= MESSAGES_MAX:
            raise ValueError(f"values: a list of 1 to {MESSAGES_MAX} messages")
        if key is not None and partition is not None:
            raise ValueError("key: it chooses the partition, so give only one of them")
        now = time.time_ns() // 1000
        payloads = encode_values(values)
        encoded = encode_headers(headers)
        count = len(payloads)
        batch = build_batch(payloads, [encoded] * count, array("Q", [now]) * count)
        if partition is not None:
            return send_batch(topic, partition, batch, count)
        router = self._find_router(topic)
        if router.is_stale:
            return _send_routed(topic, router, key, batch, count)
        return send_batch(topic, _choose(router, key), batch, count)

    def _find_router(self, topic: TopicName) -> Router:
        router = self._routers.get(topic)
        if router is None:
            if len(self._routers) >= ROUTERS_MAX:
                self._routers.clear()
            router = self._routers[topic] = Router(topic)
        return router


def _send_routed(
    topic: TopicName, router: Router, key: bytes | str | None, batch: bytes, count: int
) -> Flow[Sent]:
    yield from router.refresh()
    return (yield from ask(send_batch(topic, _choose(router, key), batch, count)))


def _choose(router: Router, key: bytes | str | None) -> int:
    if key is not None:
        return router.by_key(key)
    router.advance()
    return router.in_turn()
