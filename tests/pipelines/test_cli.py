"""`headrace pipeline`, as far as it goes without Spark."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import headrace
from headrace.cli.main import headrace as command
from headrace.pipelines.checkpoint import write_progress
from tests.node import running_node

JOBS = """
[node]
address = "{address}"
password = "secret"
username = "iggy"
[pipeline.sales]
sql = "SELECT product FROM orders"
trigger = "2 s"
[pipeline.sales.source.orders]
topic = "shop/orders"
schema = "product STRING"
[pipeline.sales.sink]
kind = "parquet"
path = "{path}"
[pipeline.sales.dead_letters]
kind = "delta"
path = "dead"
[pipeline.copy.source.orders]
topic = "shop/orders"
[pipeline.copy.sink]
kind = "console"
"""
NOWHERE = "127.0.0.1:1"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_jobs(tmp_path)


def write_jobs(folder: Path, address: str = NOWHERE, path: str = "tables/sales") -> Path:
    file = folder / "jobs.toml"
    file.write_text(JOBS.format(address=address, path=path))
    return file


def ask(*arguments: object) -> Result:
    return CliRunner().invoke(command, ["pipeline", *map(str, arguments)])


def test_list(file: Path) -> None:
    told = ask("list", file)
    assert told.exit_code == 0
    path = file.parent / "tables" / "sales"
    assert told.stdout.splitlines() == [
        f"sales: shop/orders to parquet {path}, every 2 s, never ran",
        "copy: shop/orders to console, every 1 s, never ran",
    ]
    names = [row["name"] for row in json.loads(ask("list", file, "-o", "json").stdout)]
    assert names == ["sales", "copy"]


def test_show_tells_the_declaration_the_checkpoint_and_the_progress(file: Path) -> None:
    folder = file.parent / "checkpoints" / "sales"
    for part in ("offsets", "commits"):
        (folder / "query" / part).mkdir(parents=True)
    (folder / "query" / "metadata").write_text('{"id": "a-b"}')
    (folder / "query" / "offsets" / "3").write_text('v1\n{}\n{"next": 9}')
    (folder / "query" / "commits" / "2").write_text("v1\n{}")
    write_progress(folder, {"query": {"batch": 2}})
    told = ask("show", file, "sales", "-o", "json")
    assert "secret" not in told.output
    shown = json.loads(told.stdout)
    assert shown["connection"] == {"address": NOWHERE, "username": "iggy", "password": "..."}
    assert shown["state"]["query"] == {
        "query": "a-b",
        "planned_batch": 3,
        "committed_batch": 2,
        "offsets": [{"next": 9}],
    }
    assert shown["progress"] == {"query": {"batch": 2}}
    assert "sql: SELECT product FROM orders" in ask("show", file).stdout
    assert "secret" not in ask("show", file).output


def test_a_job_that_is_not_there(file: Path) -> None:
    told = ask("show", file, "profits")
    assert told.exit_code == 3
    assert "no job profits; there are sales, copy" in told.stderr


def test_a_wrong_file_ends_every_command_with_2(tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text("[pipelin]\n[sprak]")
    for name in ("run", "list", "show", "check"):
        told = ask(name, tmp_path / "jobs.toml")
        assert told.exit_code == 2
        assert "pipelin: no such key; did you mean pipeline?" in told.stderr
        assert "sprak: no such key; did you mean spark?" in told.stderr


@pytest.mark.slow  # it waits for a node that does not answer
def test_check_says_what_it_did_not_look_at(file: Path) -> None:
    told = ask("check", file)
    assert told.exit_code == 0
    assert "ok: sales: declaration" in told.stdout
    assert "not checked: sales: topics shop/orders: " in told.stdout
    assert "not checked: sql and functions: --spark" in told.stdout


@pytest.mark.slow  # it starts a node
def test_check_asks_the_node_for_topics(tmp_path: Path) -> None:
    with running_node() as node:
        file = write_jobs(tmp_path, str(node.tcp))
        told = ask("check", file, "copy")
        assert told.exit_code == 1
        assert "wrong: copy: connection: " in told.stdout
        file.write_text(file.read_text().replace("secret", "iggy"))
        told = ask("check", file, "copy")
        assert told.exit_code == 1
        assert "wrong: copy: topic shop/orders: " in told.stdout
        with headrace.connect(str(node.tcp)) as client:
            client.create_stream("shop")
            client.create_topic("shop/orders", partitions=3)
        told = ask("check", file, "copy")
        assert told.exit_code == 0
        assert "ok: copy: topic shop/orders: 3 partitions" in told.stdout


@pytest.mark.slow  # it waits for a node that does not answer
def test_check_finds_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    told = ask("check", write_jobs(tmp_path, path="taken/table"), "sales")
    assert told.exit_code == 1
    assert f"wrong: sales: sink parquet: {tmp_path / 'taken'} is no folder" in told.stdout
