"""The client for asyncio: `headrace.aio.connect`."""

from headrace.client.aio import AsyncClient, connect
from headrace.client.aio_consumer import AsyncConsumer
from headrace.client.aio_producer import AsyncDelivery, AsyncProducer

__all__ = ["AsyncClient", "AsyncConsumer", "AsyncDelivery", "AsyncProducer", "connect"]
