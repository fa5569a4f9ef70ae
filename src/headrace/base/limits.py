"""Bounds on everything that comes from outside, and how they relate.

A bound that the protocol fixes says so; the others are ours. The relations are asserted when this
module is imported, so that a changed bound cannot silently break another.
"""

from headrace.kernel import (
    BATCH_HEADER_BYTES,
    FRAME_HEADER_BYTES,
    PAYLOAD_BYTES_MAX,
    USER_HEADERS_BYTES_MAX,
)

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

# Frames. The protocol fixes the header size; the maximum is a setting with this default.
HEADER_BYTES = 256
FRAME_BYTES_MAX = 64 * MIB
FRAME_BYTES_MIN_OF_MAX = 64 * KIB  # a smaller limit could not carry a view-change vote
# Reserve of a journal. Ops that make room may use all of its parts, logins one (O2.10).
RESERVE_PARTS = 2
RESERVE_PARTS_OF_LOGINS = 1

# Text and keys, as the protocol's one-byte lengths allow.
NAME_BYTES_MAX = 255
USERNAME_BYTES_MIN = 3
USERNAME_BYTES_MAX = 50
PASSWORD_BYTES_MIN = 3  # of the protocol; `serve` requires more
PASSWORD_BYTES_MAX = 100
TOKEN_NAME_BYTES_MIN = 3
TOKEN_NAME_BYTES_MAX = 30
MESSAGES_KEY_BYTES_MAX = 255

# Options blocks.
OPTIONS_BYTES_MAX = 100_000
OPTIONS_MAX = 1024
OPTION_FIELD_BYTES_MAX = 255

# Objects.
STREAMS_MAX = 1 << 20
TOPICS_PER_STREAM_MAX = 4096
PARTITIONS_PER_TOPIC_MAX = 1_000_000
PARTITIONS_PER_REQUEST_MAX = 1000

# Topic options.
SEGMENT_BYTES_MIN = MIB
SEGMENT_BYTES_MAX = GIB
SEGMENT_BYTES_STEP = 512
SEGMENT_HEADER_BYTES = 4096
MESSAGES_REQUIRED_TO_SAVE_MAX = 1 << 24
SAVE_BYTES_MAX = GIB
PREALLOCATED_BYTES_MAX = 64 * GIB

# Consensus.
REPLICAS_MAX = 6  # with 7 a replication quorum of 3 could be lost whole (VS-2)
PIPELINE_OPS_MAX = 127  # a view-change vote addresses the uncommitted suffix in 128 bits (VS-5)
VIEW_CHANGE_HEADERS_MAX = PIPELINE_OPS_MAX + 1
# Highest numbers accepted from a peer: a replica counts up from them, and its own must fit too.
VIEW_MAX = (1 << 31) - 1
OP_MAX = (1 << 62) - 1
STAMP_MAX = (1 << 62) - 1
MANIFEST_ENTRIES_MAX = 65_536
CLIENT_TABLE_REPLIES_MAX = 5

assert BATCH_HEADER_BYTES == HEADER_BYTES
assert 0 < RESERVE_PARTS_OF_LOGINS < RESERVE_PARTS
assert FRAME_BYTES_MIN_OF_MAX > HEADER_BYTES + VIEW_CHANGE_HEADERS_MAX * HEADER_BYTES
assert FRAME_BYTES_MIN_OF_MAX <= FRAME_BYTES_MAX < 1 << 32
# The largest message that a client may send fits one frame with its routing (two idents, a key).
assert (
    HEADER_BYTES
    + 4
    + 3 * (2 + NAME_BYTES_MAX)
    + 4
    + BATCH_HEADER_BYTES
    + FRAME_HEADER_BYTES
    + PAYLOAD_BYTES_MAX
    + USER_HEADERS_BYTES_MAX
    <= FRAME_BYTES_MAX
)
assert OPTIONS_BYTES_MAX < FRAME_BYTES_MIN_OF_MAX * 2
assert PARTITIONS_PER_REQUEST_MAX <= PARTITIONS_PER_TOPIC_MAX
assert SEGMENT_BYTES_MIN % SEGMENT_BYTES_STEP == 0
assert SEGMENT_HEADER_BYTES % SEGMENT_BYTES_STEP == 0
