"""The client for asyncio: `headrace.aio.connect`."""

from headrace.client.aio.client import AsyncClient, connect
from headrace.client.aio.consumer import AsyncConsumer
from headrace.client.aio.producer import AsyncDelivery, AsyncProducer

__all__ = ["AsyncClient", "AsyncConsumer", "AsyncDelivery", "AsyncProducer", "connect"]
