"""One client per server and process: a login costs more than a small read.

Spark keeps its Python processes for many tasks and batches. A client reopens a lost connection
itself, so it stays until its process ends.
"""

import os
import threading
from dataclasses import replace

from headrace.client import Client
from headrace.client.session.settings import Settings

_lock = threading.Lock()
_clients: dict[tuple[int, Settings], Client] = {}


def client_of(settings: Settings, *, is_later: bool = False) -> Client:
    """Return this process's client of a server, logged in.

    For a server that never answered, the settings say how long to wait. If it has answered before,
    as it has when a task runs (`is_later`), the client waits as after a lost connection.

    Raises:
        Unavailable: The server cannot be reached.
        Unauthenticated: The credentials are wrong.
    """
    key = (os.getpid(), settings)  # A forked process must not use its parent's client.
    with _lock:
        client = _clients.get(key)
        if client is None:
            least = settings.timeout_seconds if is_later else 0.0
            client = Client(replace(settings, wait_seconds=max(settings.wait_seconds, least)))
            client.open()
            _clients[key] = client
        return client


def close_clients() -> None:
    """Close every client of this process; the next request opens a new one."""
    with _lock:
        own = [key for key in _clients if key[0] == os.getpid()]
        clients = [_clients.pop(key) for key in own]
    for client in clients:
        client.close()
