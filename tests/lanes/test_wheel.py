"""Two builds of one tree, in two places and at two times, give the same wheel byte for byte."""

import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lanes.test_install import BUILT_FROM, ROOT, copy, run

EPOCH = "1700000000"  # what SOURCE_DATE_EPOCH says: the time of every file in the archive


@pytest.mark.slow
@pytest.mark.parametrize("has_compiler", [True, False], ids=["native", "twin"])
def test_the_wheel_is_reproducible(
    tmp_path: Path, needs: Callable[[str], str], has_compiler: bool
) -> None:
    """Share: check, about 10 s each."""
    compiler = needs("gcc") if has_compiler else "no-such-compiler"
    first = tmp_path / "first"
    first.mkdir()
    for name in BUILT_FROM:
        copy(ROOT / name, first / name)
    second = tmp_path / "another place" / "second"
    shutil.copytree(first, second)
    for path in second.rglob("*"):
        path.touch()  # As a later check-out leaves them.
    wheels = [build(project, compiler) for project in (first, second)]
    assert differing(*wheels) == []
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    with zipfile.ZipFile(wheels[0]) as archive:
        names = archive.namelist()
    assert any(name.endswith(".so") for name in names) == has_compiler
    assert "headrace/py.typed" in names


def build(project: Path, compiler: str) -> Path:
    """Build the wheel of a tree in its place; give the file."""
    out = project / "out"
    options = ("--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", str(out))
    run(
        sys.executable,
        *("-m", "pip", "wheel", *options, str(project)),
        CC=compiler,
        SOURCE_DATE_EPOCH=EPOCH,
    )
    (wheel,) = out.glob("*.whl")
    return wheel


def differing(left: Path, right: Path) -> list[str]:
    """Name the members that differ, for whoever must find out why."""
    with zipfile.ZipFile(left) as one, zipfile.ZipFile(right) as other:
        assert one.namelist() == other.namelist()
        return [name for name in one.namelist() if one.read(name) != other.read(name)]
