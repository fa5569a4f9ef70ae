"""Files of a Parquet sink that no batch committed."""

import json
from pathlib import Path

import pytest

from headrace.pipelines.parquet_leftovers import committed_files, remove_parquet_leftovers


def log(folder: Path, entry: str, *names: str, version: str = "v1") -> None:
    lines = [
        json.dumps({"path": f"file://{folder.resolve() / name}", "size": 1, "action": "add"})
        for name in names
    ]
    (folder / "_spark_metadata").mkdir(exist_ok=True)
    (folder / "_spark_metadata" / entry).write_text("\n".join([version, *lines]))


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()


def test_only_what_no_batch_named_goes(tmp_path: Path) -> None:
    touch(tmp_path, "part-0.parquet", "part-1.parquet", "part-2.parquet", ".part-2.parquet.crc")
    touch(tmp_path, "day=1/part-3.parquet", "day=1/part-4.parquet", "notes.txt")
    log(tmp_path, "0", "part-0.parquet")
    log(tmp_path, "1", "part-1.parquet", "day=1/part-3.parquet")
    assert remove_parquet_leftovers(tmp_path) == 2
    left = sorted(path.name for path in tmp_path.rglob("*") if path.suffix != "")
    assert left == ["notes.txt", "part-0.parquet", "part-1.parquet", "part-3.parquet"]


def test_a_compacted_log_stands_for_all_before_it(tmp_path: Path) -> None:
    log(tmp_path, "8", "part-8.parquet")
    log(tmp_path, "9.compact", "part-8.parquet", "part-9.parquet")
    log(tmp_path, "10", "part-10.parquet")
    names = {path.name for path in committed_files(tmp_path)}
    assert names == {"part-8.parquet", "part-9.parquet", "part-10.parquet"}


def test_a_name_with_escapes_is_the_file(tmp_path: Path) -> None:
    touch(tmp_path, "product=a b/part-0.parquet")
    log(tmp_path, "0", "product=a%20b/part-0.parquet")
    assert remove_parquet_leftovers(tmp_path) == 0


def test_a_folder_that_is_no_sink_is_left_alone(tmp_path: Path) -> None:
    touch(tmp_path, "part-0.parquet")
    assert remove_parquet_leftovers(tmp_path) == 0
    assert remove_parquet_leftovers(tmp_path / "missing") == 0


def test_a_log_of_another_version_stops_it(tmp_path: Path) -> None:
    touch(tmp_path, "part-0.parquet")
    log(tmp_path, "0", "part-0.parquet", version="v2")
    with pytest.raises(ValueError, match="version 'v2'"):
        remove_parquet_leftovers(tmp_path)
