"""Values that no frame can carry are refused where they are written."""

from typing import Any

import pytest

from headrace.wire.codec import Codec, ShortBytes, encode
from headrace.wire.commands.groups import GET_GROUP, Group, GroupDetails
from headrace.wire.commands.internal import CREATE_TOKEN_HASHED, CreateTokenHashed
from headrace.wire.fields import FIELD, Field

ALONE = Group(id=1, partitions_count=1, members_count=1, name="g")


@pytest.mark.parametrize(
    ("codec", "value", "text"),
    [
        (ShortBytes(bytes_min=3), b"ab", "field of 2 bytes, allowed 3 to 255"),
        (ShortBytes(bytes_min=3), bytes(256), "field of 256 bytes"),
        (FIELD, Field(0, b"x"), "kind 0 is not within 1 to 255"),
        (FIELD, Field(256, b"x"), "kind 256"),
        (FIELD, Field(1, b""), "value of 0 bytes"),
        (CREATE_TOKEN_HASHED, CreateTokenHashed(1, "name", 0, "xyz"), "token hash 'xyz'"),
        (GET_GROUP.reply, GroupDetails(ALONE, ()), "0 values behind a count of 1"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(codec: Codec[Any], value: object, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        encode(codec, value)
