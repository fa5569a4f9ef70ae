"""Recognises a peer of an older protocol by its first bytes: a length and a code, no header.

```
older:  | length u32 | code u32 | body, length - 4 bytes |
ours:   | checksum, 0 | ... a header of 256 bytes         |
```

Clients before protocol 0.11 (the Java SDK up to 0.8.0 among them) wait for an answer that never
comes, because the size of their frame is expected behind the bytes that they have sent.

Flow: decode.
"""

from struct import Struct

from headrace.base.limits import FRAME_BYTES_MAX, HEADER_BYTES
from headrace.wire.codec import Data
from headrace.wire.commands.session import LEGACY_LOGIN_CODES
from headrace.wire.commands.table import COMMANDS
from headrace.wire.numbers import OWN_CODE_MIN
from headrace.wire.versions import PROTOCOL

OLD_START_BYTES = 8
OLD_FRAMING = (
    "it speaks an older framing, length and code without a header; "
    f"this node speaks protocol {PROTOCOL}, whose frames begin with {HEADER_BYTES} bytes of header"
)
_read_start = Struct("<II").unpack_from


def is_old_framing(start: Data) -> bool:
    """Whether a connection that begins with these bytes, at least eight, is of an older protocol.

    A client of ours begins with zeros; one that writes a checksum there, which nobody reads, hits
    both a length and a code once in billions.
    """
    length, code = _read_start(start)
    is_known = code in COMMANDS or code in LEGACY_LOGIN_CODES
    return 4 <= length <= FRAME_BYTES_MAX and is_known and code < OWN_CODE_MIN
