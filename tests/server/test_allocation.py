"""The shards of a node: every form, every refusal with its numbers, fake and real machines."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.placement import SHARDS_MAX
from headrace.server.allocation import (
    SYSTEM,
    AllCpus,
    Allocation,
    AllocationError,
    Count,
    CpuRange,
    Numa,
    ShardPlace,
    Topology,
    Wanted,
    allocate,
    parse_shards,
    read_topology,
)

# Two nodes with two cores each, and two hardware threads per core: 0 and 4 are of one core.
TWO_NODES = Topology(
    nodes={0: (0, 1, 4, 5), 1: (2, 3, 6, 7)},
    siblings={cpu: (cpu % 4, cpu % 4 + 4) for cpu in range(8)},
)
FORMS: list[tuple[str, Wanted]] = [
    ("all", AllCpus()),
    ("1", Count(1)),
    ("65534", Count(SHARDS_MAX)),
    ("2..6", CpuRange(2, 6)),
    ("auto", Numa()),
    ("numa:auto", Numa()),
    ("numa:nodes=0,1;cores=4;no_ht=true", Numa((0, 1), 4, no_ht=True)),
    ("numa:no_ht=false", Numa(no_ht=False)),
    ("numa:cores=2;nodes=3", Numa((3,), 2)),
]


def make_machine(
    system: Path, nodes: dict[int, str], siblings: dict[int, str], *, others: Sequence[str] = ()
) -> Path:
    """Write a tree as the kernel shows it."""
    for name in ("possible", "power", *others):
        (system / "node" / name).mkdir(parents=True)
    for node, cpus in nodes.items():
        (system / "node" / f"node{node}").mkdir()
        (system / "node" / f"node{node}" / "cpulist").write_text(f"{cpus}\n")
    for cpu, threads in siblings.items():
        (system / "cpu" / f"cpu{cpu}" / "topology").mkdir(parents=True)
        path = system / "cpu" / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        path.write_text(f"{threads}\n")
    return system


def cpus_of(allocation: Allocation) -> list[tuple[int, ...]]:
    return [place.cpus for place in allocation.shards]


def refusal(wanted: Wanted, allowed: Sequence[int], topology: Topology | None = None) -> str:
    with pytest.raises(AllocationError) as caught:
        allocate(wanted, allowed=allowed, topology=topology, pin_cores=True)
    return str(caught.value)


@pytest.mark.parametrize(("text", "wanted"), FORMS)
def test_every_form_is_read_and_written(text: str, wanted: Wanted) -> None:
    """SH-5."""
    assert parse_shards(text) == wanted
    assert parse_shards(str(wanted)) == wanted


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0", "zero shards: a node has at least 1"),
        ("65535", "too many shards: 65535, and numbers suffice for 65534"),
        ("0..65535", "too many shards: 65535, and numbers suffice for 65534"),
        ("4..4", "the range 4..4 is empty: its end is not part of it"),
        ("4..2", "the range 4..2 is inverted: it ends below 4"),
        ("numa:nodes=0,x", "nodes=0,x is no list of NUMA nodes, such as nodes=0,1"),
        ("numa:nodes=", "nodes= is no list of NUMA nodes, such as nodes=0,1"),
        ("numa:nodes=1,0,1", "NUMA node 1 is named twice"),
        ("numa:cores=0", "zero shards: a node has at least 1"),
        ("numa:cores=four", "cores=four is no number"),
        ("numa:cores=1;cores=2", "numa: has the part cores= twice"),
        ("numa:no_ht=yes", "no_ht=yes is neither true nor false"),
        ("numa:threads=1", "numa: has no part 'threads', but nodes=, cores= and no_ht="),
        ("numa:", "numa: has no part '', but nodes=, cores= and no_ht="),
        ("", "none of the forms"),
        ("-1", "none of the forms"),
        ("1.5", "none of the forms"),
        ("..", "none of the forms"),
        ("1...3", "none of the forms"),
        ("ALL", "none of the forms"),
        ("\u0664", "none of the forms"),
        ("9" * 5000, "none of the forms"),
    ],
)
def test_texts_that_are_refused(text: str, sentence: str) -> None:
    """SH-6 and SH-8: each refusal is a sentence of its own."""
    with pytest.raises(AllocationError) as caught:
        parse_shards(text)
    assert str(caught.value) == sentence


@given(st.text(max_size=30) | st.from_regex(r"(numa:)?[a-z_=;.,0-9]{0,12}", fullmatch=True))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        wanted = parse_shards(text)
    except AllocationError:
        return
    assert parse_shards(str(wanted)) == wanted


def test_a_count_takes_the_lowest_allowed_cpus() -> None:
    """SH-5 and SH-6."""
    chosen = allocate(Count(2), allowed=[7, 3, 5], topology=None, pin_cores=True)
    assert chosen == Allocation((ShardPlace((3,)), ShardPlace((5,))))


def test_a_single_shard_may_use_all_cpus() -> None:
    """SH-7: its threads would share one CPU otherwise; who names a CPU gets it."""
    assert cpus_of(allocate(Count(1), allowed=[0, 1], topology=None, pin_cores=True)) == [()]
    named = allocate(CpuRange(1, 2), allowed=[0, 1], topology=None, pin_cores=True)
    assert cpus_of(named) == [(1,)]


def test_all_is_every_allowed_cpu() -> None:
    """SH-5 and SH-6."""
    chosen = allocate(AllCpus(), allowed=[9, 2], topology=None, pin_cores=True)
    assert cpus_of(chosen) == [(2,), (9,)]


def test_a_range_is_half_open() -> None:
    """SH-5."""
    chosen = allocate(CpuRange(2, 4), allowed=range(8), topology=None, pin_cores=True)
    assert cpus_of(chosen) == [(2,), (3,)]


@pytest.mark.parametrize(
    ("wanted", "allowed", "places"),
    [
        (Numa(), range(8), [(0, 0), (1, 0), (2, 1), (3, 1)]),
        (
            Numa(no_ht=False),
            range(8),
            [(0, 0), (1, 0), (4, 0), (5, 0), (2, 1), (3, 1), (6, 1), (7, 1)],
        ),
        (Numa((1,)), range(8), [(2, 1), (3, 1)]),
        (Numa((1, 0), 1), range(8), [(2, 1), (0, 0)]),
        (Numa(cores=1), range(8), [(0, 0), (2, 1)]),
        (Numa((0,), 3, no_ht=False), range(8), [(0, 0), (1, 0), (4, 0)]),
        (Numa(), [4, 5, 1], [(1, 0), (4, 0)]),  # the other thread of 4 is not allowed
        (Numa(cores=1), [2, 3], [(2, 1)]),  # the other node is not allowed
    ],
)
def test_cores_of_numa_nodes(
    wanted: Numa, allowed: Sequence[int], places: list[tuple[int, int]]
) -> None:
    """SH-5 and SH-6."""
    nodes = {
        node: tuple(cpu for cpu in cpus if cpu in allowed) for node, cpus in TWO_NODES.nodes.items()
    }
    topology = Topology(nodes, TWO_NODES.siblings)
    chosen = allocate(wanted, allowed=allowed, topology=topology, pin_cores=True)
    assert chosen == Allocation(tuple(ShardPlace((cpu,), node) for cpu, node in places))


@pytest.mark.parametrize(
    ("wanted", "allowed", "sentence"),
    [
        (
            Count(3),
            [0, 1],
            (
                "3 shards need 3 CPUs, and this process may use 2 (0, 1); take fewer, or"
                " server.pin_cores = false"
            ),
        ),
        (
            CpuRange(1, 4),
            [0, 1],
            "CPU 2, 3 of the range 1..4 is outside the 2 that this process may use (0, 1)",
        ),
        (Numa((0, 7)), range(8), "there is no NUMA node 7: this machine has 0, 1"),
        (
            Numa((1,), 3),
            range(8),
            "NUMA node 1 has too few cores: 3 wanted, and this process may use 2 of it",
        ),
        (
            Numa((1,), 5, no_ht=False),
            range(8),
            "NUMA node 1 has too few hardware threads: 5 wanted, and this process may use 4 of it",
        ),
        (AllCpus(), [], "zero shards: a node has at least 1"),
        (Count(0), [0, 1], "zero shards: a node has at least 1"),
        (
            AllCpus(),
            range(SHARDS_MAX + 1),
            "too many shards: 65535, and numbers suffice for 65534",
        ),
    ],
)
def test_what_a_machine_does_not_have(
    wanted: Wanted, allowed: Sequence[int], sentence: str
) -> None:
    """SH-6 and SH-8: each refusal is a sentence of its own, with the numbers."""
    assert refusal(wanted, allowed, TWO_NODES) == sentence


def test_a_named_node_without_allowed_cpus() -> None:
    """SH-6."""
    topology = Topology({0: (0,), 1: ()}, {0: (0,)})
    assert refusal(Numa((1,)), [0], topology) == (
        "NUMA node 1 has too few cores: 1 wanted, and this process may use 0 of it"
    )


def test_many_cpus_are_not_all_listed() -> None:
    sentence = refusal(Count(200), range(100))
    assert "may use 100 (0, 1, 2, 3, 4, 5, 6, 7 and 92 more)" in sentence


@pytest.mark.parametrize(("pin_cores", "is_given"), [(False, True), (True, False), (False, False)])
def test_shards_that_share_cpus(pin_cores: bool, is_given: bool) -> None:
    """SH-6 and SH-7: without pinning, or because the folder has that count: one warning."""
    chosen = allocate(
        Count(8), allowed=[0, 1], topology=None, pin_cores=pin_cores, is_given=is_given
    )
    assert chosen == Allocation(
        (ShardPlace(),) * 8, ("8 shards share 2 CPUs (0, 1); they are not pinned",)
    )


def test_the_count_of_a_folder_is_pinned_where_it_can_be() -> None:
    """SH-7."""
    chosen = allocate(Count(2), allowed=[0, 1], topology=None, pin_cores=True, is_given=False)
    assert chosen == Allocation((ShardPlace((0,)), ShardPlace((1,))))


@pytest.mark.parametrize("wanted", [Count(2), AllCpus(), CpuRange(0, 2)])
def test_without_pinning_no_shard_has_cpus_of_its_own(wanted: Wanted) -> None:
    """SH-7."""
    chosen = allocate(wanted, allowed=[0, 1], topology=None, pin_cores=False)
    assert chosen == Allocation((ShardPlace(), ShardPlace()))


def test_numa_without_pinning_is_a_warning() -> None:
    """SH-7: neither core nor memory is bound then."""
    chosen = allocate(Numa(), allowed=range(8), topology=TWO_NODES, pin_cores=False)
    warning = (
        "server.pin_cores = false: the shards of numa:auto (4) are bound to no core, and their"
        " memory to no NUMA node"
    )
    assert chosen == Allocation((ShardPlace(),) * 4, (warning,))


def test_a_machine_is_read(tmp_path: Path) -> None:
    """SH-6: only allowed CPUs count; a node of memory alone has none."""
    system = make_machine(
        tmp_path,
        {0: "0-1,4-5", 1: "2-3,6-7", 10: ""},
        {cpu: f"{cpu % 4},{cpu % 4 + 4}" for cpu in range(8)},
        others=("nodeX", "has_cpu"),
    )
    assert read_topology(system, range(8)) == Topology(
        {**TWO_NODES.nodes, 10: ()}, TWO_NODES.siblings
    )
    assert read_topology(system, [1, 6]).nodes == {0: (1,), 1: (6,), 10: ()}


UNREADABLE = "the topology of the CPUs is unreadable: {system}/"
THREADS = "cpu/cpu0/topology/thread_siblings_list: "
BROKEN: list[tuple[dict[int, str], dict[int, str], str]] = [
    ({}, {}, "no NUMA node: {system}/node names 0 of them"),
    ({0: "zero"}, {}, UNREADABLE + "node/node0/cpulist: 'zero' is no list of CPUs"),
    ({0: "0-"}, {}, UNREADABLE + "node/node0/cpulist: '0-' is no list of CPUs"),
    ({0: "0"}, {}, UNREADABLE + THREADS + "No such file or directory"),
    ({0: "0"}, {0: "0-x"}, UNREADABLE + THREADS + "'0-x' is no list of CPUs"),
]


@pytest.mark.parametrize(("nodes", "siblings", "sentence"), BROKEN)
def test_machines_that_cannot_be_read(
    tmp_path: Path, nodes: dict[int, str], siblings: dict[int, str], sentence: str
) -> None:
    """SH-6: an unreadable topology and a machine without NUMA nodes are two errors."""
    system = make_machine(tmp_path, nodes, siblings)
    with pytest.raises(AllocationError) as caught:
        read_topology(system, [0])
    assert str(caught.value) == sentence.format(system=system)


def test_a_system_that_shows_nothing(tmp_path: Path) -> None:
    """SH-6."""
    with pytest.raises(AllocationError) as caught:
        read_topology(tmp_path, [0])
    assert str(caught.value) == (
        f"the topology of the CPUs is unreadable: {tmp_path}/node: No such file or directory"
    )


def test_this_machine() -> None:
    """SH-5 and SH-6: `auto` gives shards on different allowed CPUs."""
    if not (SYSTEM / "node").exists():
        pytest.skip("no NUMA nodes in /sys here")
    allowed = sorted(os.sched_getaffinity(0))
    topology = read_topology(SYSTEM, allowed)
    chosen = allocate(Numa(), allowed=allowed, topology=topology, pin_cores=True)
    cpus = [cpu for (cpu,) in cpus_of(chosen)]
    assert len(set(cpus)) == len(cpus) > 0
    assert set(cpus) <= set(allowed)
    assert all(place.node in topology.nodes for place in chosen.shards)
