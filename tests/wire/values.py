"""Random values for every codec, found from the codec itself.

Bodies are declared once, as codecs; so their properties are stated once, for all of them.
"""

from enum import IntEnum
from functools import singledispatch
from typing import Any

import msgspec
from hypothesis import strategies as st

from headrace.base.limits import NAME_BYTES_MAX
from headrace.wire import codec as words
from headrace.wire.commands import (
    clients,
    groups,
    internal,
    messages,
    session,
    streams,
    system,
    topics,
)
from headrace.wire.fields import FIELD, Field, FieldKind, make_field
from headrace.wire.identifiers import (
    IDENTIFIER,
    OPTIONAL_PARTITION,
    PARTITIONING,
    STRATEGY,
    Balanced,
    ByKey,
    First,
    FromOffset,
    FromTimestamp,
    Last,
    Next,
    ToPartition,
)
from headrace.wire.options import OPTIONS, Option
from headrace.wire.permissions import ANSWERED_PERMISSIONS, PERMISSIONS, _Chain

Values = st.SearchStrategy[Any]

U32S = st.integers(0, 2**32 - 1)
U64S = st.integers(0, 2**64 - 1)
NAMES = st.text(min_size=1, max_size=60).filter(
    lambda name: 1 <= len(name.encode()) <= NAME_BYTES_MAX
)
IDENTIFIERS = U32S | NAMES
KNOWN_FIELDS = st.one_of(
    st.binary(min_size=1, max_size=255).map(make_field),
    NAMES.map(make_field),
    st.booleans().map(make_field),
    st.integers(-(2**127), 2**128 - 1).map(make_field),
    st.floats(allow_nan=False).map(make_field),
)
FIELDS = KNOWN_FIELDS | st.builds(
    Field, st.integers(max(FieldKind) + 1, 255), st.binary(min_size=1, max_size=255)
)
OPTION_BLOCKS = st.lists(
    st.builds(Option, NAMES, FIELDS), max_size=4, unique_by=lambda option: option.key
).map(tuple)
BYTES = st.binary(max_size=300)


@singledispatch
def values_of(codec: object) -> Values:
    """Give values that the codec can write and read again the same."""
    found: dict[object, Values] = {
        words.F32: st.floats(width=32, allow_nan=False),
        words.FLAG: st.booleans(),
        words.NOTHING: st.none(),
        words.NAME: NAMES,
        words.TEXT: st.text(max_size=40),
        words.REST: BYTES.map(memoryview),
        IDENTIFIER: IDENTIFIERS,
        PARTITIONING: st.one_of(
            st.just(Balanced()),
            st.builds(ToPartition, U32S),
            st.builds(ByKey, st.binary(min_size=1, max_size=255)),
        ),
        STRATEGY: st.one_of(
            st.builds(FromOffset, U64S),
            st.builds(FromTimestamp, U64S),
            st.sampled_from([First(), Last(), Next()]),
        ),
        OPTIONAL_PARTITION: st.none() | U32S,
        FIELD: FIELDS,
        OPTIONS: OPTION_BLOCKS,
        messages.SEND_MESSAGES.request: st.builds(
            messages.SendMessages,
            IDENTIFIERS,
            IDENTIFIERS,
            st.builds(ToPartition, U32S),
            U32S,
            BYTES.map(memoryview),
        ),
        session.LOGIN_PASSWORD.request: registers(),
    }
    if codec in found:
        return found[codec]
    if codec is ANSWERED_PERMISSIONS:
        return st.none() | values_of(PERMISSIONS)
    if isinstance(codec, topics._TopicsCodec):
        return values_of(topics._COUNTED_TOPICS)
    if isinstance(codec, system._LongBytes):
        return BYTES
    if isinstance(codec, session._Context):
        return st.text(max_size=20)
    if isinstance(codec, internal._TokenHash):
        return st.text("0123456789abcdef", min_size=64, max_size=64)
    raise TypeError(f"no values for {codec!r}: add them here")


def registers() -> Values:
    """Give logins that have one reading only; test_session has the others."""
    version = st.builds(session.ClientVersion, U32S, NAMES, NAMES)
    passwords = st.text("abc", min_size=4, max_size=100).map(str.encode)
    password = st.builds(session.PasswordLogin, NAMES, passwords, st.just(""))
    token = st.builds(session.TokenLogin, NAMES.map(str.encode), st.just(""))
    return st.builds(session.Register, version, password) | st.builds(
        session.Register, version, st.none(), token
    )


@values_of.register
def _(codec: words.Number) -> Values:
    return st.integers(0, codec.max)


@values_of.register
def _(codec: words.ShortBytes) -> Values:
    return st.binary(min_size=codec._bytes_min, max_size=255)


@values_of.register(words.Repeated)
@values_of.register(words.Counted)
def _(codec: words.Repeated[Any]) -> Values:
    return st.lists(values_of(codec._item), max_size=3).map(tuple)


@values_of.register(words.Optional)
@values_of.register(words.Maybe)
def _(codec: words.Optional[Any]) -> Values:
    return st.none() | values_of(codec._item)


@values_of.register(words.Sized)
def _(codec: words.Sized[Any]) -> Values:
    return values_of(codec._item)


@values_of.register(words.Enumerated)
def _(codec: words.Enumerated[IntEnum]) -> Values:
    return st.sampled_from(list(codec._members))


@values_of.register(words.Record)
def _(codec: words.Record[Any]) -> Values:
    return st.builds(codec._made, **{name: values_of(field) for name, field in codec._fields})


@values_of.register(words.Headed)
def _(codec: words.Headed[Any, Any]) -> Values:
    def with_items(items: tuple[Any, ...]) -> Values:
        return values_of(codec._head).map(lambda head: codec._made(_counting(head, items), items))

    return st.lists(values_of(codec._item), max_size=3).map(tuple).flatmap(with_items)


@values_of.register(_Chain)
def _(codec: _Chain[Any]) -> Values:
    return st.lists(values_of(codec._item), max_size=3, unique_by=codec._key).map(
        lambda items: tuple(sorted(items, key=codec._key))
    )


COUNTS: dict[type, str] = {
    clients.Client: "groups_count",
    streams.Stream: "topics_count",
    topics.Topic: "partitions_count",
    groups.Group: "members_count",
}


def _counting(head: Any, items: tuple[Any, ...]) -> Any:
    """Give the head with the count that the items call for."""
    return msgspec.structs.replace(head, **{COUNTS[type(head)]: len(items)})
