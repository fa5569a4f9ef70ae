"""A real node of several shards: it starts, serves, dies and ends as one (SH-31 to SH-38, PR1)."""

import os
import shutil
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import headrace
from headrace.client import HeadraceError
from tests.crash.process import SMALL
from tests.node import UNPINNED, Node, NodeError, running_node
from tests.shards.topic import PARTITIONS, WAIT_SECONDS, owners, until

pytestmark = pytest.mark.slow

# Small journals, because what a node leaves is searched for secrets; and cheap logins.
FAST = UNPINNED | SMALL
# More of both at night.
SHARD_COUNTS = [int(each) for each in os.environ.get("SHARD_COUNTS", "4").split(",")]
CYCLES = int(os.environ.get("RECREATE_CYCLES", "100"))
ANSWER_SECONDS_MAX = 15.0  # in which every request is answered, whatever hangs


def connect(node: Node, timeout: str = "30 s") -> headrace.Client:
    return headrace.connect(str(node.tcp), username="iggy", password="iggy", timeout=timeout)


def create(client: headrace.Client) -> None:
    client.create_stream("s")
    client.create_topic("s/t", partitions=PARTITIONS)


def fill(client: headrace.Client, text: str) -> None:
    """Send one message to each partition."""
    for partition in range(PARTITIONS):
        client.send("s/t", [f"{text}-{partition}"], partition=partition)


def read(client: headrace.Client) -> list[list[str]]:
    """Return the texts that each partition holds."""
    polls = [client.poll("s/t", number, start=0, count=10_000) for number in range(PARTITIONS)]
    return [[message.text for message in poll] for poll in polls]


def expected(*texts: str) -> list[list[str]]:
    return [[f"{text}-{number}" for text in texts] for number in range(PARTITIONS)]


class Load:
    """A client that sends to all partitions in turn, and keeps what was confirmed."""

    def __init__(self, node: Node, name: str) -> None:
        self.confirmed: list[tuple[int, str]] = []
        self._node = node
        self._name = name
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            with suppress(HeadraceError, OSError), connect(self._node) as client:
                while not self._is_over.is_set():
                    number += 1
                    text = f"{self._name}-{number}"
                    client.send("s/t", [text], partition=number % PARTITIONS)
                    self.confirmed.append((number % PARTITIONS, text))

    def end(self) -> None:
        self._is_over.set()
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()

    def verify(self, client: headrace.Client) -> None:
        held = [dict.fromkeys(texts) for texts in read(client)]
        assert [each for each in self.confirmed if each[1] not in held[each[0]]] == []


@pytest.mark.parametrize("shards", SHARD_COUNTS)
def test_all_shards_serve_one_node(shards: int) -> None:
    """SH-31, SH-33: one address; what it holds is there after two restarts.

    Share: shards, about 10 s: a shard takes most of a second of a core to load its modules.
    """
    with running_node(arguments=["--shards", str(shards)], environment=FAST) as node:
        assert len(node.shard_pids) == shards
        assert len(dict.fromkeys(owners(shards))) > 1
        with connect(node) as client:
            create(client)
            fill(client, "a")
        for text in ("b", "c"):
            node.stop()
            node.start()
            with connect(node) as client:
                fill(client, text)
        with connect(node) as client:
            assert read(client) == expected("a", "b", "c")


@pytest.mark.parametrize("killed", [0, 1])
def test_a_shard_that_is_killed_takes_nothing_along(killed: int) -> None:
    """PR1: its siblings stop, all start again at the same address; nothing confirmed is lost."""
    with running_node(arguments=["--shards", "2"], environment=FAST) as node:
        with connect(node) as client:
            create(client)
        load = Load(node, "a")
        try:
            for _ in range(2):
                until_more(load)
                before = node.shard_pids
                os.kill(before[killed], signal.SIGKILL)
                until(lambda before=before: is_anew(node, before))  # type: ignore[misc]
                until_more(load)
        finally:
            load.end()
        assert node.output().count(f"shard {killed}: ended by SIGKILL") == 2
        with connect(node) as client:
            load.verify(client)


def is_anew(node: Node, before: list[int]) -> bool:
    node.check_alive()
    now = node.shard_pids
    return len(now) == len(before) and not any(pid in before for pid in now)


def until_more(load: Load) -> None:
    """Wait until the load has had eight more answers."""
    wanted = len(load.confirmed) + PARTITIONS
    until(lambda: len(load.confirmed) >= wanted)


def test_shards_that_die_again_and_again_end_the_node() -> None:
    """PR1: the fifth failure within a minute ends it with 1, and it says why."""
    with running_node(arguments=["--shards", "2"], environment=FAST) as node:
        for _ in range(5):
            before = node.shard_pids
            os.kill(before[1], signal.SIGKILL)
            until(lambda before=before: not_alive(node) or is_anew(node, before))  # type: ignore[misc]
        until(lambda: not_alive(node))
        assert "failure 5 in 60 s" in node.last_words()
        node.kill()


def not_alive(node: Node) -> bool:
    try:
        node.check_alive()
    except NodeError as error:
        if "ended by itself with 1" not in str(error):
            raise
        return True
    return False


def test_shards_end_with_their_supervisor() -> None:
    """PR1: no shard is left that could write to the folder."""
    with running_node(arguments=["--shards", "2"], environment=FAST) as node:
        with connect(node) as client:
            create(client)
            fill(client, "a")
        assert len(node.shard_pids) == 2
        node.kill()  # It waits until the shards are gone, or fails.
        node.start()
        with connect(node) as client:
            assert read(client) == expected("a")


def test_a_shard_that_hangs_holds_up_its_own_partitions_alone() -> None:
    """PR12: requests for its partitions are answered in time, and the others are served.

    Share: shards, about 15 s, most of it a wait.
    """
    with running_node(arguments=["--shards", "2"], environment=FAST) as node:
        with connect(node) as client:
            create(client)
            fill(client, "a")
        of_shard = owners(2)
        # Its home answers after 10 s that it does not know; a client that may asks again then.
        with at_home(node, 0, timeout="11 s") as client:
            hung = node.shard_pids[1]
            os.kill(hung, signal.SIGSTOP)
            try:
                began = time.monotonic()
                client.send("s/t", ["b"], partition=of_shard.index(0))
                assert time.monotonic() - began < ANSWER_SECONDS_MAX
                with pytest.raises(HeadraceError):
                    client.send("s/t", ["b"], partition=of_shard.index(1))
            finally:
                os.kill(hung, signal.SIGCONT)
            until(lambda: can_send(client, of_shard.index(1)))


def test_when_shard_0_hangs_others_serve_for_a_second() -> None:
    """PR12: after that nobody can say that a right was not revoked, so they refuse for now."""
    with running_node(arguments=["--shards", "2"], environment=FAST) as node:
        with connect(node) as client:
            create(client)
            fill(client, "a")
        mine = owners(2).index(1)
        with at_home(node, 1, timeout="2 s") as client:
            client.send("s/t", ["b"], partition=mine)
            hung = node.shard_pids[0]
            os.kill(hung, signal.SIGSTOP)
            try:
                client.send("s/t", ["c"], partition=mine)
                until(lambda: not can_send(client, mine))
            finally:
                os.kill(hung, signal.SIGCONT)
            until(lambda: can_send(client, mine))


def at_home(node: Node, shard: int, timeout: str = "30 s") -> headrace.Client:
    """Return a client whose connection is on this shard: connections are dealt in turn."""
    for _ in range(4):
        client = connect(node, timeout)
        until(lambda client=client: sum(connections(client)) == 1)  # type: ignore[misc]
        if connections(client)[shard] == 1:
            return client
        client.close()
    raise AssertionError("no connection came to that shard")


def connections(client: headrace.Client) -> list[int]:
    """Return how many connections each shard has."""
    return [each.connections_count for each in client.get_shards().shards]


def can_send(client: headrace.Client, partition: int) -> bool:
    try:
        client.send("s/t", ["again"], partition=partition)
    except HeadraceError:
        return False
    return True


def test_a_reply_that_crosses_may_be_larger_than_what_clients_may_send() -> None:
    """A lane carries the largest reply, whatever `tcp.frame_bytes_max` is."""
    assert FAST["HEADRACE_TCP_FRAME_BYTES_MAX"] == "1 MiB"
    with running_node(arguments=["--shards", "2"], environment=FAST) as node:
        with connect(node) as client:
            create(client)
            for partition in range(PARTITIONS):
                for _ in range(4):
                    client.send("s/t", [bytes(500_000)], partition=partition)
        for shard in range(2):
            with at_home(node, shard) as client:
                polls = [
                    client.poll("s/t", number, start=0, count=4) for number in range(PARTITIONS)
                ]
                assert [len(list(poll)) for poll in polls] == [4] * PARTITIONS


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_shard_that_cannot_start_is_named(broken: int, tmp_path: Path) -> None:
    """SH-32: its siblings are joined, the node ends with 1, and says which shard and why."""
    node = Node(tmp_path, arguments=["--shards", "3"], environment=FAST)
    node.start()
    node.stop()
    (stores,) = (node.data / "shards").glob("*")
    (store,) = (each for each in stores.iterdir() if each.name.endswith(str(broken)))
    shutil.rmtree(store)
    with pytest.raises(NodeError, match=f"shard {broken}|{store.name}"):
        node.start()


def test_other_numbers_of_shards_between_starts(tmp_path: Path) -> None:
    """O2.5: 1, 2, 3 and 1 shards, each start with all that the others have stored."""
    told: list[str] = []
    for count in (1, 2, 3, 1):
        node = Node(tmp_path, arguments=["--shards", str(count)], environment=FAST)
        for _ in range(2):
            node.start()
            try:
                with connect(node) as client:
                    if not told:
                        create(client)
                    assert read(client) == expected(*told)
                    told.append(f"{count}.{len(told)}")
                    fill(client, told[-1])
            finally:
                node.stop()


def test_topics_made_anew_under_load_hold_only_their_own() -> None:
    """RC-4: no message of a deleted topic is seen in the one that has its name and number.

    Share: shards, about 10 s.
    """
    with running_node(arguments=["--shards", "2"], environment=FAST) as node:
        with connect(node) as client:
            create(client)
            loads = [Load(node, str(number)) for number in range(8)]
            try:
                for cycle in range(CYCLES):
                    client.delete_topic("s/t")
                    client.create_topic("s/t", partitions=PARTITIONS)
                    client.send("s/t", [f"cycle-{cycle}"], partition=cycle % PARTITIONS)
            finally:
                for load in loads:
                    load.end()
            found = [text for texts in read(client) for text in texts]
        assert [text for text in found if text.startswith("cycle")] == [f"cycle-{CYCLES - 1}"]
        assert all(load.confirmed for load in loads)
