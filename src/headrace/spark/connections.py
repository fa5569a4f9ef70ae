"""One client for each server and process: a login costs more than a small read.

Spark keeps its Python processes for many tasks and batches. A client makes a lost connection again
by itself, so it stays until its process ends.
"""

import os
import threading
from dataclasses import replace

from headrace.client import Client
from headrace.client.session.settings import Settings

_lock = threading.Lock()
_clients: dict[tuple[int, Settings], Client] = {}


def client_of(settings: Settings, *, is_later: bool = False) -> Client:
    """Give this process's client of a server, logged in.

    A server that nobody has seen is waited for as the settings say. Where one has answered before,
    as it has when a task runs (`is_later`), it is waited for as by a client that has lost it.

    Raises:
        Unavailable: The server cannot be reached.
        Unauthenticated: The credentials are wrong.
    """
    key = (os.getpid(), settings)  # A forked process must not use its parent's.
    with _lock:
        client = _clients.get(key)
        if client is None:
            least = settings.timeout_seconds if is_later else 0.0
            client = Client(replace(settings, wait_seconds=max(settings.wait_seconds, least)))
            client.open()
            _clients[key] = client
        return client


def close_clients() -> None:
    """Close every client of this process; the next one who asks gets a new one."""
    with _lock:
        own = [key for key in _clients if key[0] == os.getpid()]
        clients = [_clients.pop(key) for key in own]
    for client in clients:
        client.close()
