"""Makes a failing run smaller: shorter, fewer clients, fewer kinds of faults."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec.structs import asdict, replace

from headrace.sim.groups.options import Options
from headrace.sim.nodes.options import NodeOptions

_T = TypeVar("_T", bound=Options | NodeOptions)
_MIXES = ("faults", "disk", "folder", "links", "network")
_HABITS = ("logout", "malformed", "replay", "reuse", "churn", "leave", "registers", "unnumbered")


def minimise(options: _T, fails: Callable[[_T], bool]) -> _T:
    """Return smaller options that still fail; every step that helps is kept, until none does."""
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller in _smaller(options):
            if fails(smaller):
                options = smaller
                is_smaller = True
                break
    return options


def _smaller(options: _T) -> Iterator[_T]:
    """Return options with one thing less, the largest cut first."""
    yield from _shorter(options)
    for part in _MIXES:
        if not hasattr(options, part):
            continue
        mix = getattr(options, part)
        for name, value in asdict(type(mix)()).items():
            if getattr(mix, name) != value:
                yield replace(options, **{part: replace(mix, **{name: value})})


def _shorter(options: _T) -> Iterator[_T]:
    workload = options.workload
    if options.safety_limit > 100_000:
        yield replace(options, safety_limit=options.safety_limit // 2)
    if workload.requests > 4:
        yield replace(options, workload=replace(workload, requests=workload.requests // 2))
    if workload.client_count > 1:
        yield replace(options, workload=replace(workload, client_count=workload.client_count // 2))
    if isinstance(options, Options) and len(options.groups) > 1:
        groups = options.groups[: len(options.groups) // 2]
        kept = tuple(group for group in options.replicated_groups if group in groups)
        yield replace(options, groups=groups, replicated_groups=kept)
    for name in _HABITS:
        if getattr(workload, name, 0):
            yield replace(options, workload=replace(workload, **{name: 0}))
