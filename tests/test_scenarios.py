"""Every scenario file prints what it says; they read as documentation."""

from pathlib import Path

import pytest

from tests.scenarios import FILES, check_scenario, name_of, open_stage


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_scenario(path: Path, is_rewriting: bool) -> None:
    check_scenario(path, open_stage(path), is_rewriting=is_rewriting)
