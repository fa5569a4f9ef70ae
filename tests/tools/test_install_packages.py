"""`make tools`: who may install packages gets them, and everybody else a sentence."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools" / "install-packages"
# What the fixtures of the tests ask for today, by Debian's package of it.
PACKAGES = ("gcc", "zsh", "fish", "e2fsprogs", "mount", "nats-server", "strace", "nftables")


class Machine:
    """A path with nothing but some stand-ins, which note how they were called."""

    def __init__(self, folder: Path) -> None:
        self._bin = folder / "bin"
        self._bin.mkdir()
        self._calls = folder / "calls"
        for tool in ("bash", "env"):
            found = shutil.which(tool)
            assert found is not None
            (self._bin / tool).symlink_to(found)

    def add(self, tool: str, body: str = "") -> None:
        path = self._bin / tool
        note = f'echo "{tool} $*" >> {self._calls}'
        path.write_text(f"#!{shutil.which('bash')}\n{note}\n{body}\n")
        path.chmod(0o755)

    def run(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SCRIPT], env={"PATH": str(self._bin)}, capture_output=True, text=True, check=False
        )

    def calls(self, tool: str) -> list[str]:
        lines = self._calls.read_text().splitlines() if self._calls.exists() else []
        return [line for line in lines if line.startswith(f"{tool} ")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_root_gets_all_packages(machine: Machine) -> None:
    machine.add("id", "echo 0")
    machine.add("dpkg-query", "echo nats-server")
    machine.add("apt-get")
    done = machine.run()
    assert (done.returncode, done.stderr) == (0, "")
    update, install = machine.calls("apt-get")
    assert update.startswith("apt-get update")
    assert install.startswith("apt-get install")
    assert all(package in install.split() for package in PACKAGES)
    assert machine.calls("sudo") == []


def test_a_user_with_sudo_gets_them_too(machine: Machine) -> None:
    machine.add("id", "echo 1000")
    machine.add("dpkg-query", "echo nats-server")
    machine.add("apt-get")
    machine.add("sudo", '[ "$1" = -n ] || "$@"')
    assert machine.run().returncode == 0
    assert len(machine.calls("apt-get")) == 2


def test_everybody_else_is_told_what_to_do(machine: Machine) -> None:
    machine.add("id", "echo 1000")
    machine.add("apt-get")
    done = machine.run()
    assert done.returncode == 1
    assert "only root may install packages: run `sudo make tools`" in done.stderr
    assert all(package in done.stderr.split() for package in PACKAGES)
    assert machine.calls("apt-get") == []


def test_another_system_is_told_the_packages(machine: Machine) -> None:
    done = machine.run()
    assert done.returncode == 1
    assert "there is no apt-get here" in done.stderr
    assert all(package in done.stderr.split() for package in PACKAGES)


def test_a_failure_of_apt_is_one_of_make_tools(machine: Machine) -> None:
    machine.add("id", "echo 0")
    machine.add("dpkg-query", "echo nats-server")
    machine.add("apt-get", '[ "$1" = update ] || { echo "E: no such package" >&2; exit 100; }')
    done = machine.run()
    assert done.returncode == 100
    assert "E: no such package" in done.stderr
    assert "installed" not in done.stdout
