"""Bugs of metadata and of consumer groups, as a careless engineer would have written them."""

from headrace.groups import changes
from headrace.metadata import (
    authorization,
    group_changes,
    snapshot,
    state,
    stream_changes,
    topic_changes,
)
from tests.planted.planting import Edit, bug

_GROUPS = (
    bug(
        "share_of_a_leaver_waits",
        "What a member had is dealt when the next one joins.",
        Edit(
            changes.leave,
            "return _deal(roster.generation + 1, members, partitions_count)",
            "return make_roster(roster.generation + 1, members)",
        ),
    ),
    bug(
        "generation_counts_joins",
        "A member that goes needs no new generation: the others keep what they had.",
        Edit(changes.leave, "_deal(roster.generation + 1", "_deal(roster.generation"),
    ),
    bug(
        "member_numbers_count_up",
        "A member that joins stands after all others.",
        Edit(changes._lowest_free_key, "if member.key != position:", "if False:"),
    ),
    bug(
        "new_partitions_not_dealt",
        "Members learn of new partitions when they join.",
        Edit(
            topic_changes._partitions_changed,
            "group.roster = redeal(group.roster, partitions_count=len(topic.partitions))",
            "pass",
        ),
    ),
    bug(
        "group_number_given_again",
        "The number of a group is how many there are before it.",
        Edit(
            group_changes.create_group,
            "id=topic.next_group_id",
            "id=len(topic.groups)",
        ),
    ),
    bug(
        "memberships_outlive_topic",
        "A topic that goes takes its groups along, and so their members.",
        Edit(topic_changes.forget_topic, "state.forget_group(topic, group)", "pass"),
    ),
)

_REST = (
    bug(
        "inactive_user_acts",
        "An inactive user cannot log in, so it asks for nothing.",
        Edit(
            authorization.authorize,
            "user is None or user.status != UserStatus.ACTIVE",
            "user is None",
        ),
    ),
    bug(
        "token_good_at_its_end",
        "A token is good up to the moment at which it expires.",
        Edit(state.Token.is_expired, "now >= self.expires_at", "now > self.expires_at"),
    ),
    bug(
        "permissions_outlive_stream",
        "Nobody can do anything to a stream that is gone.",
        Edit(
            stream_changes.delete_stream,
            "user.permit(without_stream(user.permissions, stream.id))",
            "pass",
        ),
    ),
    bug(
        "refuses_after_the_change",
        "A slice that is too long does no harm, so the count can be compared later.",
        Edit(
            topic_changes.delete_partitions,
            "if request.partitions_count > len(topic.partitions):",
            "before = len(topic.partitions)\n"
            "    del topic.partitions[-request.partitions_count :]\n"
            "    if request.partitions_count > before:",
        ),
        Edit(
            topic_changes.delete_partitions,
            "del topic.partitions[-request.partitions_count :]\n    state.raise_revision()",
            "state.raise_revision()",
        ),
    ),
    bug(
        "purge_makes_partitions_anew",
        "An emptied partition is a new partition.",
        Edit(
            topic_changes.purge,
            "Partition(part.created_at, part.created_revision, part.purge_generation + 1)",
            "Partition(part.created_at, state.revision)",
        ),
    ),
    bug(
        "snapshot_counts_groups",
        "The next group of a topic follows those that a snapshot holds.",
        Edit(
            snapshot._image_of_topic,
            "next_group_id=topic.next_group_id",
            "next_group_id=len(topic.groups)",
        ),
    ),
    bug(
        "memberships_not_restored",
        "Clients join again after a restart, so who belongs where need not be known.",
        Edit(
            snapshot._restore_group,
            "state.enrol(client, (topic.stream_id, topic.id, image.id))",
            "pass",
        ),
    ),
)

BUGS = {each.name: each for each in (*_GROUPS, *_REST)}
