"""Makes a failing run smaller: shorter, fewer clients, fewer kinds of faults."""

from collections.abc import Callable, Iterator

from msgspec.structs import asdict, replace

from headrace.sim.disk import DiskOptions
from headrace.sim.faults import FaultOptions
from headrace.sim.groups.options import Options
from headrace.sim.network import NetworkOptions


def minimise(options: Options, fails: Callable[[Options], bool]) -> Options:
    """Give smaller options that still fail; every step that helps is kept, until none does."""
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller in _smaller(options):
            if fails(smaller):
                options = smaller
                is_smaller = True
                break
    return options


def _smaller(options: Options) -> Iterator[Options]:
    """Give options with one thing less, the largest cut first."""
    yield from _shorter(options)
    for part, default in (
        ("faults", FaultOptions()),
        ("disk", DiskOptions()),
        ("network", NetworkOptions()),
    ):
        mix = getattr(options, part)
        for name, value in asdict(default).items():
            if getattr(mix, name) != value:
                yield replace(options, **{part: replace(mix, **{name: value})})


def _shorter(options: Options) -> Iterator[Options]:
    workload = options.workload
    if options.safety_limit > 100_000:
        yield replace(options, safety_limit=options.safety_limit // 2)
    if workload.requests > 4:
        yield replace(options, workload=replace(workload, requests=workload.requests // 2))
    if workload.client_count > 1:
        yield replace(options, workload=replace(workload, client_count=workload.client_count // 2))
    if len(options.groups) > 1:
        groups = options.groups[: len(options.groups) // 2]
        kept = tuple(group for group in options.replicated_groups if group in groups)
        yield replace(options, groups=groups, replicated_groups=kept)
    for name in ("logout", "malformed"):
        if getattr(workload, name):
            yield replace(options, workload=replace(workload, **{name: 0}))
