"""Headrace: a persistent message-streaming platform with Spark built in.

```python
import headrace

with headrace.connect() as client:
    client.send("shop/orders", ["one order"])
```

This module imports nothing of the package, so that no layer imports another by accident: public
names are loaded on first use. Their types are in `__init__.pyi`.
"""

import importlib

__version__ = "0.1.0"

_CLIENT = "headrace.client"
# The public names, and the module that defines each.
_HOMES = {
    "connect": "headrace.client.sync.client",
    **dict.fromkeys(
        (
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
        ),
        _CLIENT,
    ),
}
_MODULES = ("aio",)


def __getattr__(name: str) -> object:
    """Load a public name when it is first used."""
    if name in _MODULES:
        return importlib.import_module(f"headrace.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, *_MODULES])
