"""Marks of the core that no search has to reach, and why.

Every mark in `kernel` to `shard` is wanted by a search (`groups/wanted.py`, `nodes/wanted.py`) or
stands here: as what must never be reached, or with the test that reaches it.
"""

# A run that reaches one of these fails (`outcome.judge_probes`, the folder of segments): no node of
# a simulation lies, and no disk comes back older than it was.
NEVER = (
    "contradiction.announcement",
    "contradiction.log",
    "contradiction.op",
    "contradiction.state",
    "contradiction.votes",
    "partitions.orphaned",
    "partitions_duplicate_builds_discarded_total",
    "reconcile.foreign",
)

# Too rare for a search, or made of what clients of a simulation do not do.
SHOWN_BY = {
    # A read fails again and again, and just for an op that only the journal holds.
    "checkpoint: a file stays for what cannot be read": "tests/storage/scenarios/unreadable_op.txt",
    # Planes begin no checkpoint before the last one is done; stores allow it.
    "checkpoint: a newer one replaces one without space": "tests/storage/scenarios/replaced.txt",
    "checkpoint: one waits for another": "tests/storage/test_store.py",
    # It takes thousands of clients of one partition.
    "dedup_evictions_total": "tests/partitions/test_dedup.py",
    # No node sends a frame that no node reads.
    "frame.unused": "tests/shard/test_wrong_peer_frames.py",
    # Clients of a simulation know their password, and users are not changed while they log in.
    "login.overtaken": "tests/shard/test_revocation.py",
    "login.paused": "tests/shard/test_revocation.py",
    "sessions.kept_for_logout": "tests/shard/test_own_token.py",
    "sessions.revoked": "tests/shard/test_not_done.py",
    # A client that hangs up, or a login that ends, while its request waits for room in the log.
    "normal.withdrawn": "tests/shard/test_visits.py",
    # No shard sends what no shard reads.
    # Links join shards of one number.
    "frame.passed_on": "tests/shard/test_replica_frames.py",
    # Nodes of a simulation have one shard.
    "bus.foreign": "tests/shard/test_several.py",
    "bus.refused": "tests/shard/test_several.py",
    # The log of a partition is older than its offsets.
    "partition.offset_ahead": "tests/partitions/test_machine.py",
    # A segment is damaged just where a start looks.
    "partition.open_failed": "tests/partitions/test_recovery.py",
    # A request comes for a partition that many others are compared before.
    "partition_requests_denied_transient_total": "tests/nodes/scenarios/epochs.txt",
    # A frame comes before its partition, and the partition is not made or is deleted meanwhile.
    "parked.prepare": "tests/shard/test_parked.py",
    "parked.request": "tests/shard/test_parked.py",
    "parked.resumed": "tests/shard/test_parked.py",
    "partition_frames_rejected_ahead_total": "tests/shard/test_parked.py",
    "partition_frames_rejected_stale_total": "tests/shard/test_parked.py",
    # Who is asked for its state leads no more, or the state does not fit its target.
    "partition_transfer_refusals_total": "tests/shard/test_incarnations.py",
    # Files of a replica are newer than the metadata that it has; its own store lost them.
    "partitions.to_come": "tests/shard/test_reconcile.py",
    # Reads that need figures of other shards are few, and seldom meet a shard that is in trouble.
    "gather.asked_again": "tests/shard/test_gather.py",
    "gather.late": "tests/shard/test_gather.py",
    "gather_missing_total": "tests/shard/test_gather.py",
    "reports.early": "tests/shard/test_gather.py",
    "reports.too_large": "tests/shard/test_gather.py",
    "reports.too_many": "tests/shard/test_gather.py",
    # A delete fails ten times in a row, with pauses of up to a minute.
    "reconcile.reported": "tests/shard/test_reconcile.py",
    # A number that was answered comes again with another body, on another connection.
    "session.number_taken_again": "tests/shard/test_numbers.py",
    # A session is silent for longer than most runs last.
    "sessions.stale": "tests/shard/test_node.py",
    # Every piece of a state is lost on its way, eight times over.
    "transfer.given_up": "tests/vsr/scenarios/transfer_given_up.txt",
    # A state that does not fit its target; peers of a simulation rarely have one.
    "transfer.refused": "tests/shard/test_wrong_peer_frames.py",
    # All copies of an op are lost to torn writes, and all votes are there.
    "view_change.dropped_without_copy": "tests/vsr/scenarios/torn_copy.txt",
}
