"""Mutants that a tool makes of the core: they are code, and their verdicts are kept."""

import ast

from tools.mutate import SAMPLE, SOURCE, SURVIVED, Mutant, draw_sample, find_mutants, read_verdicts


def edited(mutant: Mutant) -> bytes:
    data = (SOURCE / mutant.module).read_bytes()
    assert data[mutant.start : mutant.end].decode() == mutant.old
    return data[: mutant.start] + mutant.new.encode() + data[mutant.end :]


def test_mutants_of_the_sample_are_other_code() -> None:
    sample = draw_sample()
    assert len({each.name for each in sample}) == len(sample) == SAMPLE
    for mutant in sample[::10]:
        before = ast.dump(ast.parse((SOURCE / mutant.module).read_bytes()))
        assert ast.dump(ast.parse(edited(mutant))) != before, mutant.name


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


def test_every_survivor_is_explained() -> None:
    survivors = [each for each in read_verdicts().values() if each.killed_by == SURVIVED]
    assert [each.name for each in survivors if not each.explanation] == []
