"""Timers in ticks of 10 ms, with jitter from a seeded generator.

A group names a timer and its length; the shard has the clock and reports when it fired.
"""

from enum import IntEnum

import msgspec

from headrace.base.prng import Prng


class Timer(IntEnum):
    """The waits of a group."""

    RETRANSMIT = 0  # acknowledgements of prepares
    VIEW_CHANGE_RESEND = 1  # votes
    VIEW_CHANGE_STATUS = 2  # the end of a view change
    PROBE = 3  # an answer about the current view
    REPAIR = 4  # missing prepares
    TRANSFER = 5  # a piece of state


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """The length of each wait, in ticks; names as in the configuration."""

    heartbeat_interval: int = 50
    heartbeat_timeout: int = 500
    prepare_retransmit_interval: int = 25
    view_change_retransmit_interval: int = 50
    view_change_status_timeout: int = 500
    request_start_view_retransmit_interval: int = 100
    view_probe_attempts_max: int = 5
    repair_retry_interval: int = 100
    transfer_retry_interval: int = 100


BACKOFF_SHIFT_MAX = 4


def backed_off(base: int, attempts: int, prng: Prng) -> int:
    """Return a wait that doubles with each attempt up to 16 times, plus as much jitter."""
    assert base >= 1
    assert attempts >= 0, "a wait doubles and never halves"
    wait = base << min(attempts, BACKOFF_SHIFT_MAX)
    return wait + prng.below(wait)
