"""A node of two shards beside one of one shard, and a forwarded request beside a local one.

Both nodes run all the time and are asked in turn, lap after lap; figures are medians of laps.
Compare ratios, never times between runs. The generator shares the machine with the shards.

* owner: every connection lives at the shard that owns the partition it sends to.
* random: the same connections and partitions, put together by chance: half of the requests cross.
* local, forwarded: one connection in lockstep, to a partition of its own shard and of the other;
  half of the laps on a connection of shard 0, half on one of shard 1.

Each shard owns as many of the partitions of a case as the other. Columns: the figure of either arm
and their ratio, with the quartiles of the ratios of single laps; processor time of all processes of
the node for one request; cores that node and generator kept busy, which bounds what more shards can
give; the part of the requests that crossed. Class `replicated` throughout.

    python -m bench.shards [--quick | --shortest] [--only PART] [--laps N] [--fill] [--folder DIR]

Shards keep to their cores, as they do by default; HEADRACE_SERVER_PIN_CORES=false lets them move.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import machine, pagecache
from bench.cases import LARGEST, LOCKSTEP, SINGLE, pipelined
from bench.frames import Shape, make_poll, make_sends
from bench.homes import Arm, HomeError, Side, Topic
from bench.load import Generator, GeneratorError, Lap, Limits, NoCompilerError, Traffic, Window
from bench.node import LOAD_MAX, WARM_BYTES
from bench.rig import FULL, QUICK, SHORTEST, Pace
from bench.server import IDLE_BYTES_MAX, ServerError, make_account
from bench.targets import SHARD_TARGETS
from headrace.base.limits import KIB, MIB
from headrace.wire.commands.shards import GET_SHARDS

SHARDS = 2
LAPS = 8
OWNER = "owner"
RANDOM = "random"
FOUR = Traffic(4, 1)
SCALED = (
    (SINGLE, Traffic(8, pipelined(SINGLE).depth)),
    (LARGEST, FOUR),
    (Shape(1000, 100), FOUR),
)
SMALL = Shape(1, 256)
LARGE = Shape(1, MIB)
POLLED_BYTES = 8 * MIB
POLLED_BATCHES_MAX = 1024

Value = Callable[[Lap], float]


class Run:
    """One run: both nodes, and the figures that targets speak of."""

    def __init__(self, generator: Generator, sides: Sequence[Side], pace: Pace, only: str) -> None:
        self.figures: dict[str, float] = {}
        self.errors = 0
        self._generator = generator
        self._one, self._two = sides
        self._pace = pace
        self._only = only

    def measure(self) -> None:
        """Measure everything."""
        self._measure_idle()
        topics = [side.create_topic("scaled", SHARDS) for side in (self._one, self._two)]
        assert topics[0] == topics[1], "partitions have the same numbers in both nodes"
        for side in (self._one, self._two):
            self._warm(side, topics[0])
        head("1 shard", "2 shards")
        for shape, traffic in SCALED:
            for homes in (OWNER, RANDOM):
                if self._only in (name := f"send/{shape}/{traffic}/{homes}"):
                    self._scale(name, shape, traffic, topics[0], is_random=homes == RANDOM)
        head("local us", "forwarded")
        for verb, prepare in (("send", self._sending), ("poll", self._polling)):
            for shape in (SMALL, LARGE):
                if self._only in (name := f"{verb}/{size_of(shape)}/p50"):
                    self._forward(name, prepare(shape))

    # An idle node.

    def _measure_idle(self) -> None:
        time.sleep(self._pace.settle_seconds)
        with self._two.server.connect() as connection:
            shards = connection.call(GET_SHARDS, None).shards
        found = [machine.memory_of(shard.process_id) for shard in shards]
        resident = [each.resident / MIB for each in found if each is not None]
        assert len(resident) == SHARDS
        print(f"idle, MiB of each shard: {', '.join(f'{each:.1f}' for each in resident)}")
        self.figures["idle shard"] = max(resident)
        self.figures["idle shard allowed"] = IDLE_BYTES_MAX / MIB

    def _warm(self, side: Side, topic: Topic) -> None:
        """Send once round every journal: its files are there then, and warm."""
        wanted = min(WARM_BYTES, self._pace.ahead_bytes_max) * side.shards
        frames = make_sends(topic.name, LARGEST, topic.partitions(SHARDS))
        port, limits = side.server.port, Limits(60.0, wanted)
        self.errors += self._generator.send_each(port, frames, Traffic(SHARDS, 4), limits).errors

    # Two shards against one.

    def _scale(
        self, name: str, shape: Shape, traffic: Traffic, topic: Topic, *, is_random: bool
    ) -> None:
        frames = make_sends(topic.name, shape, topic.partitions(traffic.connections))
        chance = random.Random(0)  # noqa: S311 - no secret, and the same in every run
        one, two = self._arm(self._one), self._arm(self._two)

        def run(arm: Arm, order: list[bytes]) -> None:
            port = arm.side.server.port
            arm.run(
                traffic.connections,
                lambda: self._generator.send_each(port, order, traffic, self._pace.lap),
            )

        for number in range(self._pace.laps):
            order = chance.sample(frames, len(frames)) if is_random else frames
            for arm in (one, two) if number % 2 else (two, one):
                run(arm, order)
        if not is_random:
            two.check_crossed(is_forwarded=False)
        self._tell(name, one, two, lambda lap: lap.rate)
        self.figures |= {f"{name} 1": one.rate, f"{name} 2": two.rate}

    # A forwarded request against a local one.

    def _sending(self, shape: Shape) -> Callable[[int], Lap]:
        """Return what sends to a partition of a shard for a lap."""
        topic = self._two.create_topic(f"sent-{shape.payload_bytes}", SHARDS)
        frames = make_sends(topic.name, shape, topic.partitions(SHARDS))
        port = self._two.server.port
        return lambda owner: self._generator.send(port, frames[owner], LOCKSTEP, self._pace.lap)

    def _polling(self, shape: Shape) -> Callable[[int], Lap]:
        """Return what polls a partition of a shard for a lap; it is in memory."""
        topic = self._two.create_topic(f"polled-{shape.payload_bytes}", SHARDS)
        partitions = topic.partitions(SHARDS)
        port, generator, limits = self._two.server.port, self._generator, self._pace.lap
        batches = min(POLLED_BATCHES_MAX, POLLED_BYTES // shape.bytes)
        for frame in make_sends(topic.name, shape, partitions):
            generator.send(port, frame, LOCKSTEP, Limits(60.0, batches * len(frame)))
        polls = [make_poll(topic.name, shape, partition) for partition in partitions]
        window = Window(0, batches * shape.messages)
        return lambda owner: generator.poll(port, polls[owner], shape, window, LOCKSTEP, limits)

    def _forward(self, name: str, lapping: Callable[[int], Lap]) -> None:
        local, forwarded = self._arm(self._two), self._arm(self._two)
        for number in range(max(self._pace.laps, SHARDS)):
            home = number % SHARDS
            local.run(1, partial(lapping, home), home=home)
            forwarded.run(1, partial(lapping, 1 - home), home=home)
        local.check_crossed(is_forwarded=False)
        forwarded.check_crossed(is_forwarded=True)
        self._tell(name, local, forwarded, lambda lap: lap.p50_us)
        self.figures |= {f"{name} local": local.p50_us, f"{name} forwarded": forwarded.p50_us}

    def _arm(self, side: Side) -> Arm:
        return Arm(side, self._generator, pause_seconds=self._pace.pause_seconds)

    def _tell(self, name: str, first: Arm, second: Arm, value: Value) -> None:
        """Print the line of a case: the value of both arms, and what they cost."""
        self.errors += first.errors + second.errors
        medians = [statistics.median(map(value, arm.laps)) for arm in (first, second)]
        ratios = [value(two) / value(one) for one, two in zip(first.laps, second.laps, strict=True)]
        low, _, high = quartiles(ratios)
        line = f"{name:34}{medians[0]:11,.0f}{medians[1]:11,.0f}{medians[1] / medians[0]:7.2f}"
        line += f"{low:8.2f}{high:6.2f}{first.cpu_us:10,.0f}{second.cpu_us:10,.0f}"
        line += f"{first.cores:8.2f}{second.cores:6.2f}{second.crossed_share:9.0%}"
        if first.errors or second.errors:
            line += f"  {first.errors} and {second.errors} ERRORS"
        print(line, flush=True)


def head(first: str, second: str) -> None:
    """Print the line above a table."""
    print(f"\n{'':34}{first:>11}{second:>11}{'ratio':>7}{'quartiles':>14}", end="")
    print(f"{'cpu us':>10}{'cpu us':>10}{'cores':>14}{'crossed':>9}")


def quartiles(ratios: list[float]) -> list[float]:
    """Return the quartiles of some ratios, none of them beyond what was measured."""
    if len(ratios) == 1:
        return ratios * 3
    return statistics.quantiles(ratios, n=4, method="inclusive")


def size_of(shape: Shape) -> str:
    """Return the size of a request as people write it."""
    size = shape.bytes
    return (
        f"{size // MIB} MiB"
        if size >= MIB
        else f"{size // KIB} KiB"
        if size >= KIB
        else f"{size} B"
    )


def read_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.shards", description=(__doc__ or "").split("\n")[0]
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="short laps, for a look")
    length.add_argument("--shortest", action="store_true", help="tiny laps: whether it runs")
    parser.add_argument("--only", default="", metavar="PART", help="cases with this in their name")
    parser.add_argument("--laps", type=int, metavar="N", help=f"of each case, {LAPS} if not quick")
    parser.add_argument("--fill", action="store_true", help="the page cache first")
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="where the nodes have their files"
    )
    return parser.parse_args()


def pace_of(options: argparse.Namespace) -> Pace:
    """Return how long the run takes."""
    pace = SHORTEST if options.shortest else QUICK if options.quick else FULL._replace(laps=LAPS)
    return pace if options.laps is None else pace._replace(laps=options.laps)


def main() -> None:
    """Print the conditions, then the figures, then where we stand."""
    options = read_options()
    print(machine.describe())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(dir=options.folder)))
        if options.fill:
            print(pagecache.fill(folder), flush=True)
        account = make_account()
        try:
            generator = Generator(folder, account)
            sides = []
            for shards in (1, SHARDS):
                side = Side(shards, folder / str(shards), account, is_hasty=options.shortest)
                stack.callback(side.server.end, is_asked=True)
                sides.append(side)
            run = Run(generator, sides, pace_of(options), options.only)
            run.measure()
        except NoCompilerError as error:
            print(f"skipped: {error}")
            return
        except (GeneratorError, HomeError, ServerError) as error:
            sys.exit(f"the benchmark ended: {error}")
        print("\nTargets: ratio, what is wanted, of what")
        verdicts = [target.judge(run.figures) for target in SHARD_TARGETS]
        assert options.only or all(verdict.ratio is not None for verdict in verdicts), "all cases"
        for verdict in verdicts:
            print(verdict)
        load = machine.load_average()
        doubt = "; doubtful: others used the machine, or we did" if load > LOAD_MAX else ""
        print(f"\n{run.errors} errors; load average {load:.2f}{doubt}")
        if run.errors:
            sys.exit("requests failed: the figures of their cases are none")


if __name__ == "__main__":
    main()
