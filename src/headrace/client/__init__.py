"""The SDK: one sans-IO session with a sync and an async face.

`headrace.connect` and `headrace.aio.connect` are the ways in; what they give, take and raise is
named here. The async face is loaded when it is asked for: asyncio would double the time in which a
command of the terminal starts.
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
    """Load the async face when it is first used."""
    if name != "AsyncClient":
        raise AttributeError(f"module 'headrace.client' has no attribute {name!r}")
    return importlib.import_module("headrace.client.aio.client").AsyncClient
