"""Options: each is checked, and all that is wrong is said at once."""

import pickle

import pytest

from headrace.spark.option_reader import OptionsError
from headrace.spark.options import OPTIONS, SourceOptions, read_options

TOPIC = {"topic": "shop/orders", "address": "127.0.0.1:8090"}


def accept(streaming: bool | None = False, **given: str) -> SourceOptions:
    return read_options(TOPIC | given, {}, streaming=streaming)


def refuse(given: dict[str, str], streaming: bool | None = False) -> str:
    with pytest.raises(OptionsError) as raised:
        read_options(given, {}, streaming=streaming)
    return str(raised.value)


def test_defaults() -> None:
    options = accept()
    assert options.topics == ("shop/orders",)
    assert options.starting.word == "earliest"
    assert options.ending.word == "latest"
    assert (options.on_loss, options.read, options.group) == ("fail", "auto", None)
    assert not options.has_errors
    assert accept(streaming=True).starting.word == "latest"


def test_names_come_in_any_case() -> None:
    assert accept(MINPARTITIONS="3").split.partitions_min == 3


def test_several_topics() -> None:
    options = read_options({"subscribe": "a/b, c/d"}, {})
    assert options.topics == ("a/b", "c/d")


def test_all_problems_stand_in_one_message() -> None:
    message = refuse(
        {
            "subscribe": "a/b,a/b",
            "address": "nowhere",
            "maxOffsetPerTrigger": "5",
            "minPartitions": "many",
            "fromTimestamp": "2026-01-01T00:00:00",
            "columns": "offset,paylod",
            "valueSchema": "a INT",
            "read": "disk",
        }
    )
    assert message.splitlines()[0] == "8 options are wrong:"
    for part in (
        "subscribe: a/b is named twice",
        "address: 'nowhere' has no port",
        "maxoffsetpertrigger: no such option; did you mean maxOffsetsPerTrigger?",
        "minPartitions: 'many' is no number",
        "fromTimestamp: '2026-01-01T00:00:00' needs its time zone",
        "did you mean payload?",
        "valueSchema: goes with valueFormat json",
        "read: 'disk' is none of auto, direct, broker",
    ):
        assert part in message


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "topic: name one topic"),
        ({"topic": "orders"}, "topic: 'orders' is no topic"),
        ({"topic": "a/b", "subscribe": "c/d"}, "one of the two options"),
        ({**TOPIC, "startingOffsets": "oldest"}, "startingOffsets: 'oldest' is none of"),
        ({**TOPIC, "startingOffsets": "{"}, "is no JSON"),
        ({**TOPIC, "startingOffsets": '{"x/y": {"0": 1}}'}, "'x/y' is not among the topics"),
        ({**TOPIC, "startingOffsets": '{"shop/orders": {"a": 1}}'}, "'a' is no partition"),
        ({**TOPIC, "startingOffsets": '{"shop/orders": {"0": -3}}'}, "-3 is not within"),
        ({**TOPIC, "startingOffsets": '{"shop/orders": 3}'}, "no JSON object of partitions"),
        ({**TOPIC, "startingTimestamp": "soon"}, "no number of milliseconds"),
        (
            {**TOPIC, "startingTimestamp": "1", "startingOffsets": "latest"},
            "give only one of startingOffsets, startingTimestamp",
        ),
        ({**TOPIC, "fromOffset": "9", "toOffset": "3"}, "toOffset: lies before fromOffset"),
        ({**TOPIC, "fromOffset": "-1"}, "fromOffset: '-1' is no number"),
        (
            {**TOPIC, "failOnDataLoss": "true", "onDataLoss": "skip"},
            "failOnDataLoss: true contradicts onDataLoss skip",
        ),
        ({**TOPIC, "maxOffsetsPerTrigger": "5"}, "only a stream has it"),
        ({**TOPIC, "username": "ada"}, "no credentials for"),
        ({**TOPIC, "token": "x", "password": "y"}, "token: give a token, or username"),
        ({**TOPIC, "columns": "offset,offset"}, "names a column twice"),
        ({**TOPIC, "groupId": " "}, "groupId: is empty"),
        ({**TOPIC, "valueFormat": "avro"}, "valueFormat: 'avro' is none of json"),
    ],
)
def test_each_problem_has_its_sentence(given: dict[str, str], said: str) -> None:
    assert said in refuse(given)


def test_a_stream_has_no_end() -> None:
    assert "a stream has no end" in refuse(TOPIC | {"endingOffsets": "latest"}, streaming=True)


def test_whether_it_is_a_stream_may_be_open() -> None:
    accept(streaming=None, endingOffsets="latest", maxOffsetsPerTrigger="5")


def test_edges() -> None:
    offsets = accept(startingOffsets='{"shop/orders": {"0": 23, "1": -1}}').starting
    assert offsets.offset_of("shop/orders", 0) == 23
    assert offsets.offset_of("shop/orders", 2) is None
    assert accept(endingTimestamp="1700000000000").ending.time_of("any", 7) == 1700000000000000
    times = accept(startingOffsetsByTimestamp='{"shop/orders": {"1": 5}}').starting
    assert times.time_of("shop/orders", 1) == 5000
    assert times.time_of("shop/orders", 0) is None


def test_losing_data_in_kafkas_words_and_in_ours() -> None:
    assert accept(failOnDataLoss="false").on_loss == "skip"
    assert accept(failOnDataLoss="false", onDataLoss="report").on_loss == "report"
    assert accept(failOnDataLoss="true").on_loss == "fail"


def test_bounds() -> None:
    bounds = accept(fromOffset="3", toTimestamp="1970-01-01T00:00:01+00:00").bounds
    assert (bounds.offset_min, bounds.time_max) == (3, 1_000_000)


def test_secrets_are_not_shown_and_travel() -> None:
    options = accept(username="ada", password="lovelace-1815")
    assert "lovelace" not in repr(options)
    again: SourceOptions = pickle.loads(pickle.dumps(options))
    assert again == options
    assert "lovelace" not in refuse(
        TOPIC | {"username": "ada", "password": "lovelace-1815", "x": "y"}
    )


def test_the_environment_says_where_and_as_whom() -> None:
    given = {"HEADRACE_ADDRESS": "db.example:9", "HEADRACE_TOKEN": "abc"}
    assert str(read_options({"topic": "a/b"}, given).connection.endpoint) == "db.example:9"


def test_the_list_of_options_is_in_order() -> None:
    assert list(OPTIONS) == sorted(OPTIONS)
