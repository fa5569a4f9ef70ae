"""Rate-limits failed logins, by account and by source address (SE-3).

Some failures are free. From then on each one refuses further tries for a time, twice as long as the
one before it, up to a bound. Failures are forgiven one at a time, so nobody is locked out for good.

```
failures   1 .. 4   5     6     7     8     9      10     11 and more
pause      none     1 s   2 s   4 s   8 s   16 s   32 s   60 s
```

A name counts as it was given, whether there is such a user or not: a pause tells nothing about
that. The root user from loopback is never refused, so that the node can always be administrated.
What was refused here is no failure itself, and neither is a hash made for it.

Invariants: never more than `ENTRIES_MAX` names and addresses, those forgotten first that failed
            least recently.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from headrace.shard.settings import SECOND_TICKS, LockoutSettings

ENTRIES_MAX = 20_000
FORGIVEN_TICKS = 60 * SECOND_TICKS  # until one failure is forgotten
_PAUSE_TICKS_MIN = SECOND_TICKS
_DOUBLINGS_MAX = 16  # more would make no difference
_KINDS = ("account", "address")


class Origin(NamedTuple):
    """Who wants in, as far as guesses are counted."""

    username: str
    network: str
    is_exempt: bool


class _Entry(NamedTuple):
    failures: int
    counted: int  # the tick of the last failure, or of the last one that was forgiven
    refused_until: int


class Lockout:
    """The failures of all accounts and addresses, in memory only."""

    def __init__(self, settings: LockoutSettings) -> None:
        self._settings = settings
        self._entries: dict[tuple[str, str], _Entry] = {}  # least recent failure first

    def __len__(self) -> int:
        return len(self._entries)

    def is_refused(self, origin: Origin, now: int) -> bool:
        """Whether a login must wait."""
        if origin.is_exempt:
            return False
        entries = [self._entries.get(key) for key in _keys(origin)]
        assert all(each is None or each.counted <= now for each in entries), "time does not go back"
        return any(entry is not None and now < entry.refused_until for entry in entries)

    def fail(self, origin: Origin, now: int) -> int:
        """Count a password that was wrong; return for how many ticks no more are taken now."""
        if origin.is_exempt:
            return 0
        pause = 0
        for key in _keys(origin):
            before = self._forgive(self._entries.pop(key, _Entry(0, now, 0)), now)
            failures = before.failures + 1
            assert failures <= self._settings.failures_free + _DOUBLINGS_MAX + 1, (
                "a count is bounded"
            )
            pause = max(pause, self._pause(failures))
            self._entries[key] = _Entry(failures, now, now + self._pause(failures))
        while len(self._entries) > ENTRIES_MAX:
            del self._entries[next(iter(self._entries))]
        assert pause <= self._settings.pause_ticks_max, "nobody is locked out for good"
        return pause

    def check(self, now: int) -> None:
        """Assert that entries are bounded, and pauses too."""
        assert len(self._entries) <= ENTRIES_MAX, "the oldest failures are forgotten"
        counted = [entry.counted for entry in self._entries.values()]
        assert counted == sorted(counted), "the least recent failure is forgotten first"
        failures_max = self._settings.failures_free + _DOUBLINGS_MAX + 1
        for entry in self._entries.values():
            assert 0 < entry.failures <= failures_max, "a count heals in bounded time"
            assert entry.counted <= now, "nobody failed in the future"
            pause = entry.refused_until - entry.counted
            assert 0 <= pause <= self._settings.pause_ticks_max, "nobody is locked out for good"
            assert pause == self._pause(entry.failures), "a pause is that of its failures"
        by_kind = [kind for kind, _ in self._entries]
        assert all(kind in _KINDS for kind in by_kind), "names and addresses are counted"

    def _pause(self, failures: int) -> int:
        assert failures > 0, "only who has failed pauses"
        beyond = failures - self._settings.failures_free
        if beyond < 0:
            return 0
        pause = _PAUSE_TICKS_MIN << min(beyond, _DOUBLINGS_MAX)
        return min(pause, self._settings.pause_ticks_max)

    def _forgive(self, entry: _Entry, now: int) -> _Entry:
        """Take off what time has healed; a count has a bound, so that it heals in bounded time."""
        assert entry.counted <= now, "nobody failed in the future"
        forgiven = (now - entry.counted) // FORGIVEN_TICKS
        bounded = min(entry.failures, self._settings.failures_free + _DOUBLINGS_MAX)
        return entry._replace(failures=max(0, bounded - forgiven))


def origin_of(username: str, address: str, *, is_root: bool) -> Origin:
    """Return who logs in from where; `address` is HOST:PORT as connections have it.

    Of an IPv6 address only the network counts: whoever has one address of it has 2^64.
    """
    host = address.rpartition(":")[0].strip("[]")
    try:
        parsed = ip_address(host.partition("%")[0])
    except ValueError:
        return Origin(username, host, is_exempt=False)
    parsed = _without_mapping(parsed)
    network = str(parsed)
    if isinstance(parsed, IPv6Address):
        network = parsed.exploded[:19]
    return Origin(username, network, is_exempt=is_root and parsed.is_loopback)


def _without_mapping(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that a listener of both families shows as IPv6."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _keys(origin: Origin) -> tuple[tuple[str, str], ...]:
    return ((_KINDS[0], origin.username), (_KINDS[1], origin.network))
