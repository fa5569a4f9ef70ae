"""Delta and Iceberg as targets: every batch once, whatever is written twice or killed between."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyiceberg.catalog import load_catalog

from headrace.pipelines.declared import Sink, SinkKind
from headrace.pipelines.delta import DeltaTarget
from headrace.pipelines.iceberg import IcebergTarget
from headrace.pipelines.table_files import (
    Batch,
    DataFile,
    Stamp,
    TableError,
    remove_leftovers,
    write_file,
)
from headrace.pipelines.table_sink import Target, find_target

SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("window", pa.struct([("start", pa.timestamp("us", tz="UTC"))])),
        ("payload", pa.binary()),
        ("headers", pa.map_(pa.string(), pa.binary())),
        ("product", pa.string()),
    ]
)


@dataclass(frozen=True)
class Table:
    """A table of some kind, and how anybody reads it."""

    target: Target
    read: Callable[[], list[int]]


def read_delta(folder: Path) -> list[int]:
    return sorted(DeltaTable(str(folder)).to_pyarrow_table()["number"].to_pylist())


def read_iceberg(warehouse: Path) -> list[int]:
    catalog = load_catalog(
        "headrace",
        type="sql",
        uri=f"sqlite:///{warehouse / 'catalog.db'}",
        warehouse=str(warehouse),
    )
    return sorted(catalog.load_table("shop.orders").scan().to_arrow()["number"].to_pylist())


@pytest.fixture(params=["delta", pytest.param("iceberg", marks=pytest.mark.slow)])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    folder = tmp_path / "table"
    sink = Sink(SinkKind(request.param), folder, table="shop.orders")
    made = find_target(sink)
    made.prepare(SCHEMA)
    read = read_delta if request.param == "delta" else read_iceberg
    return Table(made, lambda: read(folder))


def write(target: Target, numbers: range, batch: int, task: int = 0) -> DataFile:
    rows = pa.RecordBatch.from_pylist([{"number": number} for number in numbers], schema=SCHEMA)
    file = write_file(target.data_folder, Stamp("query", batch, task), SCHEMA, [rows])
    assert file is not None
    return file


def files_of(target: Target) -> list[str]:
    return sorted(path.name for path in target.data_folder.glob("*.parquet"))


def test_a_batch_is_taken_once(table: Table) -> None:
    for batch in range(3):
        for is_first in (True, False):
            file = write(table.target, range(batch * 10, batch * 10 + 10), batch)
            assert table.target.commit(Batch("query", batch, (file,))) is is_first
    assert table.read() == list(range(30))
    assert len(files_of(table.target)) == 3


def test_queries_count_their_batches_each_for_itself(table: Table) -> None:
    assert table.target.commit(Batch("query", 5, (write(table.target, range(3), 5),)))
    assert table.target.commit(Batch("other", 0, (write(table.target, range(3, 6), 0),)))
    assert table.read() == list(range(6))


def test_what_a_killed_attempt_wrote_is_no_row_and_goes_with_the_commit(table: Table) -> None:
    write(table.target, range(10), batch=0)  # by a driver that was killed before its commit
    kept = [write(table.target, range(5), 0), write(table.target, range(5, 10), 0, task=1)]
    assert table.target.commit(Batch("query", 0, tuple(kept)))
    assert table.read() == list(range(10))
    assert files_of(table.target) == sorted(file.name for file in kept)


def test_a_batch_without_rows_leaves_no_trace(table: Table) -> None:
    assert write_file(table.target.data_folder, Stamp("query", 0, 0), SCHEMA, []) is None
    assert table.target.commit(Batch("query", 0, ()))
    assert table.read() == []
    assert files_of(table.target) == []


def test_rows_that_do_not_fit_are_refused_with_every_difference(table: Table) -> None:
    table.target.prepare(SCHEMA)  # the same columns again are right
    others = pa.schema([("number", pa.string()), ("colour", pa.int32())])
    with pytest.raises(TableError) as caught:
        table.target.prepare(others)
    for words in ("has at, which", "has no column colour", "has number as int64"):
        assert words in str(caught.value)


def test_the_whole_result_replaces_a_delta_table(tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path)
    target.prepare(SCHEMA)
    for batch, numbers in enumerate((range(10), range(3), range(7))):
        file = write(target, numbers, batch)
        assert target.commit(Batch("query", batch, (file,), is_whole=True))
        assert read_delta(tmp_path) == list(numbers)
    assert target.commit(Batch("query", 3, (), is_whole=True))
    assert read_delta(tmp_path) == []


def test_of_two_drivers_only_one_commits_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both looked before either wrote; the log itself tells the second."""
    target = DeltaTarget(tmp_path)
    target.prepare(SCHEMA)
    stale = DeltaTable(str(tmp_path))
    assert target.commit(Batch("query", 0, (write(target, range(5), 0),)))
    monkeypatch.setattr("headrace.pipelines.delta.DeltaTable", lambda _: stale)
    with pytest.raises(CommitFailedError, match="Concurrent transaction"):
        target.commit(Batch("query", 0, (write(target, range(5), 0),)))
    assert read_delta(tmp_path) == list(range(5))


@pytest.mark.slow
def test_an_iceberg_batch_is_known_after_its_snapshots_expired(tmp_path: Path) -> None:
    target = IcebergTarget(tmp_path, "shop.orders")
    target.prepare(SCHEMA)
    assert target.commit(Batch("query", 4, (write(target, range(5), 4),)))
    table = target._load()
    assert table.properties["headrace.batch.query"] == "4"
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["headrace.batch"] == "4"


@pytest.mark.slow
def test_an_iceberg_table_elsewhere_is_refused(tmp_path: Path) -> None:
    target = IcebergTarget(
        tmp_path,
        "shop.orders",
        {"type": "in-memory", "warehouse": "memory://x"},
    )
    with pytest.raises(TableError, match=r"its files are at memory://x"):
        target._folder(_Located("memory://x"))  # type: ignore[arg-type]  # all that is asked of it


class _Located:
    def __init__(self, location: str) -> None:
        self._location = location

    def location(self) -> str:
        return self._location


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def rows() -> object:
        yield pa.RecordBatch.from_pylist([{"number": 1}], schema=SCHEMA)
        raise RuntimeError("the task fails")

    with pytest.raises(RuntimeError, match="the task fails"):
        write_file(tmp_path, Stamp("query", 0, 0), SCHEMA, rows())  # type: ignore[arg-type]  # an iterator
    assert list(tmp_path.iterdir()) == []


def test_a_zone_of_the_session_changes_no_instant(tmp_path: Path) -> None:
    berlin = pa.schema([("at", pa.timestamp("us", tz="Europe/Berlin"))])
    rows = pa.RecordBatch.from_arrays([pa.array([1_000_000], berlin.field(0).type)], schema=berlin)
    utc = pa.schema([("at", pa.timestamp("us", tz="UTC"))])
    file = write_file(tmp_path, Stamp("query", 0, 0), utc, [rows])
    assert file is not None
    written = pa.parquet.read_table(tmp_path / file.name)
    assert written.schema == utc
    assert written["at"].cast(pa.int64()).to_pylist() == [1_000_000]


def test_leftovers_of_other_batches_stay(tmp_path: Path) -> None:
    target = DeltaTarget(tmp_path)
    other = write(target, range(3), batch=11)
    mine = write(target, range(3), batch=1)
    assert remove_leftovers(tmp_path, Batch("query", 1, ())) == 1
    assert files_of(target) == [other.name]
    assert mine.name not in files_of(target)
