"""What every test has in common."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.crossings import of_this_process
from tests.known_secrets import check_nodes
from tests.watched_nodes import watched_nodes

# The same tree gives the same result; deadlines would assert timing.
settings.register_profile("headrace", derandomize=True, deadline=None, database=None)
settings.load_profile("headrace")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="renew what scenario files print")
    parser.addoption("--list-skipped", metavar="FILE", help="add a line for each skipped test")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Add up what crossed the bus of nodes with several shards, and fail if that was little."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["crossings"] = vars(of_this_process)
        return
    if not of_this_process.are_enough and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker of this run has counted."""
    of_this_process.add(**getattr(node, "workeroutput", {}).get("crossings", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what crossed the bus, and add each skipped test to a list that outlives this run."""
    if of_this_process.received:
        terminalreporter.write_line(of_this_process.describe())
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
