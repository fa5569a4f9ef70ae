"""Tells the operator what a shard notices while it runs: findings, a full disk, a leaping clock."""

import asyncio
import logging

from headrace.server import lines
from headrace.server.config.sections import ServerConfig
from headrace.shard.core import ShardCore

_NOTICES = ("held", "released", "silent")  # findings that are no fault of the data
_SPACE_SECONDS = 5.0  # without a failed attempt: then there is space again

_log = logging.getLogger(__name__)


class Reports:
    """What the operator was told of one shard, so that it is told once."""

    def __init__(self, shard: ShardCore, config: ServerConfig, *, tells_clock: bool) -> None:
        """Begin; one shard of a node tells of the clock that all of them have."""
        self._shard = shard
        self._tells_clock = tells_clock
        self._config = config
        self._full_at: float | None = None  # when something last waited for space
        self._is_leap_told = False

    def tell(self) -> None:
        """Log what is new."""
        self.tell_findings()
        self._tell_space()
        if self._tells_clock:
            self._tell_clock()

    def tell_findings(self) -> None:
        """Log what the shard noticed since the last call."""
        for finding in self._shard.take_findings():
            level = logging.WARNING if finding.kind in _NOTICES else logging.ERROR
            _log.log(level, "%s: %s: %s", finding.kind, finding.file, finding.text)

    def _tell_space(self) -> None:
        """Report once that the disk is full, and once that it is not any more."""
        now = asyncio.get_running_loop().time()
        if self._shard.is_without_space:
            if self._full_at is None:
                _log.error("%s", lines.full_line(self._config.server.data_dir))
            self._full_at = now
        elif self._full_at is not None and now - self._full_at > _SPACE_SECONDS:
            self._full_at = None
            _log.warning("%s", lines.space_line())

    def _tell_clock(self) -> None:
        """Report once that the clock is not believed, and once that it is again (CK1)."""
        time = self._shard.clock.time
        if self._shard.is_ready and bool(time.lead) != self._is_leap_told:
            self._is_leap_told = bool(time.lead)
            if time.lead:
                _log.error("%s", lines.leap_line(believed=time.now, clock=time.clock))
            else:
                _log.warning("%s", lines.clock_line(time.now))
