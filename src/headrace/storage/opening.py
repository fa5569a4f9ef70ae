"""Decides whether the files of a store can be used, before any of them is written.

```
marker -> superblock -> checkpoint -> journal
```

Each step may end the opening: with `LostError` if peers must restore everything, or with
`RefusalError` if an operator must decide.
"""

from collections.abc import Mapping
from typing import NoReturn

import msgspec

from headrace.ports.recovered import Finding
from headrace.storage.checkpoint import Checkpoint, checkpoint_checksum, decode_checkpoint
from headrace.storage.config import (
    FILES_MIN,
    MARKER_NAME,
    SUPERBLOCK_NAME,
    Identity,
    StoreConfig,
    checkpoint_name,
    identity_of,
    journal_key,
)
from headrace.storage.copies import BLOCK_BYTES, Choice
from headrace.storage.judge import Judge, Verdict
from headrace.storage.marker import VersionError, decode_marker
from headrace.storage.moments import Moment
from headrace.storage.records import Head
from headrace.storage.recovery import Recovered, Replay
from headrace.storage.scan import scan_journal
from headrace.storage.superblock import (
    SUPERBLOCK_VERSION,
    Superblock,
    choose_superblock,
    decode_superblock,
)
from headrace.wire.errors import CorruptError

_REMEDY_DAMAGE = (
    "restore the folder from a backup, or move it away and format a new store: "
    "what only this one held is then lost"
)
_REMEDY_FOREIGN = "put the folder back where it belongs, or correct the configuration"
_REMEDY_VERSION = "start the release that wrote it"


class LostError(Exception):
    """The store is lost; peers hold its data."""


class RefusalError(Exception):
    """Opening would risk what the store holds; the sentence names file, position and remedy."""


class Loaded(msgspec.Struct, kw_only=True):
    """A store that can be opened."""

    identity: Identity
    superblock: Superblock
    choice: Choice
    checkpoint: Checkpoint | None
    verdict: Verdict
    recovered: Recovered
    suspect_at: int
    power_lost_at: int
    is_power_loss: bool

    @property
    def moment(self) -> Moment:
        """The last start that the store knows, and whether it was written after that."""
        old = self.superblock
        is_begun = old.is_clean or self.verdict.last >= old.first_sequence
        return Moment(old.start, is_begun)


class Opener:
    """Reads the files of one store; collects findings."""

    def __init__(self, config: StoreConfig, files: Mapping[str, bytes]) -> None:
        self._config = config
        self._files = files
        self._is_alone = config.replica_count == 1
        self.findings: list[Finding] = []

    def load(self) -> Loaded:
        """Return the contents of the files.

        Raises:
            LostError: Marker, superblock or checkpoint are missing, and there are peers.
            RefusalError: They are missing and there are no peers; or the files are another store's,
                or of another version; or what was synced is damaged and there are no peers.
        """
        identity = self._load_marker()
        choice, superblock = self._load_superblock(identity)
        assert superblock.identity == identity, "files of two lives are not read together"
        checkpoint = self._load_checkpoint(superblock)
        scan = scan_journal(
            self._files, files_count=superblock.journal_files, key=journal_key(identity)
        )
        if scan.refusal:
            remedy = _REMEDY_VERSION if "version" in scan.refusal else _REMEDY_FOREIGN
            self._refuse(scan.refusal, scan.refusal_file, scan.refusal_position, remedy)
        self._check_age(superblock, scan.heads)
        judge = Judge(superblock, self._files, replica_count=self._config.replica_count)
        verdict = judge.judge(scan.heads)
        assert superblock.synced <= verdict.last, "the row reaches what the superblock names"
        self._report(verdict)
        assert not (self._is_alone and verdict.holes), "without peers a hole is refused"
        suspect_at = superblock.suspect_at
        if not self._is_alone and (verdict.is_torn or verdict.is_rotten or verdict.shortened):
            suspect_at = verdict.last + 1
        is_power_loss = (
            not superblock.is_clean and superblock.boot_identity != self._config.boot_identity
        )
        power_lost_at = verdict.last + 1 if is_power_loss else superblock.power_lost_at
        if is_power_loss:
            self._find("power loss", SUPERBLOCK_NAME, 0, "unclean stop, new boot")
        recovered = Replay(checkpoint, verdict).run(
            suspect_at=suspect_at, power_lost_at=power_lost_at
        )
        self.findings += recovered.damaged
        for finding in recovered.damaged if self._is_alone else ():
            self._refuse(finding.text, finding.file, finding.position, _REMEDY_DAMAGE)
        assert not (self._is_alone and recovered.verdicts), "without peers a torn body is cut"
        return Loaded(
            identity=identity,
            superblock=superblock,
            choice=choice,
            checkpoint=checkpoint,
            verdict=verdict,
            recovered=recovered,
            suspect_at=suspect_at,
            power_lost_at=power_lost_at,
            is_power_loss=is_power_loss,
        )

    def _load_marker(self) -> Identity:
        data = self._files.get(MARKER_NAME)
        if data is None:
            self._lose("marker is missing", MARKER_NAME, 0)
        try:
            identity = decode_marker(data)
        except VersionError as error:
            self._refuse(str(error), MARKER_NAME, 8, _REMEDY_VERSION)
        except CorruptError as error:
            self._lose(str(error), MARKER_NAME, 0)
        self._check_place(identity, MARKER_NAME)
        return identity

    def _load_superblock(self, identity: Identity) -> tuple[Choice, Superblock]:
        data = self._files.get(SUPERBLOCK_NAME, b"")
        choice = choose_superblock(data)
        if not choice.payload and choice.version:
            text = (
                f"superblock of version {choice.version}, this program reads {SUPERBLOCK_VERSION}"
            )
            self._refuse(text, SUPERBLOCK_NAME, 8, _REMEDY_VERSION)
        for copy in choice.damaged:
            text = f"copy {copy} of the superblock is damaged"
            self._find("superblock", SUPERBLOCK_NAME, copy * BLOCK_BYTES, text)
        if not choice.payload:
            self._lose("no two copies of the superblock agree", SUPERBLOCK_NAME, 0)
        try:
            superblock = decode_superblock(choice.payload)
        except CorruptError as error:
            self._lose(str(error), SUPERBLOCK_NAME, 0)
        self._check_place(superblock.identity, SUPERBLOCK_NAME)
        if superblock.identity != identity:
            self._lose("superblock and marker are of two lives", SUPERBLOCK_NAME, 0)
        if superblock.journal_files < FILES_MIN or superblock.tail == 0:
            self._lose("superblock describes no journal", SUPERBLOCK_NAME, 0)
        assert choice.sequence <= choice.sequence_max, "the chosen copy is a valid one"
        return choice, superblock

    def _load_checkpoint(self, superblock: Superblock) -> Checkpoint | None:
        if superblock.checkpoint_number == 0:
            return None
        name = checkpoint_name(superblock.checkpoint_number)
        data = self._files.get(name)
        if data is None:
            self._lose(f"{name} is missing", name, 0)
        if len(data) < 8 or checkpoint_checksum(data) != superblock.checkpoint_checksum:
            self._lose(f"{name} is not the file that the superblock names", name, 0)
        try:
            checkpoint = decode_checkpoint(data)
        except VersionError as error:
            self._refuse(str(error), name, 8, _REMEDY_VERSION)
        except CorruptError as error:
            self._lose(str(error), name, 0)
        self._check_place(checkpoint.identity, name)
        return checkpoint

    def _check_age(self, superblock: Superblock, heads: list[Head]) -> None:
        """Detect a superblock from an older copy: it names each opening first (DK16)."""
        newest = max([head.opening for head in heads], default=0)
        if newest > superblock.opening:
            text = (
                f"the superblock is older than the journal: it knows {superblock.opening} openings,"
                f" and there are records of opening {newest}"
            )
            self._lose(text, SUPERBLOCK_NAME, 0)

    def _check_place(self, found: Identity, name: str) -> None:
        """Refuse a file of another cluster, node or shard (DK17)."""
        wanted = identity_of(self._config, 0)
        if not wanted.is_same_place(found):
            text = (
                f"{name} belongs to cluster {found.cluster:032x}, replica {found.replica} of "
                f"{found.replica_count}, journal {found.journal}; wanted is cluster "
                f"{wanted.cluster:032x}, replica {wanted.replica} of {wanted.replica_count}, "
                f"journal {wanted.journal}"
            )
            self._refuse(text, name, 0, _REMEDY_FOREIGN)

    def _report(self, verdict: Verdict) -> None:
        self.findings += verdict.findings
        for cut in verdict.cuts:
            text = f"{len(cut.data)} bytes behind the last whole record are cut"
            self._find("torn", cut.file, cut.position, text)
        for hole in verdict.holes:
            where = f", here or at the start of {hole.file_next}" if hole.file_next else ""
            text = (
                f"records {hole.first} to {hole.last} are damaged or missing{where}; "
                f"synced were the records up to {verdict.synced}"
            )
            if self._is_alone:
                self._refuse(text, hole.file, hole.position, _REMEDY_DAMAGE)
            self._find("rot", hole.file, hole.position, text)

        for short in verdict.shortened if not verdict.holes else ():
            text = f"the file has {short.length} bytes and had {short.length_wanted}"
            if self._is_alone:
                self._refuse(text, short.file, short.length, _REMEDY_DAMAGE)
            self._find("rot", short.file, short.length, text)

    def _find(self, kind: str, file: str, position: int, text: str) -> None:
        self.findings.append(Finding(kind, file, position, text))

    def _lose(self, text: str, file: str, position: int) -> NoReturn:
        if self._is_alone:
            self._refuse(text, file, position, _REMEDY_DAMAGE)
        self._find("lost", file, position, text)
        raise LostError

    def _refuse(self, text: str, file: str, position: int, remedy: str) -> NoReturn:
        self._find("refused", file, position, text)
        raise RefusalError(f"{file} at byte {position}: {text}; {remedy}")
