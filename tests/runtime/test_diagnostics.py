"""The diagnostic archive."""

import io
import zipfile
from threading import Event

from headrace.ports.host import MakeSnapshot
from headrace.runtime.diagnostics import SnapshotMaker, describe_usage
from headrace.wire.numbers import SnapshotCompression, SnapshotType

WAIT_SECONDS = 10


def pack(*types: SnapshotType) -> dict[str, str]:
    """Give the texts of an archive by their names."""
    ready = Event()
    maker = SnapshotMaker({SnapshotType.RESOURCE_USAGE: describe_usage}, ready.set)
    try:
        maker.submit(MakeSnapshot(1, SnapshotCompression.DEFLATED, types))
        assert ready.wait(WAIT_SECONDS)
        (made,) = maker.take_events()
    finally:
        maker.close()
    assert made.data is not None
    with zipfile.ZipFile(io.BytesIO(made.data)) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_the_test_of_a_snapshot_is_a_word() -> None:
    assert pack(SnapshotType.TEST) == {"test.txt": "test"}


def test_all_holds_what_the_node_keeps_and_the_test() -> None:
    assert sorted(pack(SnapshotType.ALL)) == ["resource_usage.txt", "test.txt"]


def test_what_is_not_kept_is_said() -> None:
    assert pack(SnapshotType.SERVER_LOGS) == {"server_logs.txt": "not kept by this node\n"}
