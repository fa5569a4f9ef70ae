"""Writes the audit log: one JSON object a line, on a stream of its own (SE-6).

```
{"time": "2026-01-31T12:00:00.000000Z", "event": "login", "outcome": "ok", "user": "iggy",
 "user_id": 0, "address": "127.0.0.1:40312", "client": "1f3a...", "op": 17, "about": "",
 "recovered": false}
```

A file is readable by its owner alone, appended to, and reopened after a rotation.
"""

import json
import logging
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path

from headrace.ports.audit import Audit
from headrace.server.config.kinds import LogFile

AUDIT_LOGGER = "headrace.audit"
_FILE_MODE = 0o600

_audit_log = logging.getLogger(AUDIT_LOGGER)
_log = logging.getLogger(__name__)


class AuditFileError(Exception):
    """The file of the audit log cannot be used; the message says why."""


class _PrivateFileHandler(WatchedFileHandler):
    """Creates files that only their owner can read, and reports a failed write in one line."""

    def _open(self) -> TextIOWrapper:
        # Do not block on a pipe without a reader.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        return os.fdopen(os.open(self.baseFilename, flags, _FILE_MODE), "a", encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # The file was moved away, and no new one can be created.
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the handler's own
        _log.error("%s: a line is lost: %s", self.baseFilename, sys.exc_info()[1])


@contextmanager
def audit_log(target: Path) -> Iterator[None]:
    """Send the audit log to a file, to stderr or nowhere, as long as the block runs.

    Raises:
        AuditFileError: The file cannot be opened, or others may read it.
    """
    handler = _make_handler(target)
    handler.setFormatter(logging.Formatter("%(message)s"))
    _audit_log.addHandler(handler)
    _audit_log.setLevel(logging.INFO)
    _audit_log.propagate = False
    try:
        yield
    finally:
        _audit_log.removeHandler(handler)
        handler.close()


def write_audit(audit: Audit) -> None:
    """Write one line."""
    _audit_log.info("%s", describe(audit, datetime.now(UTC)))


def describe(audit: Audit, now: datetime) -> str:
    """Return the line: one line of ASCII, whatever the names contain."""
    return json.dumps(
        {
            "time": now.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "event": audit.event,
            "outcome": audit.outcome,
            "user": audit.user,
            "user_id": audit.user_id,
            "address": audit.address,
            "client": audit.client,
            "op": audit.op,
            "about": audit.about,
            "recovered": audit.is_recovered,
        }
    )


def _make_handler(target: Path) -> logging.Handler:
    if target == LogFile.OFF:
        return logging.NullHandler()
    if target == LogFile.STDERR:
        return logging.StreamHandler(sys.stderr)
    try:
        handler = _PrivateFileHandler(target)
    except OSError as error:
        raise AuditFileError(f"{target}: {error.strerror}") from error
    mode = target.stat().st_mode
    if not stat.S_ISREG(mode) or mode & (stat.S_IRWXG | stat.S_IRWXO):
        handler.close()
        raise AuditFileError(f"{target}: others may read or change it: chmod 600 {target}")
    return handler
