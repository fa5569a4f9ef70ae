"""Chooses the shards of a node and the CPUs of each.

```
parse_shards     text of `server.shards` -> what is wanted          pure
read_topology    /sys/devices/system -> nodes and hardware threads  reads files
allocate         wanted, allowed CPUs, topology -> shards           pure
```

| form | shards |
|---|---|
| `N` | N shards on the N lowest allowed CPUs |
| `all` | one for every allowed CPU |
| `A..B` | one for each of the CPUs A to B - 1 |
| `numa:auto`, `auto` | one for every core of every NUMA node, on one hardware thread of it |
| `numa:nodes=0,1;cores=4;no_ht=true` | as many cores of these nodes; each part may be left out |

With `no_ht=false`, `cores` counts hardware threads. Nodes are taken in the order of their naming.

Memory is bound to a NUMA node by its first use: a process that is pinned before it allocates gets
its pages from the node of its CPU. No library that we depend on can do more.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec

from headrace.base.placement import SHARDS_MAX

SYSTEM = Path("/sys/devices/system")
AUTO = "auto"

_ALL = "all"
_NUMA = "numa:"
_NUMBER = re.compile(r"[0-9]{1,20}")
_RANGE = re.compile(r"([0-9]{1,20})\.\.([0-9]{1,20})")
_NODE = re.compile(r"node([0-9]{1,6})")
_CPUS = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_CPUS_SHOWN_MAX = 8


class AllocationError(ValueError):
    """The shards that are wanted cannot be; the text is a sentence with the numbers."""


class Count(msgspec.Struct, frozen=True, tag=True):
    """A number of shards."""

    shards: int

    def __str__(self) -> str:
        return str(self.shards)


class AllCpus(msgspec.Struct, frozen=True, tag=True):
    """One shard for every allowed CPU."""

    def __str__(self) -> str:
        return _ALL


class CpuRange(msgspec.Struct, frozen=True, tag=True):
    """One shard for each CPU from the first up to the end, which is not part of it."""

    first: int
    end: int

    def __str__(self) -> str:
        return f"{self.first}..{self.end}"


class Numa(msgspec.Struct, frozen=True, tag=True):
    """Cores of NUMA nodes; no nodes are all of them, no number of cores is all of a node."""

    nodes: tuple[int, ...] = ()
    cores: int | None = None
    no_ht: bool = True

    def __str__(self) -> str:
        if self == Numa():
            return f"{_NUMA}{AUTO}"
        nodes = [f"nodes={','.join(map(str, self.nodes))}"] if self.nodes else []
        cores = [] if self.cores is None else [f"cores={self.cores}"]
        return _NUMA + ";".join([*nodes, *cores, f"no_ht={'true' if self.no_ht else 'false'}"])


Wanted: TypeAlias = Count | AllCpus | CpuRange | Numa

# Of a folder that no node has used, where `server.shards` is empty.
NEW_FOLDER: Mapping[str, Wanted] = {"serve": Numa(), "dev": Count(1)}


@dataclass(frozen=True)
class Topology:
    """The allowed CPUs of each NUMA node, and the hardware threads that share a core."""

    nodes: Mapping[int, tuple[int, ...]]
    siblings: Mapping[int, tuple[int, ...]]


@dataclass(frozen=True)
class ShardPlace:
    """Where a shard runs: its CPUs (none: it is not pinned), and their NUMA node if it counts."""

    cpus: tuple[int, ...] = ()
    node: int | None = None


@dataclass(frozen=True)
class Allocation:
    """All shards of a node in the order of their numbers, and what the operator should know."""

    shards: tuple[ShardPlace, ...]
    warnings: tuple[str, ...] = ()


def parse_shards(text: str) -> Wanted:
    """Return what a text asks for.

    Raises:
        AllocationError: It is none of the forms, or asks for what no machine has.
    """
    if text == _ALL:
        return AllCpus()
    if text == AUTO:
        return Numa()
    if text.startswith(_NUMA):
        return _parse_numa(text.removeprefix(_NUMA))
    if _NUMBER.fullmatch(text):
        return Count(_check_count(int(text)))
    bounds = _RANGE.fullmatch(text)
    if bounds is None:
        raise AllocationError("none of the forms")
    return _check_range(CpuRange(int(bounds[1]), int(bounds[2])))


def allocate(
    wanted: Wanted,
    *,
    allowed: Sequence[int],
    topology: Topology | None,
    pin_cores: bool,
    is_given: bool = True,
) -> Allocation:
    """Choose the shards of a node (SH-5).

    `allowed` are the CPUs that this process may use (SH-6); the topology is needed for `Numa`
    alone. A count that was not given, but is that of the folder, is a reason to share CPUs.

    Raises:
        AllocationError: There are not as many CPUs, or not those.
    """
    cpus = sorted(allowed)
    if isinstance(wanted, Count):
        return _allocate_count(wanted.shards, cpus, is_pinned=pin_cores, is_given=is_given)
    places = _choose(wanted, cpus, topology)
    shards = _check_count(len(places))
    if pin_cores:
        return Allocation(tuple(places))
    warnings = (_unbound(shards, wanted),) if isinstance(wanted, Numa) else ()
    return Allocation((ShardPlace(),) * shards, warnings)


def read_topology(system: Path, allowed: Sequence[int]) -> Topology:
    """Read the NUMA nodes and hardware threads of the allowed CPUs, below a folder like `SYSTEM`.

    Raises:
        AllocationError: They cannot be read, or there is no node.
    """
    path = system / "node"
    try:
        found = [match for each in path.iterdir() if (match := _NODE.fullmatch(each.name))]
        nodes: dict[int, tuple[int, ...]] = {}
        for number in sorted(int(match[1]) for match in found):
            path = system / "node" / f"node{number}" / "cpulist"
            nodes[number] = tuple(cpu for cpu in _read_cpus(path) if cpu in allowed)
        siblings: dict[int, tuple[int, ...]] = {}
        for cpu in (cpu for cpus in nodes.values() for cpu in cpus):
            path = system / "cpu" / f"cpu{cpu}" / "topology" / "thread_siblings_list"
            siblings[cpu] = _read_cpus(path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise AllocationError(f"the topology of the CPUs is unreadable: {path}: {why}") from None
    if not nodes:
        raise AllocationError(f"no NUMA node: {path} names 0 of them")
    return Topology(nodes, siblings)


def _check_count(shards: int) -> int:
    """Return a number of shards that a node can have (SH-8)."""
    if shards == 0:
        raise AllocationError("zero shards: a node has at least 1")
    if shards > SHARDS_MAX:
        raise AllocationError(f"too many shards: {shards}, and numbers suffice for {SHARDS_MAX}")
    return shards


def _check_range(cpus: CpuRange) -> CpuRange:
    if cpus.end == cpus.first:
        raise AllocationError(f"the range {cpus} is empty: its end is not part of it")
    if cpus.end < cpus.first:
        raise AllocationError(f"the range {cpus} is inverted: it ends below {cpus.first}")
    _check_count(cpus.end - cpus.first)
    return cpus


def _parse_numa(text: str) -> Numa:
    if text == AUTO:
        return Numa()
    parts: dict[str, str] = {}
    for part in text.split(";"):
        name, _, value = part.partition("=")
        if name not in ("nodes", "cores", "no_ht"):
            raise AllocationError(f"numa: has no part {name!r}, but nodes=, cores= and no_ht=")
        if name in parts:
            raise AllocationError(f"numa: has the part {name}= twice")
        parts[name] = value
    return Numa(
        nodes=_parse_nodes(parts["nodes"]) if "nodes" in parts else (),
        cores=_parse_cores(parts["cores"]) if "cores" in parts else None,
        no_ht=_parse_no_ht(parts.get("no_ht", "true")),
    )


def _parse_nodes(text: str) -> tuple[int, ...]:
    numbers = text.split(",")
    if not all(_NUMBER.fullmatch(each) for each in numbers):
        raise AllocationError(f"nodes={text} is no list of NUMA nodes, such as nodes=0,1")
    nodes = tuple(map(int, numbers))
    for index, node in enumerate(nodes):
        if node in nodes[:index]:
            raise AllocationError(f"NUMA node {node} is named twice")
    return nodes


def _parse_cores(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise AllocationError(f"cores={text} is no number")
    return _check_count(int(text))


def _parse_no_ht(text: str) -> bool:
    if text not in ("true", "false"):
        raise AllocationError(f"no_ht={text} is neither true nor false")
    return text == "true"


def _allocate_count(shards: int, cpus: list[int], *, is_pinned: bool, is_given: bool) -> Allocation:
    """Place so many shards on the lowest CPUs.

    A single shard is not pinned: its threads would share one CPU while nobody uses the others.
    """
    _check_count(shards)
    if shards > len(cpus) and is_pinned and is_given:
        raise AllocationError(
            f"{shards} shards need {shards} CPUs, and this process may use {len(cpus)}"
            f" ({_show(cpus)}); take fewer, or server.pin_cores = false"
        )
    if shards > len(cpus):
        warning = f"{shards} shards share {len(cpus)} CPUs ({_show(cpus)}); they are not pinned"
        return Allocation((ShardPlace(),) * shards, (warning,))
    if not is_pinned or shards == 1:
        return Allocation((ShardPlace(),) * shards)
    return Allocation(tuple(ShardPlace((cpu,)) for cpu in cpus[:shards]))


def _choose(
    wanted: AllCpus | CpuRange | Numa, cpus: list[int], topology: Topology | None
) -> list[ShardPlace]:
    match wanted:
        case AllCpus():
            return [ShardPlace((cpu,)) for cpu in cpus]
        case CpuRange():
            return [ShardPlace((cpu,)) for cpu in _check_allowed(wanted, cpus)]
        case Numa():
            assert topology is not None
            return _choose_cores(wanted, topology)


def _check_allowed(wanted: CpuRange, cpus: list[int]) -> range:
    asked = range(wanted.first, wanted.end)
    outside = [cpu for cpu in asked if cpu not in cpus]
    if outside:
        raise AllocationError(
            f"CPU {_show(outside)} of the range {wanted} is outside the {len(cpus)} that this"
            f" process may use ({_show(cpus)})"
        )
    return asked


def _choose_cores(wanted: Numa, topology: Topology) -> list[ShardPlace]:
    for node in wanted.nodes:
        if node not in topology.nodes:
            raise AllocationError(
                f"there is no NUMA node {node}: this machine has {_show(list(topology.nodes))}"
            )
    places = []
    # A node without CPUs, or without an allowed one, is nobody's wish unless it is named.
    for node in wanted.nodes or [node for node, cpus in topology.nodes.items() if cpus]:
        usable = topology.nodes[node]
        if wanted.no_ht:
            usable = tuple(cpu for cpu in usable if _is_first_thread(cpu, usable, topology))
        if len(usable) < (wanted.cores or 1):
            raise AllocationError(_too_few(node, wanted, len(usable)))
        places += [ShardPlace((cpu,), node) for cpu in usable[: wanted.cores]]
    return places


def _is_first_thread(cpu: int, usable: tuple[int, ...], topology: Topology) -> bool:
    """Whether no lower hardware thread of the same core can be used."""
    return not any(other < cpu and other in usable for other in topology.siblings[cpu])


def _too_few(node: int, wanted: Numa, usable: int) -> str:
    kind = "cores" if wanted.no_ht else "hardware threads"
    return (
        f"NUMA node {node} has too few {kind}: {wanted.cores or 1} wanted, and this process may"
        f" use {usable} of it"
    )


def _unbound(shards: int, wanted: Numa) -> str:
    return (
        f"server.pin_cores = false: the shards of {wanted} ({shards}) are bound to no core, and"
        " their memory to no NUMA node"
    )


def _read_cpus(path: Path) -> tuple[int, ...]:
    """Read a list of CPUs as the kernel writes it: `0-3,8`.

    Raises:
        OSError: The file cannot be read.
        ValueError: It holds something else.
    """
    text = path.read_text().strip()
    cpus: list[int] = []
    for part in text.split(",") if text else []:
        bounds = _CPUS.fullmatch(part)
        if bounds is None:
            raise ValueError(f"{text!r} is no list of CPUs")
        cpus += range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1)
    return tuple(sorted(cpus))


def _show(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_CPUS_SHOWN_MAX]))
    return (
        shown
        if len(numbers) <= _CPUS_SHOWN_MAX
        else f"{shown} and {len(numbers) - _CPUS_SHOWN_MAX} more"
    )
