"""Why a node or a shard cannot start, or ends by itself, in one sentence for the operator."""

import logging

from headrace.runtime.files.disk import DiskFailedError
from headrace.runtime.pump import PumpFailedError
from headrace.server import lines
from headrace.server.audit_log import AuditFileError
from headrace.server.config.sections import ServerConfig
from headrace.server.folders import (
    LOCK_NAME,
    FolderLockedError,
    FolderRefusedError,
    StrangeFolderError,
)
from headrace.server.generations import ChangeFailedError
from headrace.server.holders import find_lock_holder, find_port_holder
from headrace.server.node import ListenFailedError

# Anything else is a bug and shows its trace.
REASONS = (
    AuditFileError,
    FolderLockedError,
    FolderRefusedError,
    StrangeFolderError,
    ChangeFailedError,
    ListenFailedError,
    PumpFailedError,
    DiskFailedError,
    OSError,
)

_log = logging.getLogger(__name__)


def sentence_of(error: Exception, config: ServerConfig) -> str:
    """Return the sentence for one of `REASONS`."""
    match error:
        case AuditFileError():
            sentence = lines.audit_unusable(str(error))
        case ChangeFailedError():
            sentence = str(error)
        case ListenFailedError():
            holder = find_port_holder(error.endpoint)
            sentence = lines.listen_failed(error.path, error.endpoint, error.why, holder)
        case DiskFailedError() | PumpFailedError():
            if not isinstance(error.__cause__, (OSError, DiskFailedError)):
                _log.critical("the shard has failed", exc_info=error)  # A bug: it must be seen.
            sentence = lines.node_failed(str(error))
        case _:
            sentence = _of_folder(error, config)
    return sentence


def _of_folder(error: Exception, config: ServerConfig) -> str:
    folder = config.server.data_dir
    match error:
        case FolderLockedError():
            return lines.folder_locked(folder, find_lock_holder(folder / LOCK_NAME))
        case FolderRefusedError():
            return lines.folder_refused(folder, str(error))
        case StrangeFolderError():
            return lines.folder_of_others(folder)
        case OSError():
            return lines.folder_unusable(folder, error)
        case _:
            raise AssertionError(f"{type(error).__name__} is none of the reasons")
