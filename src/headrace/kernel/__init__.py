"""The one C file, its pure-Python twin, and the choice between them: the lowest layer.

All code that touches every message of a batch is here: admission, verification, search, slices,
the conversion to and from columns, and the gathering of a producer's batches. The functions are
described in `twin.py`, the classes in `gathering.py`.

Batches are changed and compared in place. The native kernel works on 64 KiB and more without the
interpreter lock, so the caller must not let another thread write to a buffer that is in use here:
the result would then be undefined, though memory stays safe.
"""

from headrace.kernel.errors import BatchError, Reason
from headrace.kernel.layout import (
    BATCH_HEADER_BYTES,
    FRAME_HEADER_BYTES,
    MESSAGE_ID_BYTES,
    OFFSET_MAX,
    PAYLOAD_BYTES_MAX,
    PROOF_ROW_BYTES,
    USER_HEADERS_BYTES_MAX,
    Columns,
    Split,
)
from headrace.kernel.library import check_library

NATIVE: bool
"""Whether the C kernel was built and is used; if not, its Python twin is."""

try:
    from headrace.kernel import _native
except ImportError:
    from headrace.kernel.gathering import Frames, Gatherer, Receipt
    from headrace.kernel.twin import (
        admit,
        build,
        columns,
        cut,
        find_offset,
        find_timestamp,
        fold,
        prove,
        slice_batch,
        split,
        verify,
        xxh3_64,
    )

    NATIVE = False
else:
    check_library(vars(_native))
    from headrace.kernel._native import (
        Frames,
        Gatherer,
        Receipt,
        admit,
        build,
        columns,
        cut,
        find_offset,
        find_timestamp,
        fold,
        prove,
        slice_batch,
        split,
        verify,
        xxh3_64,
    )

    NATIVE = True

__all__ = [
    "BATCH_HEADER_BYTES",
    "FRAME_HEADER_BYTES",
    "MESSAGE_ID_BYTES",
    "NATIVE",
    "OFFSET_MAX",
    "PAYLOAD_BYTES_MAX",
    "PROOF_ROW_BYTES",
    "USER_HEADERS_BYTES_MAX",
    "BatchError",
    "Columns",
    "Frames",
    "Gatherer",
    "Reason",
    "Receipt",
    "Split",
    "admit",
    "build",
    "columns",
    "cut",
    "find_offset",
    "find_timestamp",
    "fold",
    "prove",
    "slice_batch",
    "split",
    "verify",
    "xxh3_64",
]
