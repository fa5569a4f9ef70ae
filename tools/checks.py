"""Runs tests, scenarios and seeds against one mutant, in child processes.

    parent     has imported pytest and whatever else the checks need, but nothing of headrace
    child      forked for one lane of one mutant: imports headrace with the edit in place, runs the
               checks it is given and ends at the first that fails

A check is a test by its node id, or a seed as `groups 7` or `nodes 7`. A signal ends a child that
exceeds the time limit of a check, a multiple of what the check takes without a mutant.
"""

import builtins
import importlib
import importlib.util
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import NoReturn

import msgspec
import pytest
from hypothesis import Phase, settings

from tools.mutants import PACKAGES, ROOT, SOURCE, Mutant

SEEDS = "seeds"
# The cheapest first.
LANES = {
    "scenarios": "tests/test_scenarios.py",
    **{f"tests of {package}": f"tests/{package}" for package in PACKAGES},
    SEEDS: "",
}
SEED_COUNTS = {"groups": 20, "nodes": 10}  # from 1 on, and all stored ones
QUICK_SECONDS = 0.3
# All seconds are those of the processor, so that other work on the machine changes no verdict.
START_SECONDS = 30  # in which a child has imported what it needs
SECONDS_MIN = 3
SLOWER = 5  # A mutant may take so many times what the code as it is takes.
WAITING = 40  # The clock may take so many times the limit: a mutant that waits for something.
MEMORY_BYTES_MAX = 4 << 30
OURS = ("headrace", "tests", "tools", "bench", "conftest")
BETWEEN = ""  # the check during imports and collection


class Measured(msgspec.Struct):
    """What the checks of a lane do without any mutant."""

    seconds: dict[str, float]
    failed: list[str]
    reached_by: dict[str, list[str]]  # the checks that reach a mutant, by its name
    modules: list[str]  # imported by the checks, but not ours

    def select(self, mutant: Mutant, *, is_quick: bool) -> dict[str, float]:
        """Return the quick or the slow checks that reach a mutant, the quickest first."""
        reached_by = frozenset(self.reached_by[mutant.name])
        is_in_all = BETWEEN in reached_by
        return {
            check: seconds
            for check, seconds in sorted(self.seconds.items(), key=lambda each: each[1])
            if (is_in_all or check in reached_by) and (seconds < QUICK_SECONDS) == is_quick
        }


class Note(msgspec.Struct):
    """What a child leaves behind: the check that it was at, and how that failed."""

    check: str = BETWEEN
    how: str = ""


class _Edited(SourceFileLoader):
    """Imports one module with other text, and everything else as usual."""

    def __init__(self, path: Path, text: bytes) -> None:
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        super().__init__(".".join(parts[:-1] if parts[-1] == "__init__" else parts), str(path))
        self._text = text

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def get_code(self, fullname: str) -> CodeType:
        assert fullname == self.name
        code: CodeType = compile(self._text, self.path, "exec", dont_inherit=True)
        return code


def with_marks(path: Path, mutants: dict[int, Mutant]) -> bytes:
    """Return the text of a module, with a call of `_reached_` at each mutant."""
    parts: list[tuple[int, str]] = []
    for number, mutant in mutants.items():
        if mutant.is_statement:
            parts.append((mutant.start, f"_reached_({number}); "))
        else:
            parts += [(mutant.start, f"(_reached_({number}) or ("), (mutant.end, "))")]
    text = path.read_bytes()
    for at, part in sorted(parts, key=lambda each: each[0], reverse=True):
        text = text[:at] + part.encode() + text[at:]
    return text


class _Watch:
    """Sees in a child which checks begin and fail; the first that fails ends the child."""

    def __init__(self, note: Path, seconds: dict[str, float]) -> None:
        self._note = note
        self._seconds = seconds
        self.checks: list[str] | None = list(seconds)
        self._limit(START_SECONDS)

    def _limit(self, seconds: float) -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, WAITING * seconds)

    def begin(self, check: str) -> None:
        self._limit(SECONDS_MIN + SLOWER * self._seconds.get(check, 0.0))
        self._note.write_bytes(msgspec.json.encode(Note(check)))

    def fail(self, check: str, how: str) -> None:
        self._note.write_bytes(msgspec.json.encode(Note(check, how)))
        os._exit(1)


class _Meter(_Watch):
    """Takes the seconds of each check and the mutants it reaches, without any edit, and goes on."""

    def __init__(self, mutants: Sequence[Mutant]) -> None:
        self.checks = None  # all
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self.reached_by: dict[str, list[str]] = {each.name: [] for each in mutants}
        self._mutants = mutants
        self._check = BETWEEN
        self._began = time.process_time()
        self._reached: set[int] = set()
        vars(builtins)["_reached_"] = self._reached.add
        for path in {each.path: None for each in mutants}:
            here = {at: each for at, each in enumerate(mutants) if each.path == path}
            sys.meta_path.insert(0, _Edited(path, with_marks(path, here)))

    def begin(self, check: str) -> None:
        if self._check != BETWEEN:
            self.seconds[self._check] = time.process_time() - self._began
        for number in self._reached:
            self.reached_by[self._mutants[number].name].append(self._check)
        self._reached.clear()
        self._check, self._began = check, time.process_time()

    def fail(self, check: str, how: str) -> None:
        self.failed.append(f"{check} {how}")


class _Plugin:
    """Has pytest run the checks that are wanted, in their order, and tell of each."""

    def __init__(self, watch: _Watch) -> None:
        self._watch = watch

    def pytest_configure(self) -> None:
        profile = settings.get_profile("headrace")  # that of tests/conftest.py
        phases = (Phase.explicit, Phase.generate)  # A failure need not be made small.
        settings.register_profile("mutants", profile, phases=phases)
        settings.load_profile("mutants")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._watch.checks is not None:
            found = {item.nodeid: item for item in items}
            items[:] = [found[check] for check in self._watch.checks if check in found]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._watch.begin(nodeid)

    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> pytest.TestReport | None:
        error = call.excinfo
        if error is not None and not error.errisinstance(pytest.skip.Exception):
            is_ours = Path(error.traceback[-1].path).is_relative_to(SOURCE)
            is_assertion = is_ours and error.errisinstance(AssertionError)
            self._watch.fail(item.nodeid, "by an assertion" if is_assertion else "failed")
        return None


def measure(mutants: Sequence[Mutant], lane: str) -> Measured:
    """Run all checks of a lane on the code as it is."""
    with tempfile.TemporaryDirectory(prefix="headrace-checks-") as folder:
        result = Path(folder) / "result"

        def run() -> bool:
            before = list(sys.modules)
            meter = _Meter(mutants)
            if not _run_lane(lane, meter, folder):
                meter.failed.append(lane)
            meter.begin(BETWEEN)
            new = [each for each in sys.modules if each not in before]
            modules = [each for each in new if each.partition(".")[0] not in OURS]
            measured = Measured(meter.seconds, meter.failed, meter.reached_by, modules)
            result.write_bytes(msgspec.json.encode(measured))
            return True

        ended = _fork(run)
        assert ended == 0, f"the child that measures ended with {ended}"
        return msgspec.json.decode(result.read_bytes(), type=Measured)


def preload(modules: list[str]) -> None:
    """Import what the checks need and is not ours, so that no child has to."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError:  # made by another module, such as six.moves
            continue
    assert "headrace" not in sys.modules


def run_checks(mutant: Mutant, lane: str, seconds: dict[str, float]) -> str:
    """Run checks of one lane against a mutant; return the one that failed and how, or nothing."""
    with tempfile.TemporaryDirectory(prefix="headrace-checks-") as folder:
        note = Path(folder) / "note"
        note.write_bytes(msgspec.json.encode(Note()))

        def run() -> bool:
            sys.meta_path.insert(0, _Edited(mutant.path, mutant.edited))
            return _run_lane(lane, _Watch(note, seconds), folder)

        ended = _fork(run)
        left = msgspec.json.decode(note.read_bytes(), type=Note)
    if ended == 0:
        return ""
    is_late = ended in (-signal.SIGPROF, -signal.SIGALRM)
    how = "timed out" if is_late else left.how or "did not end well"
    return f"{left.check or 'imports'} {how}"


def _fork(run: Callable[[], bool]) -> int:
    """Run something in a child; return its exit code, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        _run_as_child(run)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run_as_child(run: Callable[[], bool]) -> NoReturn:
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for each in (0, 1, 2):
            os.dup2(nowhere, each)
        sys.path.insert(0, str(SOURCE.parent))  # before any installed headrace
        sys.dont_write_bytecode = True
        os.chdir(ROOT)
        code = 0 if run() else 1
    finally:
        os._exit(code)


def _run_lane(lane: str, watch: _Watch, folder: str) -> bool:
    """Run the checks of a lane; return whether all passed."""
    if lane == SEEDS:
        _run_seeds(watch)
        return True
    files = [LANES[lane]]
    if watch.checks is not None:
        files = list({check.partition("::")[0]: None for check in watch.checks})
    options = ["-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist"]
    # Rewritten assertions would need an import hook before that of the edit.
    options += ["--assert=plain", f"--basetemp={folder}/tests"]
    return pytest.main([*options, *files], [_Plugin(watch)]) == pytest.ExitCode.OK


def _run_seeds(watch: _Watch) -> None:
    simulate = importlib.import_module("tools.simulate")  # It imports headrace.
    kinds = {"groups": simulate.GROUPS, "nodes": simulate.NODES}

    def all_seeds() -> Iterator[str]:
        for kind, count in SEED_COUNTS.items():
            for seed in (*kinds[kind].stored_seeds(), *range(1, count + 1)):
                yield f"{kind} {seed}"

    for check in watch.checks or all_seeds():
        watch.begin(check)
        kind, _, seed = check.partition(" ")
        report = kinds[kind].run_seed(int(seed))
        if report.outcome.name in ("VIOLATION", "LIVENESS"):
            is_assertion = report.reason.startswith("crashed: AssertionError")
            watch.fail(check, "by an assertion" if is_assertion else "failed")
