"""The wheel, with the native kernel and without, built once for all tests that need it."""

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lanes.building import Wheel, build_wheel, copy_project


@pytest.fixture(params=[True, False], ids=["native", "twin"])
def wheel(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    worker_id: str,
    needs: Callable[[str], str],
) -> Wheel:
    """Give the wheel of this tree; whoever asks first builds it, and the others wait."""
    has_compiler = bool(request.param)
    compiler = needs("gcc") if has_compiler else "no-such-compiler"
    place = tmp_path_factory.getbasetemp()
    if worker_id != "master":
        place = place.parent  # of all workers of this run
    kept = place / f"wheel-{has_compiler}"
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            built = build_wheel(copy_project(tmp_path / "project"), compiler)
            shutil.copytree(built.parent, kept)
    (path,) = kept.glob("*.whl")
    return Wheel(path, compiler, has_compiler)
