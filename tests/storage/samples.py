"""Headers, bodies and stores that the tests of storage share."""

from collections.abc import Mapping

from headrace import kernel
from headrace.base.ids import METADATA_GROUP
from headrace.base.limits import HEADER_BYTES
from headrace.storage.store import Opened, Store, StoreConfig, format_store, open_store
from headrace.wire.numbers import Operation
from headrace.wire.replica.prepares import PREPARE, PrepareHeader
from headrace.wire.replica.seals import body_checksum, seal
from tests.storage.fake_disk import FakeDisk

CLUSTER = 0xC1057E12
INCARNATION = 0xA11CE
FILE_BYTES = 16384
GROUPS = (METADATA_GROUP, 1, 2, 3)


def config(
    *,
    replica_count: int = 3,
    replica: int = 0,
    cluster: int = CLUSTER,
    files: int = 5,
    file_bytes: int = FILE_BYTES,
    boot_identity: int = 7,
    start: int = 0,
) -> StoreConfig:
    return StoreConfig(
        cluster=cluster,
        replica=replica,
        replica_count=replica_count,
        journal_bytes_max=files * file_bytes,
        journal_files=files,
        record_bytes_max=min(file_bytes, 8192),
        boot_identity=boot_identity,
        start=start,
    )


def prepare(
    group: int, op: int, body: bytes = b"body", *, view: int = 0, salt: int = 0
) -> tuple[bytes, bytes]:
    """Give a sealed header and its body."""
    operation = Operation.CREATE_STREAM if group == METADATA_GROUP else Operation.SEND_MESSAGES
    if operation == Operation.SEND_MESSAGES:
        body = batch(body)
    header = PrepareHeader(
        checksum_body=body_checksum(operation, body),
        cluster=CLUSTER,
        size=HEADER_BYTES + len(body),
        view=view,
        op=op,
        commit=op - 1,
        request=salt,
        operation=operation,
        group=group,
    )
    return seal(PREPARE.encode(header)), body


def batch(payload: bytes) -> bytes:
    """Give a stamped batch of one message."""
    payload = payload or b"-"  # a message without a payload is no message
    ends = b"".join(end.to_bytes(4, "little") for end in (0, len(payload)))
    made = bytearray(kernel.build(bytes(16), bytes(8), payload, ends, None, None))
    kernel.admit(made, 1, 0, 0, 1)
    return bytes(made)


def formatted(made: StoreConfig) -> FakeDisk:
    return FakeDisk(format_store(made, INCARNATION))


def opened(made: StoreConfig, files: Mapping[str, bytes]) -> Opened:
    result = open_store(made, files)
    assert isinstance(result, Opened), result
    return result


def started(made: StoreConfig) -> tuple[Store, FakeDisk]:
    """Give a new store that is ready to write, and its disk."""
    disk = formatted(made)
    store = opened(made, disk.files()).store
    disk.settle(store)
    return store, disk
