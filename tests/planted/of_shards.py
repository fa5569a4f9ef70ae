"""Bugs of nodes of several shards, as a careless engineer would have written them."""

from headrace.base import placement
from headrace.shard import peer
from headrace.shard.bus import doubts, exchange, feed, forwards, guests, image, numbered
from headrace.shard.front import router
from headrace.shard.owned import parking, partitions
from tests.planted.planting import Edit, bug

_ROUTES = (
    bug(
        "shard_0_knows_all",
        "Shard 0 has the metadata: what is not here is asked there.",
        Edit(
            partitions.Partitions.find_epoch,
            "raise ElsewhereError(placement.owner(namespace), namespace, epoch)",
            "raise ElsewhereError(0, namespace, epoch)",
        ),
        is_stall=True,
    ),
    bug(
        "metadata_hashed",
        "The metadata group is a group like any other, and is where its number says.",
        Edit(placement.owner_of, "if group == METADATA_GROUP:", "if False:"),
        Edit(placement.owner_of, "assert is_partition_group(group)", "pass"),
        Edit(
            router.Router._forward,
            "assert self._forwarding is not None",
            "elsewhere.owner = self._sends._partitions._placement.owner(elsewhere.group)\n"
            "    assert self._forwarding is not None",
        ),
        is_stall=True,
    ),
    bug(
        "guest_of_any_epoch",
        "The home has chosen the partition by its number.",
        Edit(
            router.Router.route_guest,
            "chosen = (GroupId(envelope.group), envelope.origin)",
            "here = self._sends._partitions.locals.get(envelope.group)\n"
            "        epoch = here.target.created_revision if here else envelope.origin\n"
            "        chosen = (GroupId(envelope.group), epoch)",
        ),
    ),
    bug(
        "guest_before_its_metadata",
        "The home has judged the request: there is nothing to wait for.",
        Edit(
            guests.Guests.on_request,
            "if envelope.commit > self._metadata.commit:",
            "if False:",
        ),
    ),
)

_FEED = (
    bug(
        "reply_before_feed",
        "Shard 0 has answered: the client need not wait.",
        Edit(forwards.Forwards.on_reply, "if header.commit > self._metadata.commit:", "if False:"),
    ),
    bug(
        "absent_once_asked",
        "Shard 0 was asked, so what it had decided is here by now.",
        Edit(
            doubts.Doubts.on_point,
            "doubted.commit = min(doubted.commit, commit)",
            "doubted.commit = 0",
        ),
    ),
    bug(
        "gap_applied",
        "Ops come in order: a number that was left out is a login.",
        Edit(
            image.MetadataImage.apply,
            "if previous != self.last_op or not self.is_caught_up:",
            "if not self.is_caught_up:",
        ),
    ),
    bug(
        "gap_not_asked",
        "Lanes lose nothing: what is missing is on its way.",
        Edit(
            exchange.PeerExchange._ask,
            "is_lacking=int(self._is_lacking)",
            "is_lacking=int(not image.is_caught_up)",
        ),
        is_stall=True,
    ),
    bug(
        "known_is_purged",
        "A shard that knows of a purge has applied it.",
        Edit(
            feed.Feed.are_settled,
            "peer.settled >= revision",
            "peer.commit >= revision",
        ),
    ),
    bug(
        "old_image_serves",
        "An image is right until a newer one comes.",
        Edit(peer.PeerShard._route_if_fresh, "if self.image.is_fresh or", "if True or"),
    ),
    bug(
        "refused_order_forgotten",
        "A lane that was full has taken the rest; the order will be given again.",
        Edit(numbered.Outgoing.refused, "self._is_refused = True", "pass"),
        is_stall=True,
    ),
)

_PARKED = (
    bug(
        "parked_for_the_namesake",
        "A frame that waits for a partition goes on when a partition of that number is made.",
        Edit(parking.Parking.release, "if each.stamp != epoch:", "if False:"),
        Edit(
            router.Router.route_parked,
            "chosen = (GroupId(parked.group), parked.stamp)",
            "here = self._sends._partitions.locals[parked.group]\n"
            "            chosen = (GroupId(parked.group), here.target.created_revision)",
        ),
    ),
    bug(
        "parked_and_dropped",
        "A partition that went away has no use for what waits; who asked has a deadline.",
        Edit(parking.Parking._refuse_all, "self._requests.refuse(each)", "pass"),
    ),
)

_PARTS = (*_ROUTES, *_FEED, *_PARKED)
BUGS = {each.name: each for each in _PARTS}
