"""`headrace dev` and `headrace serve`, with a stand-in for the server's own start."""

import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from headrace.cli.exits import Exit
from headrace.cli.main import run
from headrace.cli.node.run import BOOTSTRAP_MODULE
from headrace.server import shard_count
from headrace.server.allocation import ShardPlace
from headrace.server.config.load import ServerConfig
from tests.watched_nodes import hand_in


class Starts:
    """Remembers how the server was started."""

    def __init__(self) -> None:
        self.code = 0
        self.config: ServerConfig | None = None
        self.is_throwaway = False
        self.cpus: list[Sequence[int]] = []  # of each shard
        self.was_folder_private = False

    def run(self, config: ServerConfig, *, is_throwaway: bool, places: Sequence[ShardPlace]) -> int:
        self.config, self.is_throwaway = config, is_throwaway
        self.cpus = [place.cpus for place in places]
        folder = config.server.data_dir
        self.was_folder_private = folder.is_dir() and stat.S_IMODE(folder.stat().st_mode) == 0o700
        return self.code


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Starts:
    made = Starts()
    module = ModuleType(BOOTSTRAP_MODULE)
    module.run = made.run  # type: ignore[attr-defined]  # as the module that it stands for
    monkeypatch.setitem(sys.modules, BOOTSTRAP_MODULE, module)
    monkeypatch.chdir(tmp_path)
    for name in ("HEADRACE_ROOT_PASSWORD", "HEADRACE_TCP_ADDRESS", "HEADRACE_SERVER_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    return made


def test_serve(starts: Starts) -> None:
    starts.code = 1
    listen = ["--tcp", "0.0.0.0:0", "--http", "[::1]:0"]
    assert run(["serve", "--data", "here", *listen, "--allow-plaintext"]) == 1
    config = starts.config
    assert config is not None
    assert (config.profile, starts.is_throwaway) == ("serve", False)
    assert config.server.data_dir == Path("here")
    assert str(config.tcp.address) == "0.0.0.0:0"
    assert config.origin("http.address") == "flag --http"
    assert config.tls.allow_plaintext
    assert config.origin("tls.allow_plaintext") == "flag --allow-plaintext"
    assert config.root.password is None


def test_dev_throws_its_folder_away(starts: Starts) -> None:
    assert run(["dev"]) == 0
    config = starts.config
    assert config is not None
    assert (config.profile, starts.is_throwaway) == ("dev", True)
    assert starts.was_folder_private
    assert not config.server.data_dir.exists()
    assert config.root.password == b"iggy"
    assert config.security.password_min == 3


def test_dev_throws_its_folder_away_when_it_fails(
    starts: Starts, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = []

    def fail(config: ServerConfig, **_: object) -> NoReturn:
        folders.append(config.server.data_dir)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys.modules[BOOTSTRAP_MODULE], "run", fail)
    assert run(["dev"]) == 1
    assert capsys.readouterr().err == "headrace: [Errno 5] Input/output error\n"
    assert not folders[0].exists()


@pytest.mark.parametrize("way", ["flag", "variable", "file"])
def test_dev_keeps_a_folder_that_was_named(
    starts: Starts, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    file = tmp_path / "c.toml"
    file.write_text(f'[server]\ndata_dir = "{folder}"\n' if way == "file" else "")
    if way == "variable":
        monkeypatch.setenv("HEADRACE_SERVER_DATA_DIR", str(folder))
    flags = ["--data", str(folder)] if way == "flag" else []
    assert run(["dev", "--config", str(file), *flags]) == 0
    assert starts.config is not None
    assert starts.config.server.data_dir == folder
    assert not starts.is_throwaway
    assert folder.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["dev", "--tcp", "0.0.0.0:8090"], "must be on loopback under `headrace dev`"),
        (["dev", "--http", "[::]:3000"], "must be on loopback under `headrace dev`"),
        (["dev", "--nodes", "3"], "--nodes 3: a cluster of several nodes comes later"),
        (["serve", "--config", "no-such"], "no-such: No such file or directory"),
        (["serve", "--tcp", "x"], "has no port"),
        (["serve", "--tcp", "0.0.0.0:0"], "must be on loopback without TLS, or"),
        (["serve", "--http", "[::]:0"], "must be on loopback without TLS, or"),
    ],
)
def test_refusals(
    starts: Starts, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == Exit.USAGE
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("headrace: ")
    assert words in told.err
    assert told.err.count("\n") == 1
    assert starts.config is None


CPUS = [0, 1]
SHARDS_REFUSED = [
    ("0", 'server.shards = "0" (flag --shards): zero shards: a node has at least 1; allowed 1 to'),
    ("65535", "too many shards: 65535, and numbers suffice for 65534; allowed 1 to 65534, all,"),
    ("4..4", "the range 4..4 is empty"),
    ("4..2", "the range 4..2 is inverted"),
    ("many", 'server.shards = "many" (flag --shards): none of the forms; allowed 1 to 65534'),
    ("numa:cores=x", "cores=x is no number"),
    ("3", "server.shards = 3 (flag --shards): 3 shards need 3 CPUs, and this process may use 2"),
    ("1..3", "server.shards = 1..3 (flag --shards): CPU 2 of the range 1..3 is outside the 2"),
    ("numa:nodes=0,9", "there is no NUMA node 9: this machine has 0"),
    ("numa:cores=2", "NUMA node 0 has too few cores: 2 wanted, and this process may use 1 of it"),
]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a machine with one core of two hardware threads; return its folder of facts."""
    system = tmp_path / "system"
    (system / "node" / "node0").mkdir(parents=True)
    (system / "node" / "node0" / "cpulist").write_text("0-1\n")
    for cpu in CPUS:
        (system / "cpu" / f"cpu{cpu}" / "topology").mkdir(parents=True)
        (system / "cpu" / f"cpu{cpu}" / "topology" / "thread_siblings_list").write_text("0-1\n")
    monkeypatch.setattr(shard_count, "SYSTEM", system)
    monkeypatch.setattr(shard_count, "allowed_cpus", lambda: CPUS)
    return system


@pytest.mark.parametrize("command", ["serve", "dev"])
@pytest.mark.parametrize(("shards", "words"), SHARDS_REFUSED)
def test_shards_that_cannot_be(
    starts: Starts,
    machine: Path,
    command: str,
    shards: str,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """SH-6 and SH-8: each in its own sentence, before a file or port is touched."""
    assert run([command, "--data", "data", "--shards", shards]) == Exit.USAGE
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("headrace: server.shards = ")
    assert words in told.err
    assert told.err.count("\n") == 1
    assert starts.config is None
    assert not Path("data").exists()


def test_a_machine_that_cannot_be_read(
    starts: Starts, machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SH-6: only who asks for NUMA nodes is refused, for an unreadable machine or one without."""
    (machine / "node" / "node0" / "cpulist").unlink()
    assert run(["serve", "--shards", "auto"]) == Exit.USAGE
    assert "numa:auto (flag --shards): the topology of the CPUs is" in capsys.readouterr().err
    (machine / "node" / "node0").rmdir()
    assert run(["serve", "--shards", "numa:auto"]) == Exit.USAGE
    assert "numa:auto (flag --shards): no NUMA node: " in capsys.readouterr().err
    assert starts.config is None
    assert run(["serve", "--shards", "1"]) == 0


@pytest.mark.parametrize(
    ("shards", "cpus"),
    [
        *(("1", [()]), ("0..1", [(0,)]), ("1..2", [(1,)]), ("auto", [(0,)]), ("", [(0,)])),
        *(("2", [(0,), (1,)]), ("all", [(0,), (1,)]), ("0..2", [(0,), (1,)])),
        ("numa:no_ht=false", [(0,), (1,)]),
    ],
)
def test_shards_in_every_form(
    starts: Starts, machine: Path, shards: str, cpus: list[tuple[int, ...]]
) -> None:
    """SH-5 and SH-7: each keeps to its CPU, but for one that is given as a number."""
    assert run(["serve", "--shards", shards]) == 0
    assert starts.cpus == cpus


@pytest.mark.parametrize(("command", "cpus"), [("serve", [(0,)]), ("dev", [()])])
def test_the_shards_of_a_new_folder(
    starts: Starts, machine: Path, command: str, cpus: list[tuple[int, ...]]
) -> None:
    """SH-5: of `serve` one for every core, of `dev` one."""
    assert run([command]) == 0
    assert starts.config is not None
    assert starts.config.server.shards is None
    assert starts.config.server.pin_cores
    assert starts.cpus == cpus


def test_shards_by_environment_and_file(
    starts: Starts,
    machine: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """SH-5: the key takes all forms, and a number without quotes."""
    file = tmp_path / "c.toml"
    file.write_text("[server]\nshards = 3\n")
    assert run(["serve", "--config", str(file)]) == Exit.USAGE
    assert f"server.shards = 3 (file {file}): 3 shards need 3 CPUs" in capsys.readouterr().err
    monkeypatch.setenv("HEADRACE_SERVER_SHARDS", "1..2")
    monkeypatch.setenv("HEADRACE_SERVER_PIN_CORES", "false")
    assert run(["serve", "--config", str(file)]) == 0
    assert starts.cpus == [()]


def test_numa_without_pinning_is_a_warning(
    starts: Starts,
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """SH-7."""
    monkeypatch.setenv("HEADRACE_SERVER_PIN_CORES", "false")
    assert run(["serve", "--shards", "auto"]) == 0
    (told,) = caplog.messages
    assert told.startswith("server.pin_cores = false: the shards of numa:auto (1) are bound to no")
    assert starts.cpus == [()]


def test_all_problems_at_once(starts: Starts, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--tcp", "x", "--http", "y", "--shards", "z"]) == Exit.USAGE
    first, *rest = capsys.readouterr().err.splitlines()
    assert first == "headrace: the configuration has 3 problems:"
    assert [line.split()[0] for line in rest] == ["server.shards", "tcp.address", "http.address"]
    assert starts.config is None


def test_dev_has_no_way_to_leave_loopback(
    starts: Starts, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["dev", "--allow-plaintext"]) == Exit.USAGE
    assert "No such option" in capsys.readouterr().err
    monkeypatch.setenv("HEADRACE_TLS_ALLOW_PLAINTEXT", "true")
    assert run(["dev", "--tcp", "0.0.0.0:8090"]) == Exit.USAGE
    assert "must be on loopback under `headrace dev`" in capsys.readouterr().err
    assert starts.config is None


def test_default_credentials_stay_on_loopback(
    starts: Starts, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADRACE_ROOT_PASSWORD", "iggy")
    assert run(["serve", "--tcp", "0.0.0.0:8090", "--allow-plaintext"]) == Exit.USAGE
    assert "root.password = ... (environment HEADRACE_ROOT_PASSWORD)" in capsys.readouterr().err
    assert starts.config is None
    assert run(["serve", "--data", "d"]) == 0
    assert starts.config is not None


def test_assertions_are_needed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-m", "headrace", "dev"], capture_output=True, text=True, check=False
    )
    hand_in(done.stdout + done.stderr, tmp_path)  # It has made no folder.
    assert done.returncode == 1
    assert done.stderr == (
        "headrace: the server does not start under python -O: its assertions keep data safe\n"
    )
