"""The sentences, word by word."""

import errno
import os
from pathlib import Path

import pytest

from headrace import __version__
from headrace.base.endpoints import Endpoint
from headrace.server import lines
from headrace.server.config.load import load_config

TCP = Endpoint("127.0.0.1", 8090)
HTTP = Endpoint("::1", 3000)


def test_ready() -> None:
    dev = load_config(None, {}, {"server.data_dir": "/data"}, "dev")
    assert lines.ready_line(dev, tcp=TCP, http=HTTP, is_throwaway=True) == (
        f"headrace is ready: headrace {__version__} dev, tcp 127.0.0.1:8090, "
        "http http://[::1]:3000, data /data (thrown away at the end), user iggy/iggy"
    )
    serve = load_config(None, {}, {"server.data_dir": "/da\nta", "server.name": "n1"}, "serve")
    assert lines.ready_line(serve, tcp=TCP, http=None, is_throwaway=False) == (
        f"n1 is ready: headrace {__version__} serve, tcp 127.0.0.1:8090, data /da\\nta"
    )


def test_ready_shows_no_secret() -> None:
    dev = load_config(None, {"HEADRACE_ROOT_PASSWORD": "swordfish"}, {}, "dev")
    line = lines.ready_line(dev, tcp=TCP, http=None, is_throwaway=False)
    assert line.endswith("user iggy")
    assert "swordfish" not in line


def test_plaintext() -> None:
    flags = {"tcp.address": "0.0.0.0:1", "tls.allow_plaintext": "true"}
    tcp_alone = load_config(None, {}, flags, "serve")
    assert lines.plaintext_line(tcp_alone) == (
        "no TLS off loopback at tcp.address = 0.0.0.0:1: passwords and messages travel in clear, "
        "as tls.allow_plaintext = true allows"
    )
    both = load_config(None, {}, flags | {"http.address": "[::]:2"}, "serve")
    assert "at tcp.address = 0.0.0.0:1, http.address = [::]:2: " in lines.plaintext_line(both)
    off = load_config(None, {}, flags | {"tcp.enabled": "false", "http.address": "[::]:2"}, "serve")
    assert "at http.address = [::]:2: " in lines.plaintext_line(off)


def failure(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("number", "holder", "sentence"),
    [
        (
            errno.EADDRINUSE,
            lines.Holder(7, "py\tthon"),
            (
                "127.0.0.1:8090 is taken by process 7 (py\\tthon): choose another port with --tcp "
                "HOST:PORT, or 0 for any"
            ),
        ),
        (
            errno.EADDRINUSE,
            None,
            "127.0.0.1:8090 is taken: choose another port with --tcp HOST:PORT, or 0 for any",
        ),
        (
            errno.EADDRNOTAVAIL,
            None,
            "127.0.0.1:8090 is no address of this machine: choose another with --tcp HOST:PORT",
        ),
        (
            errno.EACCES,
            None,
            "127.0.0.1:8090 may not be used by this user: choose a port above 1023 with --tcp",
        ),
        (errno.EMFILE, None, "127.0.0.1:8090 cannot be listened on: Too many open files"),
    ],
)
def test_listeners(number: int, holder: lines.Holder | None, sentence: str) -> None:
    assert lines.listen_failed("tcp.address", TCP, failure(number), holder) == sentence


def test_folders() -> None:
    folder = Path("/data")
    assert lines.folder_locked(folder, lines.Holder(7, "headrace")) == (
        "/data is in use by process 7 (headrace): stop it, or choose another folder with --data"
    )
    assert lines.folder_locked(folder, None) == (
        "/data is in use by another process: stop it, or choose another folder with --data"
    )
    assert lines.folder_not_at_rest(folder, None).startswith(
        "/data is in use by another process: stop it first"
    )
    assert lines.folder_unusable(folder, failure(errno.EROFS)) == (
        "/data cannot be written by this user: choose another with --data"
    )
    assert lines.folder_unusable(folder, failure(errno.ENOTDIR)) == (
        "/data is not a folder: choose another with --data"
    )
    assert lines.folder_unusable(folder, failure(errno.ENOSPC)) == (
        "/data cannot be used: No space left on device"
    )
    assert lines.folder_refused(folder, "marker: of another cluster") == (
        "/data is refused and unchanged: marker: of another cluster"
    )
    assert "/data holds files" in lines.folder_of_others(folder)


def test_the_rest_is_one_line_each() -> None:
    config = load_config(None, {}, {}, "serve")
    for line in (
        lines.password_line("iggy", "secret"),
        lines.node_failed("a\nb"),
        lines.assertions_off(),
        lines.stopping_line("SIGTERM"),
        lines.full_line(config.server.data_dir),
        lines.space_line(),
        lines.leap_line(believed=0, clock=1 << 63),
        lines.leap_line(believed=1 << 50, clock=0),
        lines.clock_line(0),
        lines.stopped_line(config),
    ):
        assert line.isprintable()
        assert line
    assert "secret" in lines.password_line("iggy", "secret")
