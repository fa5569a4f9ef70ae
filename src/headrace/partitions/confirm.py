"""The answer to a send: where its batch landed."""

import struct
from collections.abc import Callable
from functools import partial

from headrace.base.ids import Namespace

# One entry, as `wire.commands.messages` declares it; packed at once, for every send has one.
_CONFIRMATION = struct.Struct("<IIIIQ")


def confirmations(namespace: Namespace) -> Callable[[int], bytes]:
    """Return what makes the body of the reply to a send to a partition, of its first offset."""
    return partial(_CONFIRMATION.pack, 1, *namespace)
