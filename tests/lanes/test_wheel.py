"""Two builds of one tree, in two places and at two times, give the same wheel byte for byte."""

import zipfile
from pathlib import Path

import pytest

from tests.lanes.building import Wheel, build_wheel, copy_project


@pytest.mark.slow
def test_the_wheel_is_reproducible(tmp_path: Path, wheel: Wheel) -> None:
    """Share: check, about 10 s each."""
    project = copy_project(tmp_path / "another place" / "second")
    for path in project.rglob("*"):
        path.touch()  # As a later check-out leaves them.
    again = build_wheel(project, wheel.compiler)
    assert differing(wheel.path, again) == []
    assert wheel.path.read_bytes() == again.read_bytes()


@pytest.mark.slow
def test_what_is_in_the_wheel(wheel: Wheel) -> None:
    with zipfile.ZipFile(wheel.path) as archive:
        names = archive.namelist()
    assert any(name.endswith(".so") for name in names) == wheel.has_compiler
    assert "headrace/py.typed" in names


def differing(left: Path, right: Path) -> list[str]:
    """Name the members that differ, for whoever must find out why."""
    with zipfile.ZipFile(left) as one, zipfile.ZipFile(right) as other:
        assert one.namelist() == other.namelist()
        return [name for name in one.namelist() if one.read(name) != other.read(name)]
