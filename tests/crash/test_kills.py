"""Lane K in small: kill -9 under load (PR1, PR5, PR11). About 10 s of the storage share."""

import random
import time

import pytest

from tests.crash.client import Client
from tests.crash.kills import run_kills
from tests.crash.load import Crowd, make_topics
from tests.crash.process import crash_node

pytestmark = pytest.mark.slow


def test_kill_under_load() -> None:
    """PR1, PR5: nothing confirmed is lost, moved, changed or doubled."""
    tally = run_kills(kills=5, seed=1)
    assert tally.kills == 5
    assert tally.starts_killed > 0
    assert tally.confirmed > 100
    assert tally.resent > 0


def test_a_stop_under_load_answers_or_closes() -> None:
    """PR11: it ends with 0, and the restart has nothing to repair."""
    with crash_node() as node:
        node.start()
        admin = Client(1)
        admin.connect(node.tcp)
        crowd = Crowd(make_topics(admin), random.Random(3))
        admin.close()

        def interrupt() -> None:
            time.sleep(0.3)
            node.stop()

        crowd.run(node.tcp, interrupt)
        said = len(node.output())
        node.restart()
        assert "torn" not in node.output()[said:]
        crowd.verify(node.tcp)
        crowd.settle(node.tcp)
        crowd.verify(node.tcp)
        node.stop()
