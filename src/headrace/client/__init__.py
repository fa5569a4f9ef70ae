"""The SDK: one session without I/O, with a blocking client and a client for asyncio.

Use `headrace.connect` or `headrace.aio.connect`; the types and errors of their clients are exported
here. The asyncio client is loaded on first use: importing asyncio would double the start time of a
terminal command.
"""

import importlib
from typing import TYPE_CHECKING

from headrace.client.calls.messages import Sent
from headrace.client.errors import (
    AlreadyApplied,
    AlreadyExists,
    BufferFull,
    ClientClosed,
    DataDamaged,
    DataLost,
    HeadraceError,
    NotFound,
    NotOwned,
    OffsetsReset,
    ProtocolBroken,
    RefusedByServer,
    Unauthenticated,
    Unauthorized,
    Unavailable,
    Unreadable,
)
from headrace.client.messages import Message, Messages
from headrace.client.produce.batching import Place
from headrace.client.sync.client import Client
from headrace.client.sync.consumer import Consumer
from headrace.client.sync.producer import Producer

if TYPE_CHECKING:
    from headrace.client.aio.client import AsyncClient

__all__ = [
    "AlreadyApplied",
    "AlreadyExists",
    "AsyncClient",
    "BufferFull",
    "Client",
    "ClientClosed",
    "Consumer",
    "DataDamaged",
    "DataLost",
    "HeadraceError",
    "Message",
    "Messages",
    "NotFound",
    "NotOwned",
    "OffsetsReset",
    "Place",
    "Producer",
    "ProtocolBroken",
    "RefusedByServer",
    "Sent",
    "Unauthenticated",
    "Unauthorized",
    "Unavailable",
    "Unreadable",
]


def __getattr__(name: str) -> object:
    """Load the asyncio client when it is first used."""
    if name != "AsyncClient":
        raise AttributeError(f"module 'headrace.client' has no attribute {name!r}")
    return importlib.import_module("headrace.client.aio.client").AsyncClient
