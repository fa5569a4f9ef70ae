import pytest

from headrace.base.limits import GIB, MIB
from headrace.metadata.admission import (
    TopicDefaults,
    check_new_password,
    check_no_options,
    check_partitions_count,
    describe_options,
    resolve_topic_options,
    resolve_topic_update,
)
from headrace.wire.commands.topics import CreateTopic, UpdateTopic
from headrace.wire.errors import Code
from headrace.wire.fields import FieldKind, FieldValue
from headrace.wire.numbers import OptionsScope
from headrace.wire.options import Option, Options, make_options
from headrace.wire.topic_options import TOPIC_OPTIONS, UNLIMITED
from tests.metadata.stage import DEV, code_of, topic_options

SERVE = TopicDefaults()  # durability_minimum is persisted


def created(
    options: Options = (), defaults: TopicDefaults = DEV, *, partitions: int = 1
) -> tuple[dict[str, FieldValue], dict[str, FieldValue]]:
    op = resolve_topic_options(CreateTopic("s", partitions, "t", options), defaults)
    assert op.assignments == ()
    assert op.request.partitions_count == partitions
    return values_of(op.request.options), values_of(op.derived)


def values_of(options: Options) -> dict[str, FieldValue]:
    assert [option.key for option in options] == sorted(option.key for option in options)
    return {option.key: option.value.value for option in options}


def test_what_is_left_out_is_filled_in() -> None:
    explicit, derived = created()
    assert explicit == {}
    filled_in = {key: each for key, each in TOPIC_OPTIONS.items() if each.is_filled_in}
    assert derived == {key: option.default for key, option in filled_in.items()}
    assert "retention_consumers" in TOPIC_OPTIONS.keys() - filled_in.keys()


def test_what_is_said_is_the_clients_own() -> None:
    explicit, derived = created(
        topic_options(message_expiry="7 days", segment_size=MIB, preallocate_segments="true")
    )
    assert explicit == {
        "message_expiry": 7 * 86_400_000_000,
        "segment_size": MIB,
        "preallocate_segments": True,
    }
    not_said = {"retention_consumers": "", "enforce_fsync": ""}
    assert sorted({**explicit, **derived, **not_said}) == sorted(TOPIC_OPTIONS)
    assert not any(key in derived for key in explicit)


def test_a_default_is_asked_for_by_zero() -> None:
    defaults = TopicDefaults(message_expiry=5, max_topic_size=2 * GIB)
    for asked in (
        topic_options(message_expiry=0, max_topic_size=0),
        topic_options(message_expiry="server_default", max_topic_size="0"),
    ):
        explicit, derived = created(asked, defaults)
        assert explicit == {}
        assert (derived["message_expiry"], derived["max_topic_size"]) == (5, 2 * GIB)


def test_a_segment_size_of_zero_takes_the_default() -> None:
    defaults = TopicDefaults(segment_size=2 * MIB)
    for zero in (0, "0"):
        explicit, derived = created(topic_options(segment_size=zero), defaults)
        assert explicit == {}
        assert derived["segment_size"] == 2 * MIB


@pytest.mark.parametrize(
    ("asked", "minimum", "given"),
    [
        ("replicated", "replicated", "replicated"),
        ("persisted", "replicated", "persisted"),
        ("replicated", "persisted", "persisted"),
        ("persisted", "persisted", "persisted"),
    ],
)
@pytest.mark.parametrize("key", ["durability", "consumer_offset_durability"])
def test_durability_is_a_lower_bound(key: str, asked: str, minimum: str, given: str) -> None:
    defaults = TopicDefaults(durability_minimum=minimum)
    explicit, _derived = created(make_options({key: asked}), defaults)
    assert explicit == {key: given}
    weak = TopicDefaults(
        durability="replicated",
        consumer_offset_durability="replicated",
        durability_minimum=minimum,
    )
    assert created((), weak)[1][key] == minimum


def test_the_two_durabilities_are_apart() -> None:
    explicit, derived = created(topic_options(durability="replicated"))
    assert explicit == {"durability": "replicated"}
    assert derived["consumer_offset_durability"] == "persisted"


@pytest.mark.parametrize(
    ("asked", "minimum", "echoed", "durability"),
    [
        (True, "replicated", True, "persisted"),
        ("true", "replicated", True, "persisted"),
        (False, "replicated", False, "replicated"),
        (False, "persisted", True, "persisted"),
    ],
)
def test_enforce_fsync_is_another_spelling_of_durability(
    asked: FieldValue, minimum: str, *, echoed: bool, durability: str
) -> None:
    defaults = TopicDefaults(durability_minimum=minimum)
    explicit, derived = created(make_options({"enforce_fsync": asked}), defaults)
    assert explicit == {"enforce_fsync": echoed}
    assert derived["durability"] == durability


@pytest.mark.parametrize(
    ("flag", "named", "is_persisted"),
    [
        (True, "replicated", True),
        (False, "persisted", True),
        (True, "persisted", True),
        (False, "replicated", False),
    ],
)
def test_of_both_spellings_the_stronger_holds(
    flag: FieldValue, named: str, *, is_persisted: bool
) -> None:
    explicit, derived = created(make_options({"enforce_fsync": flag, "durability": named}))
    meant = "persisted" if is_persisted else "replicated"
    assert explicit == {"enforce_fsync": is_persisted, "durability": meant}
    assert "durability" not in derived


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (make_options({"zone": "eu"}), Code.UNSUPPORTED_OPTION_KEY),
        (make_options({"enforce_fsync": "sometimes"}), Code.INVALID_OPTION_VALUE),
        (make_options({"enforce_fsync": 1}), Code.INVALID_OPTION_VALUE),
        (topic_options(durability="wished"), Code.INVALID_OPTION_VALUE),
        (topic_options(segment_size=MIB + 1), Code.INVALID_OPTION_VALUE),
        (topic_options(segment_size=2 * GIB), Code.INVALID_OPTION_VALUE),
        (topic_options(message_expiry="soon"), Code.INVALID_OPTION_VALUE),
        (topic_options(messages_required_to_save=0), Code.INVALID_OPTION_VALUE),
        (make_options({"durability": 1}), Code.INVALID_OPTION_VALUE),
        (topic_options(max_topic_size=GIB - 1), Code.INVALID_TOPIC_SIZE),
        (topic_options(max_topic_size=MIB, segment_size=2 * MIB), Code.INVALID_TOPIC_SIZE),
    ],
)
def test_what_no_topic_can_have(options: Options, code: Code) -> None:
    assert code_of(created, options) == code


def test_a_topic_holds_one_segment_at_least() -> None:
    assert created(topic_options(max_topic_size=MIB, segment_size=MIB))[0]["segment_size"] == MIB


def test_space_taken_beforehand_is_bounded() -> None:
    options = topic_options(preallocate_segments=True)
    assert code_of(created, options, partitions=64) == 0
    assert code_of(created, options, partitions=65) == Code.INVALID_OPTION_VALUE
    assert code_of(created, partitions=65) == 0


def test_partitions_at_once_are_bounded() -> None:
    assert code_of(created, partitions=0) == 0
    assert code_of(created, partitions=1000) == 0
    assert code_of(created, partitions=1001) == Code.TOO_MANY_PARTITIONS
    counts = [code_of(check_partitions_count, count) for count in (0, 1, 1000, 1001)]
    assert counts == [Code.TOO_MANY_PARTITIONS, 0, 0, Code.TOO_MANY_PARTITIONS]


def updated(options: Options, defaults: TopicDefaults = DEV) -> dict[str, FieldValue]:
    return values_of(resolve_topic_update(UpdateTopic("s", "t", "n", options), defaults).options)


def test_three_options_can_be_changed() -> None:
    options = topic_options(
        compression_algorithm="gzip", message_expiry="1 s", max_topic_size="unlimited"
    )
    assert updated(options) == {
        "compression_algorithm": "gzip",
        "message_expiry": 1_000_000,
        "max_topic_size": UNLIMITED,
    }
    for key in TOPIC_OPTIONS:
        code = code_of(updated, (Option(key, make_options({"x": "1"})[0].value),))
        assert (code == Code.UNSUPPORTED_OPTION_KEY) == (
            key
            not in (
                "compression_algorithm",
                "message_expiry",
                "max_topic_size",
                "retention_consumers",
            )
        )
    assert code_of(updated, make_options({"zone": "eu"})) == Code.UNSUPPORTED_OPTION_KEY


def test_a_default_in_an_update_is_that_of_now() -> None:
    defaults = TopicDefaults(message_expiry=5, max_topic_size=3 * GIB)
    options = topic_options(message_expiry="Server_Default", max_topic_size="server_default")
    assert updated(options, defaults) == {"message_expiry": 5, "max_topic_size": 3 * GIB}


def test_zero_in_an_update_changes_nothing() -> None:
    for expiry, size in ((0, 0), ("0 s", "0")):
        options = topic_options(
            message_expiry=expiry, max_topic_size=size, compression_algorithm="gzip"
        )
        assert updated(options, TopicDefaults(message_expiry=5)) == {
            "compression_algorithm": "gzip"
        }


def test_retention_of_a_topic_that_does_not_say_follows_the_server() -> None:
    explicit, derived = created(topic_options(retention_consumers="ignore"))
    assert explicit == {"retention_consumers": "ignore"}
    explicit, derived = created(topic_options(retention_consumers="server_default"))
    assert "retention_consumers" not in {**explicit, **derived}
    words = topic_options(retention_consumers="server_default")
    assert updated(words) == {"retention_consumers": "server_default"}
    code = code_of(created, topic_options(retention_consumers="sometimes"))
    assert code == Code.INVALID_OPTION_VALUE


def test_streams_and_users_have_no_options() -> None:
    assert code_of(check_no_options, ()) == 0
    assert code_of(check_no_options, make_options({"x": 1})) == Code.UNSUPPORTED_OPTION_KEY


def test_new_passwords() -> None:
    def code(password: bytes, bytes_min: int = 12) -> int:
        return code_of(check_new_password, password, "alice-in-wonderland", bytes_min=bytes_min)

    assert code(b"x" * 12) == code(b"x" * 100) == code(b"abc", 3) == 0
    refused = [code(b"x" * 11), code(b"x" * 101), code(b"ab", 3), code(b"alice-in-wonderland")]
    assert refused == [Code.INVALID_PASSWORD] * 4


def test_options_describe_themselves() -> None:
    specs = {spec.key: spec for spec in describe_options(OptionsScope.TOPIC, SERVE)}
    assert sorted(specs) == sorted(TOPIC_OPTIONS.keys() - {"enforce_fsync"})
    assert specs["segment_size"].kind == FieldKind.UINT64
    assert int.from_bytes(specs["segment_size"].default, "little") == GIB
    assert specs["durability"].default == b"persisted"
    assert describe_options(OptionsScope.STREAM, SERVE) == ()
    assert describe_options(OptionsScope.USER, SERVE) == ()


@pytest.mark.parametrize(
    "wrong", [{"durability_minimum": "none"}, {"segment_size": 7}, {"message_expiry": 0}]
)
def test_defaults_are_values_that_a_topic_can_have(wrong: dict[str, object]) -> None:
    with pytest.raises(AssertionError):
        TopicDefaults(**wrong)  # type: ignore[arg-type]  # that is what is tried
