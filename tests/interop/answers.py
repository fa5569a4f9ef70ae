"""How tests look at what the SDK gives: refusals by their words, objects by all their properties.

On binary transports only the code of an error travels, and the SDK puts its own words to it: the
places where names and numbers would stand are empty or 0.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.wire.errors import Code
from tools.record_vectors import plain

WORDS = {
    Code.INVALID_COMMAND: "Invalid command",
    Code.FEATURE_UNAVAILABLE: "Feature is unavailable",
    Code.INVALID_IDENTIFIER: "Invalid identifier",
    Code.RESOURCE_NOT_FOUND: "Resource with key:  was not found.",
    Code.UNAUTHENTICATED: "Unauthenticated",
    Code.UNAUTHORIZED: "Unauthorized",
    Code.INVALID_CREDENTIALS: "Invalid credentials",
    Code.INVALID_USERNAME: "Invalid username",
    Code.INVALID_PASSWORD: "Invalid password",
    Code.USER_ALREADY_EXISTS: "User already exists",
    Code.CANNOT_DELETE_USER: "Cannot delete user with ID: 0",
    Code.CANNOT_CHANGE_PERMISSIONS: "Cannot change permissions for user with ID: 0",
    Code.PERSONAL_ACCESS_TOKEN_ALREADY_EXISTS: (
        "Personal access token:  for user with ID: 0 already exists"
    ),
    Code.INVALID_PERSONAL_ACCESS_TOKEN: "Invalid personal access token",
    Code.STREAM_ID_NOT_FOUND: "Stream with ID: 0 was not found.",
    Code.STREAM_NAME_ALREADY_EXISTS: "Stream with name:  already exists.",
    Code.INVALID_STREAM_NAME: "Invalid stream name",
    Code.INVALID_TOPIC_SIZE: "Max topic size cannot be lower than segment size.",
    Code.TOPIC_ID_NOT_FOUND: "Topic with ID: 0 for stream with ID: 0 was not found.",
    Code.TOPIC_NAME_ALREADY_EXISTS: "Topic with name:  for stream with ID: 0 already exists.",
    Code.INVALID_TOPIC_NAME: "Invalid topic name",
    Code.TOO_MANY_PARTITIONS: "Too many partitions",
    Code.INVALID_PARTITIONS_COUNT: "Invalid partitions count",
    Code.PARTITION_NOT_FOUND: (
        "Partition with ID: 0 for topic with ID: 0 for stream with ID: 0 was not found."
    ),
    Code.CONSUMER_OFFSET_NOT_FOUND: "Consumer offset for consumer with ID: 0 was not found.",
    Code.INVALID_MESSAGE_CHECKSUM: "Invalid message checksum",
    Code.INVALID_BATCH_CHECKSUM: "Invalid batch checksum",
    Code.UNSUPPORTED_OPTION_KEY: "Unsupported option key: ",
    Code.INVALID_OPTION_VALUE: "Invalid option value for key: ",
    Code.INVALID_OFFSET: "Invalid offset: 0",
    Code.CANNOT_APPEND_MESSAGE: "Cannot append message",
    Code.CONSUMER_GROUP_ID_NOT_FOUND: (
        "Consumer group with ID: 0 for topic with ID: 0 was not found."
    ),
    Code.CONSUMER_GROUP_NAME_ALREADY_EXISTS: (
        "Consumer group with name:  for topic with ID: 0 already exists."
    ),
    Code.INVALID_CONSUMER_GROUP_NAME: "Invalid consumer group name",
    Code.CONSUMER_GROUP_MEMBER_NOT_FOUND: (
        "Consumer group member with client ID: 0 for group with ID: 0 for topic with ID: 0"
        " was not found."
    ),
}


@contextmanager
def refused(code: Code) -> Iterator[None]:
    """Expect that the node refuses what is done inside, with this code."""
    with pytest.raises(RuntimeError, match=f"^{re.escape(WORDS[code])}"):
        yield


def told(value: object) -> dict[str, object]:
    """Give all properties of one of the SDK's objects, as plain values."""
    properties = plain(value)
    assert isinstance(properties, dict)
    return properties
