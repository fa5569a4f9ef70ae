"""The answer to a send: where its batch landed."""

import struct

from headrace.base.ids import Namespace

# One entry, as `wire.commands.messages` declares it; packed at once, for every send has one.
_CONFIRMATION = struct.Struct("<IIIIQ")


def confirmation(namespace: Namespace, base_offset: int) -> bytes:
    """Return the body of the reply to a send."""
    stream, topic, partition = namespace
    return _CONFIRMATION.pack(1, stream, topic, partition, base_offset)
