"""Locks as `make lock` writes them."""

import re
from pathlib import Path

import pytest

from tools.lockfile import Locked, LockError, read_lock

ROOT = Path(__file__).parents[2]
DIGEST = "0123456789abcdef" * 4
HASHED = f"    --hash=sha256:{DIGEST}"


def read(folder: Path, *lines: str) -> list[Locked]:
    path = folder / "some.lock"
    path.write_text("\n".join(lines) + "\n")
    return read_lock(path)


@pytest.mark.parametrize(
    "path", sorted(ROOT.glob("requirements/*.lock")), ids=lambda path: path.name
)
def test_our_locks_pin_and_hash_everything(path: Path) -> None:
    """`pip install --require-hashes` would refuse otherwise, on another machine, later."""
    packages = read_lock(path)
    names = [package.name for package in packages]
    heads = [line for line in path.read_text().splitlines() if not line.startswith(" ")]
    assert len(names) == len(heads)
    assert names == sorted(names)
    assert all(package.wanted_by for package in packages)


def test_a_package_with_all_there_is(tmp_path: Path) -> None:
    assert read(
        tmp_path,
        "uvloop==0.23.0 ; sys_platform != 'win32' \\",
        HASHED + " \\",
        HASHED,
        "    # via",
        "    #   headrace (pyproject.toml)",
        "    #   other",
        "xxhash==4.1.0 \\",
        HASHED,
        "    # via headrace (pyproject.toml)",
    ) == [
        Locked(
            "uvloop",
            "0.23.0",
            "sys_platform != 'win32'",
            (DIGEST, DIGEST),
            ("headrace (pyproject.toml)", "other"),
        ),
        Locked("xxhash", "4.1.0", "", (DIGEST,), ("headrace (pyproject.toml)",)),
    ]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ((HASHED,), ":1: no package stands before"),
        (("xxhash>=4 \\", HASHED), ":1: no package stands before 'xxhash>=4"),
        (("a==1 \\", HASHED, "--index-url x"), ":3: no line of a lock: '--index-url x'"),
        (("a==1 \\", "    --hash=md5:00"), ":2: no line of a lock"),
        (("a==1 \\", "    # via b"), "a has no hash"),
    ],
)
def test_what_is_no_lock_is_refused(tmp_path: Path, lines: tuple[str, ...], told: str) -> None:
    with pytest.raises(LockError, match=re.escape(told)):
        read(tmp_path, *lines)
