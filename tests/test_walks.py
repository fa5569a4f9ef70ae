"""The pages of docs/walks are what the tool writes now."""

import pytest

from tools.walks import PAGES, WALKS, render


@pytest.mark.parametrize("page", WALKS)
def test_a_walk_is_current(page: str) -> None:
    assert (PAGES / page).read_text() == render(page), "renew it: python -m tools.walks"
