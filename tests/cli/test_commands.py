"""The commands as a user types them, as processes of their own."""

import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.known_secrets import check_nodes
from tests.watched_nodes import hand_in

pytestmark = pytest.mark.slow

WAIT_SECONDS = 30
HEADRACE = (sys.executable, "-m", "headrace")
ANY_PORTS = ("--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0")


class Dev:
    """A node of `headrace dev` in a folder that it throws away."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [*HEADRACE, "dev", *ANY_PORTS],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline()
        found = re.fullmatch(
            r"headrace is ready: headrace \S+ dev, tcp (\S+), http (\S+), data (\S+)"
            r" \(thrown away at the end\), user iggy/iggy\n",
            self.ready,
        )
        if found is None:
            self.process.kill()
            pytest.fail(f"{self.ready!r}, then {self.process.communicate()}")
        self.tcp, self.http, self.data = found[1], found[2], Path(found[3])


@pytest.fixture
def dev() -> Iterator[Dev]:
    made = Dev()
    yield made
    made.process.kill()
    out, err = made.process.communicate()
    hand_in(made.ready + out + err, made.data)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HEADRACE, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_SECONDS,
    )


def test_dev_ping_and_stop(dev: Dev) -> None:
    """Share: check, about 5 s for this file."""
    done = run("ping", "--address", dev.tcp, "--count", "2", "--interval", "1 ms")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 2
    with urllib.request.urlopen(f"{dev.http}/ping") as answer:
        assert (answer.status, answer.read()) == (200, b"pong")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{dev.http}/streams")
    assert dev.data.is_dir()
    check_nodes(dev.data)  # now: it throws it away
    dev.process.send_signal(signal.SIGTERM)
    out, err = dev.process.communicate(timeout=WAIT_SECONDS)
    assert dev.process.returncode == 0
    assert out == ""
    assert "Traceback" not in err
    assert not dev.data.exists()
    assert run("ping", "--address", dev.tcp).returncode == 5


def test_what_is_taken_is_said(dev: Dev, tmp_path: Path) -> None:
    holder = f"process {dev.process.pid} "
    for flag, address in (("--tcp", dev.tcp), ("--http", dev.http.removeprefix("http://"))):
        done = run("serve", "--data", str(tmp_path / "data"), *ANY_PORTS, flag, address)
        assert done.returncode == 1
        assert f"{address} is taken by {holder}" in done.stderr
        assert flag in done.stderr
        assert "Traceback" not in done.stderr
        hand_in(done.stdout + done.stderr, tmp_path)
    done = run("dev", "--data", str(dev.data), *ANY_PORTS)
    assert done.returncode == 1
    assert f"{dev.data} is in use by {holder}" in done.stderr
    hand_in(done.stdout + done.stderr, dev.data)
    assert dev.data.is_dir()
    assert run("ping", "--address", dev.tcp, "--count", "1").returncode == 0
