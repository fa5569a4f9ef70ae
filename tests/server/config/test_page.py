"""The page of the guide is what the code says."""

from headrace.server.config.sections import SETTINGS
from tools.config_page import PAGE, render


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == render(), "renew it: python -m tools.config_page"


def test_every_key_is_told() -> None:
    page = render()
    for declared in SETTINGS.values():
        assert f"| `{declared.key}` |" in page
        assert declared.setting.meaning in page
