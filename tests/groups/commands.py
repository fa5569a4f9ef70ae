"""The commands of scenarios of one consumer group: who has which partitions."""

from headrace.groups.changes import join, leave, redeal
from headrace.groups.roster import EMPTY_ROSTER, may_poll, owns


class Commands:
    """Understands the commands of a scenario file; each shows the group after it.

    topic COUNT               start with a topic of so many partitions, and no members
    join CLIENT, leave CLIENT
    partitions COUNT          the topic has so many partitions from here on
    asks CLIENT PARTITION     show what a client may do to a partition
    """

    def __init__(self) -> None:
        self.count = 0
        self.roster = EMPTY_ROSTER

    def run(self, line: str) -> list[str]:
        verb, *words = line.split()
        printed: list[str] | None = getattr(self, f"do_{verb}")(*map(int, words))
        return self.show() if printed is None else printed

    def do_topic(self, count: int) -> None:
        self.count = count
        self.roster = EMPTY_ROSTER

    def do_join(self, client: int) -> None:
        self.roster = join(self.roster, client=client, partitions_count=self.count)

    def do_leave(self, client: int) -> None:
        self.roster = leave(self.roster, client=client, partitions_count=self.count)

    def do_partitions(self, count: int) -> None:
        self.count = count
        self.roster = redeal(self.roster, partitions_count=count)

    def do_asks(self, client: int, partition: int) -> list[str]:
        polls = may_poll(self.roster, client=client, partition=partition)
        commits = owns(self.roster, client=client, partition=partition)
        served = "polls" if polls else "is not served"
        return [f"{client} {served}, {'commits' if commits else 'does not commit'}"]

    def show(self) -> list[str]:
        shares = [
            f"{each.client} has {' '.join(map(str, each.partitions)) or 'nothing'}"
            for each in self.roster.members
        ]
        return [f"generation {self.roster.generation}: {', '.join(shares) or 'no members'}"]
