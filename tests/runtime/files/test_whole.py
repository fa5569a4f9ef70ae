"""Whole reads of files that cannot be read everywhere."""

import errno
import os
from pathlib import Path

import pytest

from headrace.runtime.files.whole import read_file


def test_a_sector_that_cannot_be_read_fits_no_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DK5: the rest of the file comes as it is."""
    path = tmp_path / "file"
    path.write_bytes(b"a" * 4096 + b"b" * 4096 + b"c" * 100)
    real = os.pread

    def pread(fd: int, length: int, position: int) -> bytes:
        if position < 8192 and position + length > 4096:
            raise OSError(errno.EIO, "Input/output error")
        return real(fd, length, position)

    monkeypatch.setattr(os, "pread", pread)
    assert read_file(path) == b"a" * 4096 + b"\xff" * 4096 + b"c" * 100


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="link"):
        read_file(tmp_path / "link")
