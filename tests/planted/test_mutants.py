"""Mutants that a tool makes of the core: they are code, they run, and their verdicts are kept."""

import ast
import subprocess
import sys

import msgspec
import pytest

from tools.checks import Measured, with_marks
from tools.mutants import ROOT, SAMPLE, SOURCE, Mutant, draw_sample, find_mutants
from tools.mutate import SURVIVED, WAITING, Verdict, read_verdicts, renew

PURGE = "tests/test_scenarios.py::test_scenario[partitions/purge]"
# A process of its own, as the one that judges must not have imported headrace.
RUN = """
import sys, msgspec
from tools import checks, mutants
mutant = msgspec.json.decode(sys.argv[1], type=mutants.Mutant)
print(checks.run_checks(mutant, "scenarios", {sys.argv[2]: float(sys.argv[3])}))
"""


def run_purge(mutant: Mutant) -> str:
    command = [sys.executable, "-c", RUN, msgspec.json.encode(mutant).decode(), PURGE, "1.0"]
    return subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_mutants_of_the_sample_are_other_code() -> None:
    sample = draw_sample(read_verdicts())
    assert len({each.name for each in sample}) == len(sample) == SAMPLE
    for mutant in sample[::10]:
        data = mutant.path.read_bytes()
        assert data[mutant.start : mutant.end].decode() == mutant.old
        assert ast.dump(ast.parse(mutant.edited)) != ast.dump(ast.parse(data)), mutant.name


def test_the_stored_sample_stays_and_what_is_gone_is_replaced() -> None:
    names = [each.name for each in draw_sample()]
    last = max(find_mutants(), key=lambda each: each.rank).name  # that no draw would bring
    stored = {name: Verdict(name, SURVIVED) for name in (*names[2:], "vsr: gone", last)}
    renewed = renew(stored, draw_sample(stored))
    assert len(renewed) == SAMPLE
    assert [*renewed] == [*names[2:], last, names[0]]
    assert renewed[last].killed_by == SURVIVED
    assert renewed[names[0]] == Verdict(names[0], WAITING, replaces="vsr: gone")


def test_the_sample_is_stored() -> None:
    assert len(read_verdicts()) == SAMPLE


def test_marks_are_code_too() -> None:
    by_module: dict[str, dict[int, Mutant]] = {}
    for number, mutant in enumerate(find_mutants()):
        by_module.setdefault(mutant.module, {})[number] = mutant
    for module, mutants in by_module.items():
        path = SOURCE / module
        text = with_marks(path, mutants)
        assert text.count(b"\n") == path.read_bytes().count(b"\n")
        assert text.count(b"_reached_") == len(mutants)
        ast.parse(text)


def test_mutants_are_of_every_kind_and_package() -> None:
    found = list(find_mutants())
    assert {each.package for each in found} == {"vsr", "storage", "partitions", "shard"}
    assert {each.kind.split()[0] for each in found} == {
        "guard",
        "comparison",
        "condition",
        "one",
        "step",
    }


def test_what_only_asserts_is_no_target() -> None:
    functions = {each.function for each in find_mutants()}
    assert "Ring.check" not in functions
    assert "Connection.check_session" in functions  # It refuses, and is no check.


def test_a_mutant_meets_the_checks_that_reach_it_the_quickest_first() -> None:
    one, other = draw_sample()[:2]
    seconds = {"a": 0.2, "b": 0.1, "c": 0.05, "d": 5.0}
    measured = Measured(seconds, [], {one.name: ["a", "c"], other.name: ["", "a"]}, [])
    assert [*measured.select(one, is_quick=True)] == ["c", "a"]
    assert [*measured.select(one, is_quick=False)] == []
    assert [*measured.select(other, is_quick=True)] == ["c", "b", "a"]  # An import reaches it.
    assert [*measured.select(other, is_quick=False)] == ["d"]


@pytest.mark.slow
def test_a_check_fails_with_a_mutant_and_passes_without() -> None:
    mutant = next(each for each in find_mutants() if each.old == "self._offsets.clear()")
    assert run_purge(mutant).startswith(PURGE)
    assert run_purge(msgspec.structs.replace(mutant, new=mutant.old)) == ""


def test_every_survivor_is_explained() -> None:
    survivors = [each for each in read_verdicts().values() if each.killed_by == SURVIVED]
    assert [each.name for each in survivors if not each.explanation] == []
