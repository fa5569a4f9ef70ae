import pytest

from headrace.metadata import stream_changes
from headrace.wire.errors import Code
from headrace.wire.options import make_options
from tests.metadata.stage import SECOND, START, Stage, code_of


def test_a_stream_is_answered_with_its_record() -> None:
    stage = Stage()
    stream = stage.create_stream("shop")
    assert (stream.id, stream.name, stream.topics_count) == (0, "shop", 0)
    assert stream.created_at == START + stage.op * SECOND
    assert (stream.size_bytes, stream.messages_count, stream.options) == (0, 0, ())


def test_the_lowest_free_number_is_taken() -> None:
    stage = Stage()
    for name in "abcde":
        stage.create_stream(name)
    for name in ("d", "b"):
        stage.delete_stream(name)
    assert [stage.create_stream(name).id for name in ("x", "y", "z")] == [1, 3, 5]


@pytest.mark.parametrize("name", ["a", "x" * 255, "ключ", "..", "../../etc", "a b", "0", "🦀"])
def test_odd_names_are_names(name: str) -> None:
    stage = Stage()
    stage.create_stream(name)
    found = stage.state.streams.find(name)
    assert found is not None
    assert found.id == 0


@pytest.mark.parametrize("name", ["\0", "a\nb", "a\x7f", "\x85"])
def test_control_characters_are_refused(name: str) -> None:
    stage = Stage()
    assert code_of(stage.create_stream, name) == Code.INVALID_STREAM_NAME
    stage.create_stream("shop")
    assert code_of(stage.update_stream, "shop", name) == Code.INVALID_STREAM_NAME


def test_a_number_as_a_name_is_no_number() -> None:
    stage = Stage()
    stage.create_stream("7")
    assert stage.state.streams.find(7) is None
    assert code_of(stage.delete_stream, 7) == Code.STREAM_ID_NOT_FOUND
    stage.delete_stream("7")


def test_a_name_is_given_once() -> None:
    stage = Stage()
    stage.create_stream("a")
    stage.create_stream("b")
    assert code_of(stage.create_stream, "a") == Code.STREAM_NAME_ALREADY_EXISTS
    assert code_of(stage.update_stream, "b", "a") == Code.STREAM_NAME_ALREADY_EXISTS
    stage.update_stream("b", "b")
    stage.update_stream("b", "c")
    stage.create_stream("b")
    assert code_of(stage.create_stream, "A") == 0


def test_what_is_not_there_is_named() -> None:
    stage = Stage()
    for call in (stage.delete_stream, stage.purge_stream):
        assert code_of(call, 0) == Code.STREAM_ID_NOT_FOUND
        assert code_of(call, "none") == Code.STREAM_ID_NOT_FOUND
    assert code_of(stage.update_stream, "none", "x") == Code.STREAM_ID_NOT_FOUND


def test_streams_have_no_options() -> None:
    stage = Stage()
    options = make_options({"zone": "eu"})
    assert code_of(stage.create_stream, "a", options) == Code.UNSUPPORTED_OPTION_KEY
    stage.create_stream("a")
    assert code_of(stage.update_stream, "a", "b", options) == Code.UNSUPPORTED_OPTION_KEY
    assert stage.state.streams.find("b") is None


def test_streams_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_changes, "STREAMS_MAX", 2)
    stage = Stage()
    stage.create_stream("a")
    stage.create_stream("b")
    assert code_of(stage.create_stream, "c") == Code.TOO_MANY_STREAMS
    stage.delete_stream("a")
    assert stage.create_stream("c").id == 0


def test_a_stream_goes_with_all_that_it_holds() -> None:
    stage = Stage()
    stage.create_stream()
    stage.create_topic()
    stage.create_group()
    stage.join(7)
    before = stage.machine.revision
    stage.delete_stream("shop")
    assert stage.machine.revision > before
    assert stage.machine.target().partitions == ()
    assert stage.state.memberships == {}


def test_a_purged_stream_begins_anew_in_every_topic() -> None:
    stage = Stage()
    stage.create_stream()
    stage.create_topic(name="a", partitions=1)
    stage.create_topic(name="b", partitions=2)
    stage.purge_topic("shop", "b")
    stage.purge_stream("shop")
    assert [part.purge_generation for part in stage.machine.target().partitions] == [1, 2, 2]
