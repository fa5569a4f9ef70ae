"""Bugs of replica groups and their storage, as a careless engineer would have written them."""

from headrace.shard.consensus import checkpoints, journaling, peers
from headrace.storage import (
    checkpointing,
    judge,
    records,
    store,
    superblock_writer,
)
from headrace.storage import recovery as storage_recovery
from headrace.vsr import (
    merge,
    normal,
    recovery,
    repair,
    replica,
    sessions,
    state,
    transfer,
    transfer_session,
    view_change,
)
from headrace.wire.replica import decode as replica_decode
from tests.planted.planting import Edit, bug

_NORMAL = (
    bug(
        "acknowledges_before_durable",
        "A backup acknowledges what it has staged; the disk will surely follow.",
        Edit(
            normal.accept,
            "_journal(state, entry)",
            "_journal(state, entry)\n    entry.is_durable = True\n    advance_durable(state)",
        ),
    ),
    bug(
        "quorum_one_short",
        "A quorum is a majority of the others.",
        Edit(
            normal.commit_by_quorum,
            "sorted(acknowledged)[-needed]",
            "sorted(acknowledged)[1 - needed]",
        ),
    ),
    bug(
        "applies_before_commit",
        "What the primary sends is as good as committed.",
        Edit(
            normal.on_prepare,
            "advance_commit(state, header.commit)",
            "advance_commit(state, header.op)",
        ),
    ),
    bug(
        "applies_unlinked",
        "An op at or below the commit point is committed, so what lies there can be applied.",
        Edit(
            normal.apply_committed,
            "op < log.linked or entry is None",
            "entry is None",
        ),
        Edit(
            normal.apply_committed,
            "assert op == 1 or entry.header.parent == log.entries[op - 1].header.checksum",
            "pass",
        ),
    ),
    bug(
        "accepts_prepare_of_old_view",
        "The parent checksum matches, so the view of a prepare does not matter.",
        Edit(normal.on_prepare, "header.view < state.view\n        or ", ""),
    ),
    bug(
        "body_of_prepare_unchecked",
        "The header is sealed; checking the body again only costs time.",
        Edit(
            replica_decode._body_rules,
            "is_own = is_body(",
            "is_own = kind == FrameKind.PREPARE or is_body(",
        ),
    ),
    bug(
        "new_primary_serves_at_once",
        "An elected primary is a primary: it may serve before its log is committed again.",
        Edit(normal.on_request, " or state.commit_min < state.view_head", ""),
    ),
    bug(
        "requests_in_flight_forgotten",
        "A request is a duplicate if it was applied; what is in flight was not.",
        Edit(normal.on_request, "if flight in state.in_flight:", "if False:"),
    ),
    bug(
        "stamp_from_the_wall",
        "A stamp is the time, and the time is what the wall clock says.",
        Edit(
            normal._propose,
            "shared.wall if shared.wall > state.timestamp else state.timestamp + 1",
            "shared.wall",
        ),
    ),
    bug(
        "stamp_above_own_only",
        "A stamp is above every stamp that this primary has given or was sent.",
        Edit(
            view_change._enter,
            "state.timestamp = 0 if head is None else head.header.timestamp",
            "pass",
        ),
    ),
    bug(
        "retransmits_once",
        "One retransmission is enough: the links are connections.",
        Edit(
            normal.on_retransmit_timer,
            "state.restart_timer(Timer.RETRANSMIT,"
            " state.options.timeouts.prepare_retransmit_interval)",
            "pass",
        ),
        is_stall=True,
    ),
)

_SESSIONS = (
    bug(
        "replies_not_recorded",
        "The client has its reply; there is no need to keep it.",
        Edit(normal._apply, "table.record(header, body, reply)", "pass"),
    ),
    bug(
        "watermark_off_by_one",
        "A request at the watermark is new.",
        Edit(
            sessions.ClientTable.judge,
            "header.request > client.watermark",
            "header.request >= client.watermark",
        ),
    ),
    bug(
        "any_reply_is_replayed",
        "A client that asks again wants its last reply.",
        Edit(
            sessions.ClientTable.judge,
            "client.replies.get(header.request)",
            "next(iter(client.replies.values()), None)",
        ),
        is_stall=True,
    ),
    bug(
        "reused_number_unchecked",
        "A request number stands for its request.",
        Edit(
            sessions.ClientTable.judge,
            "header.request_checksum and _is_another(header, client, reply)",
            "False",
        ),
    ),
    bug(
        "sessions_lost_on_restart",
        "Clients log in again after a restart, so the table need not be restored.",
        Edit(
            replica._restore,
            "state.table.install(checkpoint.client_table, header.op)",
            "pass",
        ),
    ),
    bug(
        "sessions_lost_on_transfer",
        "A state transfer brings the machine; the table will fill by itself.",
        Edit(transfer._install, "state.table.install(table_piece.data, commit)", "pass"),
    ),
    bug(
        "sessions_not_checkpointed",
        "The client table is soft state and does not belong into a checkpoint.",
        Edit(
            replica.Replica.checkpoint,
            "state.table.encode()",
            "type(state.table)().encode()",
        ),
    ),
    bug(
        "queue_outlives_view",
        "What waits in the queue can be ordered when we lead again.",
        Edit(normal.give_up_requests, "state.queue.clear()", "pass"),
    ),
)

_VIEW_CHANGE = (
    bug(
        "one_nack_is_enough",
        "One replica that never had the op proves that it was not committed.",
        Edit(merge.merge, "nacks >= quorums.nack", "nacks >= 1"),
    ),
    bug(
        "lost_header_waits",
        "An op that nobody can name may be anything.",
        Edit(
            merge.merge,
            "header is None and not _is_lost_to_rot(votes, canonical, op, is_named=is_named)",
            "header is None",
        ),
        is_stall=True,
    ),
    bug(
        "lost_header_is_not_searched_for",
        "Only who has the latest log knows what is in it.",
        Edit(merge._known_headers, "header is None and above is not None", "False"),
    ),
    bug(
        "unnamed_op_is_dropped",
        "What an older view has in the place of a lost op is another op.",
        Edit(
            merge._is_lost_to_rot,
            "is_named or not any(op in vote.present for vote in votes)",
            "True",
        ),
    ),
    bug(
        "log_view_ignored",
        "The longest log wins, of whichever view it is.",
        Edit(merge.merge, " if vote.log_view == canonical_view", ""),
    ),
    bug(
        "starts_without_bodies",
        "Bodies can be fetched after the view has started.",
        Edit(
            view_change.start_view_if_complete,
            " or missing_range(state) is not None",
            "",
        ),
        is_stall=True,
    ),
    bug(
        "log_view_rises_at_decision",
        "The log of the view is decided, so that is the view of our log.",
        Edit(
            view_change._park,
            "state.parked = log",
            "state.parked = log\n    state.log_view = state.view\n    state.persist_view()",
        ),
    ),
    bug(
        "log_view_stays",
        "The view was persisted when it changed; its log view comes with it.",
        Edit(view_change._enter, "state.log_view = state.view", "pass"),
    ),
    bug(
        "speaks_before_view_is_durable",
        "The view is on its way to the disk, so messages of it may leave.",
        Edit(
            state.State.send,
            "self.durable_view == (self.view, self.log_view)",
            "True",
        ),
    ),
    bug(
        "older_view_installed",
        "An announcement comes from a primary, so it is right.",
        Edit(view_change.on_start_view, "header.view < state.view or ", ""),
    ),
    bug(
        "announcement_installed_twice",
        "Installing the log of our view again changes nothing.",
        Edit(
            view_change.on_start_view,
            "header.view == state.view and state.status == Status.NORMAL",
            "False",
        ),
    ),
    bug(
        "stuck_view_change_waits",
        "A view change that was begun will end.",
        Edit(
            view_change.on_view_change_status_timer,
            "start_view_change(state, View(state.view + 1))",
            "pass",
        ),
        is_stall=True,
    ),
)

_RECOVERY = (
    bug(
        "wiped_forgets_it_was",
        "An empty disk is a short log.",
        Edit(
            replica.Replica.restore,
            "state.is_wiped = is_lost and state.replicas > 1",
            "state.is_wiped = False",
        ),
    ),
    bug(
        "wiped_elects",
        "After so many probes without an answer anybody may start an election.",
        Edit(recovery.on_probe_timer, " and not state.is_wiped", ""),
    ),
    bug(
        "believes_old_announcement",
        "A recovering replica takes the first announcement that comes.",
        Edit(recovery.may_install, "return is_answer or view > state.view", "return True"),
    ),
    bug(
        "leads_again_after_restart",
        "A restarted replica goes on where it was.",
        Edit(
            replica.Replica.restore,
            "state.replicas > 1 and (recovered is not None or is_replaced)",
            "is_replaced",
        ),
    ),
    bug(
        "machine_not_restored",
        "The journal is replayed, so the machine starts empty.",
        Edit(replica._restore, "state.machine.install(checkpoint.artifacts)", "pass"),
    ),
    bug(
        "torn_body_is_durable",
        "What the journal gives back is on the disk.",
        Edit(replica._restore, "is_durable=each.body is not None", "is_durable=True"),
    ),
    bug(
        "one_report_is_enough",
        "A wiped replica asks all; who answers first knows what it has promised.",
        Edit(
            recovery.may_install,
            "len(state.reports) >= state.options.quorums.nack",
            "len(state.reports) >= 1",
        ),
    ),
    bug(
        "reported_view_ignored",
        "Enough have reported, so the announcement of a primary can be believed.",
        Edit(recovery.may_install, " and view >= max(state.reports.values())", ""),
    ),
    bug(
        "wiped_nacks",
        "Who has only the header of an op never had the op.",
        Edit(
            view_change._read_log,
            "is_clean = not state.is_suspect and not state.is_wiped",
            "is_clean = True",
        ),
    ),
)

_REPAIR = (
    bug(
        "body_of_repair_unchecked",
        "The header is sealed; whoever serves a repair has checked the body.",
        Edit(
            replica_decode._body_rules,
            "is_own = is_body(",
            "is_own = kind == FrameKind.REPAIR_PREPARE or is_body(",
        ),
    ),
    bug(
        "links_whatever_is_there",
        "The entry of that op is here, so it is the one.",
        Edit(
            repair._find,
            "entry is not None and entry.header.checksum == checksum",
            "entry is not None",
        ),
    ),
    bug(
        "repair_asks_once",
        "Whoever was asked will answer.",
        Edit(
            repair.on_repair_timer,
            "if _request_missing(state, state.prng.choice(state.others)):",
            "if False:",
        ),
        is_stall=True,
    ),
    bug(
        "transfer_acknowledged_at_once",
        "The state is installed, so all of it can be acknowledged.",
        Edit(
            transfer._install,
            "state.move_transfer(Transfer.INSTALLING)",
            "state.durable = commit\n    state.move_transfer(Transfer.NONE)",
        ),
        is_stall=True,
    ),
    bug(
        "transfer_never_given_up",
        "Sooner or later the primary sends the piece.",
        Edit(transfer.on_transfer_timer, ">= _ATTEMPTS_MAX", "< 0"),
    ),
    bug(
        "transfer_pieces_unchecked",
        "A piece of the same kind, place and length is the same piece.",
        Edit(
            transfer.on_state_transfer_target,
            "ours.get(line)",
            "next((each for known, each in ours.items() if known.frontier == line.frontier"
            " and (known.kind, known.length) == (line.kind, line.length)), None)",
        ),
        Edit(
            transfer_session.Pull.artifacts,
            "checksum != line.checksum",
            "False",
        ),
    ),
)

_SHARD = (
    bug(
        "durable_when_written",
        "The write has returned, so the op is durable.",
        Edit(
            journaling.Journaling.prepare,
            "queue = self._until_synced if is_synced else self._until_written",
            "queue = self._until_written",
        ),
    ),
    bug(
        "view_durable_when_written",
        "The write has returned, so the view is remembered.",
        Edit(
            journaling.Journaling.persist_view,
            "self._staged.append((queue, replica, event))",
            "self._staged.append((self._until_written, replica, event))",
        ),
    ),
    bug(
        "seal_of_frames_unchecked",
        "The link has a checksum of its own.",
        Edit(replica_decode.decode_replica, "if not is_sealed(frame):", "if False:"),
    ),
    bug(
        "groups_told_once",
        "A heartbeat that was sent was heard.",
        Edit(
            peers.Peer.make_frame,
            "self._untold[beat.group] = self._sent",
            "del self._untold[beat.group]",
        ),
        is_stall=True,
    ),
    bug(
        "stale_checkpoint_reused",
        "A group in the same view has not changed since the last checkpoint.",
        Edit(
            replica.Replica.checkpoint,
            "(last.state, last.commit_header) != (view_state, header)",
            "last.state.view != view_state.view",
        ),
    ),
    bug(
        "captured_once",
        "A group that a checkpoint holds need not be captured again.",
        Edit(checkpoints.Checkpoints.touch, "self.dirty[group] = None", "pass"),
    ),
    bug(
        "header_is_durable",
        "The record of an op is synced, so the op is durable.",
        Edit(journaling.Journaling.prepare, "if effect.body is not None:", "if True:"),
    ),
)

_STORAGE = (
    bug(
        "rot_is_cut",
        "The journal ends at the first record that cannot be read.",
        Edit(judge.Judge._walk, "record is None and sequence <= self._synced", "False"),
    ),
    bug(
        "sync_point_of_records_ignored",
        "The superblock knows how far the journal was synced.",
        Edit(
            judge.Judge.judge,
            "self._synced = max([self._synced, *(record.head.synced for record in row.values())])",
            "pass",
        ),
    ),
    bug(
        "rot_loses_no_view",
        "Damage of the log is damage of ops; the views are elsewhere.",
        Edit(
            storage_recovery._recovered,
            "state.is_view_lost or group.state_sequence < lost_at",
            "state.is_view_lost",
        ),
    ),
    bug(
        "one_copy_of_superblock",
        "One copy of the superblock is as good as four.",
        Edit(
            superblock_writer.SuperblockWriter.on_written,
            "self._held[self._order[self._copies_done]] = self._sequence\n"
            "    self._copies_done += 1",
            "self._held = [self._sequence] * COPIES\n    self._copies_done = COPIES",
        ),
    ),
    bug(
        "newer_checkpoint_waits",
        "Checkpoints are written one after another, whatever became of the last.",
        Edit(checkpointing.Checkpointer.begin, "self._current.phase is Phase.STARVED", "False"),
    ),
    bug(
        "unreadable_op_dropped",
        "An op that cannot be read cannot be saved either.",
        Edit(
            checkpointing.Checkpointer._choose_files,
            "str(error)))\n            break",
            "str(error)))\n            entries = []",
        ),
    ),
    bug(
        "full_disk_unnoticed",
        "Replacing a file does not fail.",
        Edit(checkpointing.Checkpointer.on_replaced, "if not is_done:", "if False:"),
    ),
    bug(
        "superblock_before_checkpoint",
        "The superblock may name a checkpoint while that is being written.",
        Edit(
            checkpointing.Checkpointer._start,
            "self._outbox.put(ReplaceFile(order.token, checkpoint_name(order.number), data))",
            "self._outbox.put(ReplaceFile(order.token, checkpoint_name(order.number), data))\n"
            "    self.on_replaced(order.token, is_done=True)\n"
            "    order.token = 0",
        ),
    ),
    bug(
        "live_entries_not_copied",
        "A checkpoint covers the files that it frees.",
        Edit(
            checkpointing.Checkpointer.on_replaced,
            "self._journal.rewrite(entries)",
            "self._journal.rewrite([])",
        ),
    ),
    bug(
        "views_not_replayed",
        "The checkpoint holds the views.",
        Edit(
            storage_recovery.Replay._apply,
            "case Kind.VIEW_STATE if is_newer:",
            "case Kind.VIEW_STATE if False:",
        ),
    ),
    bug(
        "body_unchecked_on_recovery",
        "The checksum of the record covers all of it.",
        Edit(
            records._read_body,
            "return (body, start) if is_body_of(header, body) else (None, 0)",
            "return body, start",
        ),
    ),
    bug(
        "files_freed_behind_the_checkpoint",
        "Ops that the checkpoint does not cover are written again, so their file can go.",
        Edit(
            checkpointing.Checkpointer._choose_files,
            "used.last > order.covered or ",
            "",
        ),
    ),
    bug(
        "tail_moves_before_the_copies",
        "The live entries are on their way to the disk, so the superblock may name the new tail.",
        Edit(
            checkpointing.Checkpointer.on_progress,
            "max(order.synced_wanted, order.covered)",
            "order.covered",
        ),
    ),
    bug(
        "copied_as_held",
        "An op that is written again is written as any other.",
        Edit(
            checkpointing.Checkpointer._live_entries,
            "is_never_held=place.is_never_held",
            "is_never_held=False",
        ),
    ),
    bug(
        "checkpoint_asks_for_no_sync",
        "What a checkpoint covers will be synced in time.",
        Edit(
            checkpointing.Checkpointer.on_replaced,
            "if entries or self._journal.synced < order.covered or not order.covered:",
            "if entries:",
        ),
        is_stall=True,
    ),
    bug(
        "freed_files_wait",
        "The next record that is written will use the files that were freed.",
        Edit(checkpointing.Checkpointer._finish, "self._journal.pump()", "pass"),
        is_stall=True,
    ),
    bug(
        "written_is_named",
        "A record that was written can be named: its sync was asked for.",
        Edit(
            store.Store._write_synced,
            "max(old.synced, journal.synced)",
            "max(old.synced, journal.written)",
        ),
    ),
    bug(
        "checkpoint_takes_the_name_back",
        "A checkpoint knows how far the journal was synced: as far as it covers.",
        Edit(
            checkpointing.Checkpointer._name_in,
            "synced=self._journal.synced",
            "synced=order.covered",
        ),
    ),
    bug(
        "named_by_one_copy",
        "The superblock is being written, so it will name the record.",
        Edit(
            store.Store.named.fget,  # type: ignore[attr-defined]  # a property
            "self._writer.current.synced",
            "self._writer._next.synced",
        ),
    ),
    bug(
        "torn_body_named_at_start",
        "What recovery has read is on the disk.",
        Edit(
            store.Store._open,
            "loaded.verdict.synced if verdicts else journal.synced",
            "journal.synced",
        ),
    ),
)

BUGS = {
    each.name: each
    for each in (
        *_NORMAL,
        *_SESSIONS,
        *_VIEW_CHANGE,
        *_RECOVERY,
        *_REPAIR,
        *_SHARD,
        *_STORAGE,
    )
}
