"""Why a batch was refused: one class, one table of reasons, one wording for both kernels.

The native kernel raises this very class with the same five numbers as the twin, so the text of
an error cannot differ between the two.
"""

from enum import IntEnum


class Reason(IntEnum):
    """Why a batch is invalid; the numbers are shared with `_native.c` and never reused."""

    HEADER_TRUNCATED = 1
    BATCH_LENGTH = 2
    BATCH_RESERVED = 3
    MESSAGE_COUNT_RANGE = 4
    MESSAGE_COUNT = 5
    BASE_OFFSET = 6
    PAYLOAD_LENGTH = 7
    USER_HEADERS_LENGTH = 8
    FRAME_LENGTH = 9
    FRAME_CHECKSUM = 10
    FRAME_RESERVED = 11
    OFFSET_DELTA = 12
    # 13 to 16 are retired: they judged the content of user headers, which is opaque.
    TRAILING_BYTES = 17
    BATCH_CHECKSUM = 18
    COLUMN_LENGTH = 19
    COLUMN_OFFSETS = 20
    TIMESTAMP_SPAN = 21
    BATCH_SIZE = 22


_TEXTS = {
    Reason.HEADER_TRUNCATED: "batch header needs {wanted} bytes, {found} left",
    Reason.BATCH_LENGTH: "batch_length {found}, {wanted} bytes there",
    Reason.BATCH_RESERVED: "reserved byte of the batch header is {found}, not {wanted}",
    Reason.MESSAGE_COUNT_RANGE: "message_count {found}, allowed here 1 to {wanted}",
    Reason.MESSAGE_COUNT: "message_count {found}, announced {wanted}",
    Reason.BASE_OFFSET: "base_offset {found}, at most {wanted} for these messages",
    Reason.PAYLOAD_LENGTH: "payload of {found} bytes, allowed 1 to {wanted}",
    Reason.USER_HEADERS_LENGTH: "user headers of {found} bytes, limit {wanted}",
    Reason.FRAME_LENGTH: "payload and user headers of {found} bytes, {wanted} left in the batch",
    Reason.FRAME_CHECKSUM: "frame checksum {found:#018x} stored, {wanted:#018x} computed",
    Reason.FRAME_RESERVED: "reserved field of the frame header is {found}, not {wanted}",
    Reason.OFFSET_DELTA: "offset_delta {found}, expected {wanted}",
    Reason.TRAILING_BYTES: "{found} bytes after the last frame, {wanted} expected",
    Reason.BATCH_CHECKSUM: "batch checksum {found:#018x} stored, {wanted:#018x} computed",
    Reason.COLUMN_LENGTH: "column of {found} bytes, {wanted} expected",
    Reason.COLUMN_OFFSETS: "value offset {found}, limit {wanted}",
    Reason.TIMESTAMP_SPAN: "creation time {found} us after the first, limit {wanted}",
    Reason.BATCH_SIZE: "batch of {found} bytes, limit {wanted}",
}


class BatchError(ValueError):
    """A batch, or columns to build one from, that the kernel refuses.

    Attributes:
        reason: What is wrong.
        frame: Index of the frame within its batch, or -1 when the batch as a whole is at fault.
        position: Byte position of the fault in the buffer given; for `build` and `cut`, in the
            column.
        found: The value that was there.
        wanted: The value, or the limit, it was held against.
    """

    # All five are positional because exceptions are pickled by their positional arguments.
    def __init__(self, reason: int, frame: int, position: int, found: int, wanted: int) -> None:
        super().__init__(reason, frame, position, found, wanted)
        self.reason = Reason(reason)
        self.frame = frame
        self.position = position
        self.found = found
        self.wanted = wanted

    def __str__(self) -> str:
        text = _TEXTS[self.reason].format(found=self.found, wanted=self.wanted)
        place = (
            f"byte {self.position}"
            if self.frame < 0
            else f"frame {self.frame}, byte {self.position}"
        )
        return f"{text} ({place})"
