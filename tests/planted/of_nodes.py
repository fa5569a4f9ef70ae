"""Bugs of whole nodes, as a careless engineer would have written them."""

from headrace.partitions import (
    dedup,
    index,
    log,
    machine,
    polling,
    proof,
    retention,
    snapshot,
    writer,
)
from headrace.shard import delivery, metadata_group, timekeeper
from headrace.shard.consensus import (
    believed_time,
    ceilings,
    checkpoints,
    inbox,
    journaling,
    plane,
)
from headrace.shard.front import (
    answers,
    auto_commits,
    offset_reads,
    polls,
    purges,
    queries,
    refusals,
    sends,
)
from headrace.shard.logins import login
from headrace.shard.owned import (
    flush,
    opening,
    orphans,
    own_ops,
    partitions,
    reconcile,
    tombstones,
)
from headrace.storage import checkpointing
from headrace.vsr import replica, transfer
from tests.planted.planting import Edit, bug

_PARTITIONS = (
    bug(
        "stamped_from_committed",
        "The next offset is where the committed log ends.",
        Edit(
            machine.PartitionMachine._stamp,
            "base_offset=prepared.next_offset,",
            "base_offset=self._log.next_offset,",
        ),
    ),
    bug(
        "offsets_past_the_end",
        "Clients know what they have read: any offset can be stored.",
        Edit(
            machine.PartitionMachine._refusal_to_store,
            "offset >= self._log.next_offset",
            "False",
        ),
    ),
    bug(
        "auto_commit_moves_back",
        "What was served last is what was consumed.",
        Edit(
            machine.PartitionMachine._auto_commit,
            "(stored is None or mark.offset > stored)",
            "True",
        ),
        Edit(
            auto_commits.AutoCommits.commit,
            "if stored is not None and stored >= offset:",
            "if False:",
        ),
    ),
    bug(
        "purge_keeps_offsets",
        "A purge removes messages; offsets are the consumers' business.",
        Edit(machine.PartitionMachine._purge, "self._offsets.clear()", "pass"),
    ),
    bug(
        "purge_forgets_epoch",
        "After a purge the log is empty: its files can have the old names.",
        Edit(log.PartitionLog.begin_history, "self.history_epoch += 1", "pass"),
    ),
    bug(
        "retention_looks_at_memory",
        "A segment whose index is in memory is in use and must stay.",
        Edit(
            retention.surplus,
            "segment.newest_stamp <= limits.stamp_max",
            "segment.newest_stamp <= limits.stamp_max and segment.index is None",
        ),
    ),
    bug(
        "trim_ignores_consumers",
        "Who deletes segments wants them deleted.",
        Edit(machine.PartitionMachine._trim, "last = min(last, smallest)", "pass"),
    ),
    bug(
        "retention_ignores_consumers",
        "What has expired is of no use to anybody.",
        Edit(machine.PartitionMachine._bound, "keep_from=needed", "keep_from=None"),
    ),
    bug(
        "offsets_not_in_the_state",
        "Consumers store their offsets again soon, so a state need not carry them.",
        Edit(snapshot.encode_snapshot, "len(offsets.by_consumer),", "0,"),
        Edit(snapshot.encode_snapshot, "for mark in offsets.marks()", "for mark in ()"),
    ),
    bug(
        "fetched_pieces_not_written",
        "The pieces of a state have arrived; they will be written when they are asked for.",
        Edit(machine.PartitionMachine.install, "for each in fetched:", "for each in fetched[:0]:"),
        is_stall=True,
    ),
    bug(
        "served_unverified",
        "Batches were verified when they came in.",
        Edit(
            proof.prove_stretch,
            "size, offset, chain, rows = prove(data, partition_id, start.offset, start.chain)",
            "rows, size, offset, chain = b'', 0, start.offset, 0\n"
            "    while size < len(data):\n"
            "        header = decode_batch_header(data[size:])\n"
            "        rows += _ROW.pack(offset, header.base_timestamp, size, 0)\n"
            "        offset += header.messages_count\n"
            "        size += max(header.length, BATCH_HEADER_BYTES)",
        ),
        Edit(
            proof.prove_stretch,
            "if _fold_tail(chain, part.tail) != stretch.end.chain:",
            "if False:",
        ),
    ),
    bug(
        "chain_left_out",
        "A batch that verifies and has the right offset is the right batch.",
        Edit(
            proof.prove_stretch,
            "if _fold_tail(chain, part.tail) != stretch.end.chain:",
            "if False:",
        ),
    ),
    bug(
        "index_believed",
        "An index whose checksum is right is the index of its segment.",
        Edit(index.decode_index, "if fold(0, entries, MARK_BYTES) != digest:", "if False:"),
        Edit(
            index._check,
            "SegmentFile(namespace, revision, epoch, base_offset) != file or log_length != length",
            "False",
        ),
    ),
    bug(
        "old_history_served",
        "What a poll has gathered is good, whatever happened meanwhile.",
        Edit(
            polling.Reads._has_more,
            "if poll.gathering.messages_count and poll.epoch == self.log.history_epoch:",
            "if poll.gathering.messages_count:",
        ),
    ),
)

_SEGMENTS = (
    bug(
        "checkpoint_before_sync",
        "Segments are written; the system will sync them soon.",
        Edit(
            flush.Flushes.flush, "return not self._flushes", "self._flushes = {}\n    return True"
        ),
    ),
    bug(
        "files_removed_at_once",
        "A dropped segment is of no use to anybody.",
        Edit(
            writer.SegmentWriter.drop,
            "kept = [write",
            "self.emit(RemoveSegments(tuple(self._dropped)))\n    kept = [write",
        ),
    ),
    bug(
        "told_after_the_next_began",
        "When a checkpoint has ended the next one may begin.",
        Edit(plane.Plane.close_turn, "if served is None:", "if True:"),
    ),
    bug(
        "dropped_before_captured",
        "What is dropped need not be written.",
        Edit(
            writer.SegmentWriter._is_wanted,
            "if write.sequence <= self._captured:",
            "if False:",
        ),
        Edit(writer.SegmentWriter.drop, "if not self._captured:", "if True:"),
    ),
    bug(
        "writes_before_the_cut",
        "Opening takes time, and writing the same bytes again does no harm.",
        Edit(
            writer.SegmentWriter.open,
            "options = self._options",
            "self.is_open = True\n    options = self._options",
        ),
    ),
    bug(
        "fenced_is_checkpointed",
        "A partition that is fenced is in the checkpoint like any other.",
        Edit(
            checkpoints.Checkpoints.on_flushed,
            "dict.fromkeys(self._outside.lacking())",
            "dict[int, None]()",
        ),
    ),
    bug(
        "fenced_leaves_its_ops",
        "The ops of a fenced partition are committed: the journal need not keep them.",
        Edit(
            checkpoints.Checkpoints._live,
            "if self._carried.holds(group, op):",
            "if False:",
        ),
    ),
    bug(
        "woken_keeps_its_own",
        "A group that is awake can be asked for what a checkpoint must still have of it.",
        Edit(
            checkpoints.Checkpoints._live,
            "past = self._asleep.get(group) or self._dormant.get(group)",
            "past = self._dormant.get(group)",
        ),
    ),
    bug(
        "short_write_is_a_write",
        "A write that was answered is done.",
        Edit(writer.SegmentWriter.on_written, "if self._is_round_short:", "if False:"),
    ),
    bug(
        "time_begins_at_its_mark",
        "The mark of a time is where its first message is.",
        Edit(index._Marks.before, "bisect_left(", "bisect_right("),
    ),
    bug(
        "time_begins_with_its_piece",
        "A piece that begins with a time holds the first message of it.",
        Edit(
            index.SegmentIndex.find_time,
            "part.at(0).timestamp < timestamp",
            "part.at(0).timestamp <= timestamp",
        ),
    ),
    bug(
        "time_begins_in_memory",
        "If memory begins with a time, the files have nothing of it.",
        Edit(
            polling.Reads._plan_timestamp,
            "self.tail.first_timestamp < timestamp",
            "self.tail.first_timestamp <= timestamp",
        ),
    ),
    bug(
        "damage_before_memory_passed",
        "Damage in a file does not concern a time that memory holds.",
        Edit(
            polling.Reads._turn_to_tail,
            "self.tail.first_timestamp < timestamp",
            "self.tail.first_timestamp <= timestamp",
        ),
    ),
    bug(
        "late_mark_in_the_index",
        "Every batch that was noted after a restart is a mark.",
        Edit(index.SegmentIndex.adopt, "0 if self._is_late_marked else 1", "0"),
    ),
    bug(
        "last_before_the_next_offset",
        "The last message is the one before the next offset.",
        Edit(
            polling.Reads._offset_of,
            "self.log.segments[-1].end_offset - count",
            "self.log.next_offset - count",
        ),
    ),
)

_REQUESTS = (
    bug(
        "dedup_not_checkpointed",
        "The table of a partition fills again by itself.",
        Edit(
            replica.Replica.checkpoint,
            "state.table.encode()",
            'state.table.encode() if state.table.is_lockstep else b""',
        ),
    ),
    bug(
        "dedup_lost_on_transfer",
        "A state transfer brings the messages; requests are the primary's business.",
        Edit(
            transfer._install,
            "state.table.install(table_piece.data, commit)",
            "state.table.install(table_piece.data if state.table.is_lockstep else before, commit)",
        ),
    ),
    bug(
        "trim_known_by_its_end",
        "A retry has the same body as the first try.",
        Edit(
            dedup._answer_of,
            "header.request_checksum if is_resolved else xxh3_64(body)",
            "xxh3_64(body)",
        ),
        Edit(
            dedup.DedupTable._checksum_again,
            "if header.operation == Operation.DELETE_SEGMENTS:",
            "if False:",
        ),
    ),
    bug(
        "answer_of_now",
        "A retry is told where the log stands.",
        Edit(
            dedup.DedupTable._judge_again,
            "self._confirm(base_offset)",
            "self._confirm(op)",
        ),
    ),
    bug(
        "auto_commit_is_no_op",
        "An offset is stored where it was served; nobody else needs it.",
        Edit(
            auto_commits.AutoCommits.commit,
            "self._propose(key)",
            "local.machine._offsets.store(key.kind, key.id, offset)",
        ),
    ),
)

_NODE = (
    bug(
        "sends_durable_when_written",
        "The write of a send has returned, so it is durable.",
        Edit(
            journaling.Journaling._waits_for_sync,
            "if config.is_persisted:",
            "if False:",
        ),
    ),
    bug(
        "requests_before_the_start",
        "A request that comes early can wait in the log.",
        Edit(inbox.Inbox.put_request, "not self.has_begun or ", ""),
    ),
    bug(
        "equal_is_repeated",
        "The same number and the same body: it is the same request.",
        Edit(
            sends.read_send_header,
            "is_anew=int(request <= spent.highest and request in spent)",
            "is_anew=0",
        ),
    ),
    bug(
        "any_answer_spends",
        "Who was answered does not ask again.",
        Edit(answers.Answers.send_settled, "if frame[_STATUS] == _NO_STATUS:", "if True:"),
    ),
    bug(
        "evicted_stays_bound",
        "A connection holds its session until it closes.",
        Edit(delivery.PartitionDelivery._evict, "self._release(connection)", "pass"),
        is_stall=True,
    ),
    bug(
        "denied_without_users",
        "A user that is not known here does not exist.",
        Edit(
            login.Logins._refuse_password,
            "if not attempt.is_current:",
            "if False:",
        ),
        Edit(login.Logins._deny, "if self._is_current:", "if True:"),
    ),
    bug(
        "offsets_given_again",
        "After a power cut the log goes on where it ends.",
        Edit(
            opening.Opening.add,
            "local.lost_until = lost_until",
            "local.lost_until = 0",
        ),
    ),
    bug(
        "lost_range_may_wait",
        "The lost range is proposed; sends need not wait for it.",
        Edit(own_ops.OwnOps.propose, "elif local.is_short:", "elif False:"),
        is_stall=True,
    ),
    bug(
        "deleted_partition_comes_back",
        "Metadata names the partition, so it is made.",
        Edit(
            reconcile.Reconciler._build,
            "if is_behind and self._plane.dormant_origin(group) != target.created_revision:",
            "if False:",
        ),
    ),
    bug(
        "opened_before_the_replay",
        "The checkpoint says what the files hold; there is nothing to wait for.",
        Edit(
            opening.Opening.add,
            "self.unopened[group] = local",
            "local.machine.open(is_whole=True)",
        ),
    ),
    bug(
        "ceiling_counts_when_written",
        "The record with the ceiling is written, so the ceiling holds.",
        Edit(
            ceilings.Ceilings.on_flushed,
            "self._until_synced.append((sequence, group, ceiling))",
            "self._durable[group] = ceiling",
        ),
    ),
    bug(
        "ceiling_of_the_namesake",
        "A partition with the same number has the same ceiling.",
        Edit(plane.Plane.remove_group, "self._ceilings.forget(group)", "pass"),
    ),
    bug(
        "ceiling_freed_with_its_record",
        "A checkpoint has the whole state of a partition, and so where it ends.",
        Edit(checkpointing.Checkpointer.begin, "dict(ceilings)", "{}"),
    ),
)

_RECONCILED = (
    bug(
        "memory_before_disk",
        "The disk was asked to remove the files; the rest is its business.",
        Edit(tombstones.Tombstones.step, "if event.failure is not None:", "if False:"),
    ),
    bug(
        "epoch_ignored",
        "A partition is known by its number.",
        Edit(
            partitions.Partitions.find_epoch,
            "local is None or local.target.created_revision != epoch",
            "local is None",
        ),
    ),
    bug(
        "orphans_of_siblings",
        "What metadata does not know is nobody's.",
        Edit(orphans.Orphans.step, "if owns(GroupId(each[0]))", ""),
        Edit(
            tombstones.Tombstones.bury,
            'assert self._placement.owns(GroupId(group)), "files of another shard are not touched"',
            "pass",
        ),
    ),
)

_CURRENT = (
    bug(
        "offsets_read_by_old_primary",
        "Who leads knows every offset.",
        Edit(
            offset_reads.OffsetReads._find,
            "if not self._plane.is_current(self._partitions.find(topic, partition).replica):",
            "if not self._partitions.find(topic, partition).replica.is_serving:",
        ),
    ),
    bug(
        "names_read_by_old_primary",
        "Who leads knows every name.",
        Edit(
            metadata_group.MetadataGroup.is_current.fget,  # type: ignore[attr-defined]  # a property
            "plane.has_begun and plane.is_current(self.replica)",
            "self.is_serving",
        ),
    ),
    bug(
        "names_read_anywhere",
        "A read changes nothing: any node can answer it.",
        Edit(
            queries.Queries.read,
            "if command.code not in _READ_ANYWHERE and not self._metadata.is_current:",
            "if False:",
        ),
    ),
    bug(
        "absent_is_absent",
        "What this node does not find does not exist.",
        Edit(
            refusals.Refusals.judge,
            "if code in _RESTS_ON_METADATA and not self._metadata.is_current:",
            "if False:",
        ),
    ),
    bug(
        "purge_told_when_decided",
        "A purge is decided: the partitions will follow.",
        Edit(
            purges.Purges.after_turn,
            "if not self._partitions.is_purged or not self.are_others_purged():",
            "if False:",
        ),
    ),
    bug(
        "next_skips_one",
        "The stored offset is the next one to read.",
        Edit(
            polls.Polls._start_of,
            "gather.NextAfter(local.machine.stored_offset(poll.key.kind, poll.key.id))",
            "gather.NextAfter((local.machine.stored_offset(poll.key.kind, poll.key.id) or 0) + 1)",
        ),
    ),
    bug(
        "group_polls_by_anyone",
        "Members poll what they were told to poll.",
        Edit(
            polls.Polls.poll,
            "if not may_poll_partition(topic, request.consumer.id, header.client, partition):",
            "if False:",
        ),
    ),
)

_TIME = (
    bug(
        "clock_is_the_time",
        "The time is what the wall clock says.",
        Edit(
            believed_time.BelievedTime.look,
            "if is_near and -tolerance <= clock - self.steady <= tolerance:",
            "if True:",
        ),
    ),
    bug(
        "small_leaps_add_up",
        "A clock that is near what is believed is right, however it came there.",
        Edit(
            believed_time.BelievedTime.look,
            "if is_near and -tolerance <= clock - self.steady <= tolerance:",
            "if is_near:",
        ),
    ),
    bug(
        "start_believes_its_clock",
        "At a start there is nothing but the clock to go by.",
        Edit(
            timekeeper.Timekeeper._learn,
            "self._time.learn(stamp, supported=self._supported_time)",
            "pass",
        ),
    ),
    bug(
        "leap_expires_what_is_old",
        "Stamps must not leap; what retention looks at changes no stamp.",
        Edit(
            believed_time.BelievedTime.for_removal.fget,  # type: ignore[attr-defined]  # a property
            "min(self.now, self.clock)",
            "self.clock",
        ),
    ),
    bug(
        "stamps_alone_expire",
        "The clock is not to be trusted; what the stamps say is the time.",
        Edit(
            believed_time.BelievedTime.for_removal.fget,  # type: ignore[attr-defined]  # a property
            "min(self.now, self.clock)",
            "self.now",
        ),
    ),
    bug(
        "idle_log_says_no_time",
        "Where nothing happens no time has to be noted.",
        Edit(
            timekeeper.Timekeeper.note,
            "age > self._note_age",
            "False",
        ),
    ),
)

_PARTS = (*_PARTITIONS, *_SEGMENTS, *_REQUESTS, *_NODE, *_RECONCILED, *_CURRENT, *_TIME)
BUGS = {each.name: each for each in _PARTS}
