"""Lane K: kill -9 under load, again and again, on one folder (PR1, PR5, PR11)."""

import random
import time

from headrace.server.doctor.examine import examine
from headrace.server.doctor.report import Verdict
from tests import crossings
from tests.crash.client import Client
from tests.crash.load import Crowd, Tally, make_topics
from tests.crash.process import crash_node

_LOAD_SECONDS = (0.02, 0.6)
_START_SECONDS_MAX = 0.5
_START_KILLED_SHARE = 0.3


def run_kills(kills: int, seed: int) -> Tally:
    """Kill a node that often; give what was done.

    Raises:
        AssertionError: Something confirmed was lost, changed, moved or doubled, or the doctor takes
            what a kill left for damage.
    """
    rng = random.Random(seed)
    with crash_node() as node:
        node.start()
        admin = Client(1)
        admin.connect(node.tcp)
        crowd = Crowd(make_topics(admin, partitions=rng.choice([1, 2])), rng)
        admin.close()
        for number in range(kills):

            def interrupt() -> None:
                time.sleep(rng.uniform(*_LOAD_SECONDS))
                node.check_alive()
                crossings.note(node)
                node.kill()

            crowd.run(node.tcp, interrupt)
            crowd.tally.kills += 1
            while rng.random() < _START_KILLED_SHARE:
                node.kill_at(rng.uniform(0.0, _START_SECONDS_MAX))
                crowd.tally.starts_killed += 1
            report = examine(node.data)
            assert not report.is_damaged, report
            # Evidence of torn records is beside the journal; of segments a kill leaves none.
            alarms = [each for each in report.files if each.verdict == Verdict.NOTICE]
            assert not [each for each in alarms if each.what == "segment"], report
            node.restart()
            crowd.verify(node.tcp)
            if number % 2:
                crowd.settle(node.tcp)
                crowd.verify(node.tcp)
        crowd.settle(node.tcp)
        node.stop()
        node.restart()
        crowd.verify(node.tcp)
        node.stop()
        crowd.count()
        return crowd.tally
