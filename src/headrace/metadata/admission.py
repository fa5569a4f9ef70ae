"""What the primary does to a request before it is proposed: refuse early, and fill in defaults.

A default depends on a server's configuration and so must be in the op: apply branches on nothing
local (MD-7). Everything here is a function of request and defaults alone.
"""

import msgspec

from headrace.base.limits import (
    GIB,
    MIB,
    PARTITIONS_PER_REQUEST_MAX,
    PASSWORD_BYTES_MAX,
    PREALLOCATED_BYTES_MAX,
)
from headrace.metadata.settings import (
    DURABILITY,
    ENFORCE_FSYNC,
    MAX_TOPIC_SIZE,
    MESSAGE_EXPIRY,
    OFFSET_DURABILITY,
    PERSISTED,
    REPLICATED,
    RETENTION_CONSUMERS,
    SEGMENT_SIZE,
    TopicSettings,
    read_settings,
)
from headrace.wire.commands.internal import CreateTopicWithAssignments
from headrace.wire.commands.system import OptionSpec
from headrace.wire.commands.topics import CreateTopic, UpdateTopic
from headrace.wire.errors import Code, RefusedError
from headrace.wire.fields import Field, FieldValue, make_field
from headrace.wire.numbers import OptionsScope
from headrace.wire.options import Options, make_options
from headrace.wire.topic_options import (
    SERVER_DEFAULT,
    SERVER_DEFAULT_WORD,
    TOPIC_OPTIONS,
    UNLIMITED,
    canonical_option,
)

_DEFAULT_BY_ZERO = (MESSAGE_EXPIRY, MAX_TOPIC_SIZE, SEGMENT_SIZE)
_LISTED = {key: option for key, option in TOPIC_OPTIONS.items() if option.is_listed}
_DURABILITIES = (DURABILITY, OFFSET_DURABILITY)


class TopicDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """What a topic gets whose creator does not say; fields are named as the options are.

    `durability_minimum` strengthens both classes of durability and never weakens one: clients name
    a class without being asked to, so what they name is a lower bound.
    """

    compression_algorithm: str = "none"
    message_expiry: int = UNLIMITED
    max_topic_size: int = UNLIMITED
    segment_size: int = GIB
    messages_required_to_save: int = 1024
    size_of_messages_required_to_save: int = MIB
    preallocate_segments: bool = False
    durability: str = PERSISTED
    consumer_offset_durability: str = PERSISTED
    retention_consumers: str = SERVER_DEFAULT_WORD
    durability_minimum: str = PERSISTED

    def __post_init__(self) -> None:
        assert self.durability_minimum in (REPLICATED, PERSISTED)
        for key, option in _LISTED.items():
            assert option.allows(self.value(key)), f"default of {key}"
        for key in _DEFAULT_BY_ZERO:
            assert self.value(key) != SERVER_DEFAULT, f"default of {key}"

    def value(self, key: str) -> FieldValue:
        """Return the default of an option."""
        value: FieldValue = getattr(self, key)
        return value


assert all(key in TopicDefaults.__struct_fields__ for key in _LISTED)


def resolve_topic_options(
    request: CreateTopic, defaults: TopicDefaults
) -> CreateTopicWithAssignments:
    """Return the op that creates a topic: what is filled in has the value that is really in force.

    What the client sent stays marked as its own, except a value that asks for the default. The
    numbers of the partitions follow from their count, so none is assigned.

    Raises:
        RefusedError: An option is not known or has no such value; too many partitions; the topic
            could not hold one segment.
    """
    if request.partitions_count > PARTITIONS_PER_REQUEST_MAX:
        raise RefusedError(Code.TOO_MANY_PARTITIONS, count=request.partitions_count)
    fields = _canonical_fields(request.options)
    for key in (*_DEFAULT_BY_ZERO, RETENTION_CONSUMERS):
        if key in fields and fields[key].value in (SERVER_DEFAULT, SERVER_DEFAULT_WORD):
            del fields[key]
    said = _read_fsync(fields)
    explicit = {key: _strengthened(key, field, defaults) for key, field in fields.items()}
    derived = {
        key: _strengthened(key, said.get(key) or _default(key, defaults), defaults)
        for key, option in TOPIC_OPTIONS.items()
        if option.is_filled_in and key not in explicit
    }
    op = CreateTopicWithAssignments(
        request=CreateTopic(
            request.stream, request.partitions_count, request.name, make_options({**explicit})
        ),
        derived=make_options({**derived}),
        assignments=(),
    )
    settings = read_settings(op.request.options, op.derived)
    check_topic_size(settings)
    if not is_preallocation_bounded(settings, request.partitions_count):
        raise RefusedError(Code.INVALID_OPTION_VALUE, partitions=request.partitions_count)
    return op


def resolve_topic_update(request: UpdateTopic, defaults: TopicDefaults) -> UpdateTopic:
    """Return the op that changes a topic: values are canonical, and a default is that of now.

    Clients send 0 for what their caller does not mention, so it leaves what the topic has; who
    wants the default asks for it by its word.

    Raises:
        RefusedError: An option is not known, cannot be changed, or has no such value.
    """
    check_updatable(request.options)
    fields = _canonical_fields(request.options)
    for option in request.options:
        key = option.key
        if key in _DEFAULT_BY_ZERO and fields[key].value == SERVER_DEFAULT:
            del fields[key]
            if _is_default_word(option.value):
                fields[key] = _default(key, defaults)
    return UpdateTopic(request.stream, request.topic, request.name, make_options({**fields}))


def check_updatable(options: Options) -> None:
    """Refuse options that a topic keeps for life.

    Raises:
        RefusedError: One is not known, or cannot be changed.
    """
    for option in options:
        known = TOPIC_OPTIONS.get(option.key)
        if known is None or not known.is_updatable:
            raise RefusedError(Code.UNSUPPORTED_OPTION_KEY, key=option.key)


def check_partitions_count(count: int) -> None:
    """Refuse to add or remove no partition, or too many at once.

    Raises:
        RefusedError: The count is out of bounds.
    """
    if not 1 <= count <= PARTITIONS_PER_REQUEST_MAX:
        raise RefusedError(Code.TOO_MANY_PARTITIONS, count=count)


def check_no_options(options: Options) -> None:
    """Refuse options of a stream or a user: there are none.

    Raises:
        RefusedError: There is an option.
    """
    for option in options:
        raise RefusedError(Code.UNSUPPORTED_OPTION_KEY, key=option.key)


def check_topic_size(settings: TopicSettings) -> None:
    """Refuse a topic that could not hold one segment.

    Raises:
        RefusedError: It is too small.
    """
    if settings.max_topic_size < settings.segment_bytes:
        raise RefusedError(
            Code.INVALID_TOPIC_SIZE,
            max_topic_size=settings.max_topic_size,
            segment_size=settings.segment_bytes,
        )


def is_preallocation_bounded(settings: TopicSettings, partitions_count: int) -> bool:
    """Return whether the space that a topic takes before its first message is within bounds."""
    taken = settings.segment_bytes * partitions_count if settings.is_preallocated else 0
    return taken <= PREALLOCATED_BYTES_MAX


def check_new_password(password: bytes, username: str, *, bytes_min: int) -> None:
    """Refuse a new password that is too short, too long, or the user's name.

    Raises:
        RefusedError: It is; the password is not among the facts.
    """
    if not bytes_min <= len(password) <= PASSWORD_BYTES_MAX or password == username.encode():
        raise RefusedError(Code.INVALID_PASSWORD, username=username, length=len(password))


def describe_options(scope: OptionsScope, defaults: TopicDefaults) -> tuple[OptionSpec, ...]:
    """Return the options of a kind of object, with the defaults of this server."""
    if scope != OptionsScope.TOPIC:
        return ()
    specs = []
    for key, option in _LISTED.items():
        default = _strengthened(key, _default(key, defaults), defaults)
        specs.append(OptionSpec(key, int(option.kind), default.data, option.description))
    return tuple(specs)


def _canonical_fields(options: Options) -> dict[str, Field]:
    canonical = [canonical_option(option) for option in options]
    return {option.key: option.value for option in canonical}


def _is_default_word(field: Field) -> bool:
    return isinstance(field.value, str) and field.value.strip().lower() == SERVER_DEFAULT_WORD


def _read_fsync(fields: dict[str, Field]) -> dict[str, Field]:
    """Return the durability that older clients name by a flag; nothing if they do not.

    Each spelling is a lower bound, so where both are given the stronger one holds for both.
    """
    flag = fields.get(ENFORCE_FSYNC)
    if flag is None:
        return {}
    named = fields.get(DURABILITY)
    is_persisted = bool(flag.value) or (named is not None and named.value == PERSISTED)
    meant = make_field(PERSISTED if is_persisted else REPLICATED)
    fields[ENFORCE_FSYNC] = make_field(is_persisted)
    if named is not None:
        fields[DURABILITY] = meant
    return {DURABILITY: meant}


def _default(key: str, defaults: TopicDefaults) -> Field:
    return make_field(defaults.value(key), TOPIC_OPTIONS[key].kind)


def _strengthened(key: str, field: Field, defaults: TopicDefaults) -> Field:
    if defaults.durability_minimum != PERSISTED:
        return field
    if key == ENFORCE_FSYNC:
        return make_field(True)  # noqa: FBT003 - the value of an option
    return make_field(PERSISTED) if key in _DURABILITIES else field
