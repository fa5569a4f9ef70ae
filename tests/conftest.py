"""What every test has in common."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.known_secrets import check_nodes
from tests.watched_nodes import watched_nodes

# The same tree gives the same result; deadlines would assert timing.
settings.register_profile("headrace", derandomize=True, deadline=None, database=None)
settings.load_profile("headrace")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="renew what scenario files print")
    parser.addoption("--list-skipped", metavar="FILE", help="add a line for each skipped test")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Add the file and the reason of each skipped test to a list that outlives this run."""
    file = terminalreporter.config.getoption("--list-skipped")
    if file is None:
        return
    with Path(file).open("a") as listed:
        for report in terminalreporter.stats.get("skipped", []):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            listed.write(f"{report.nodeid.partition('::')[0]}: {reason}\n")


@pytest.fixture
def is_rewriting(request: pytest.FixtureRequest) -> bool:
    """Whether scenario files are to be renewed."""
    return bool(request.config.getoption("--rewrite"))


@pytest.fixture
def needs() -> Callable[[str], str]:
    """Give the path of a tool that a lane needs, or skip the lane and say why."""

    def find(tool: str) -> str:
        path = shutil.which(tool)
        if path is None:
            pytest.skip(f"this lane needs {tool}, which is not installed")
        return path

    return find


@pytest.fixture(scope="session", autouse=True)
def _no_secret_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Search what every node of this run left, and at its end all temporary folders."""
    with watched_nodes():
        yield
    check_nodes(tmp_path_factory.getbasetemp())
