"""Bounds on what metadata holds, beyond those that the wire has."""

from headrace.base.limits import FRAME_BYTES_MAX

USERS_MAX = 1 << 16
TOKENS_PER_USER_MAX = 100
PERMISSION_ENTRIES_MAX = 1 << 16  # streams and topics that one user's permissions name
GROUPS_PER_TOPIC_MAX = 4096
# Retention leaves each partition room for the largest segment that a batch can make (messages may
# be appended to a segment as long as it is below its size).
RETAINED_BYTES_ABOVE_SEGMENT = FRAME_BYTES_MAX

assert USERS_MAX < 1 << 32
assert GROUPS_PER_TOPIC_MAX < 1 << 32
