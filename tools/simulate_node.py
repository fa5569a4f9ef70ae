"""Runs simulations of whole nodes: one seed to look at, many to search.

    python -m tools.simulate_node --seed 7 -v
    python -m tools.simulate_node --seeds 100 --tree --jobs 2

The exit code is that of the run: 0 passed, 1 a rule was broken, 2 did not settle, 3 reached
nothing. Stored seeds (tests/seeds/node-*.txt) are part of every search.
"""

import sys
from headrace.sim.nodes.options import draw_node_options
from headrace.sim.nodes.world import NodeWorld

if __name__ == "__main__":
    from tools.simulate import show
    first, count = int(sys.argv[1]), int(sys.argv[2])
    import time
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    total = 0
    from collections import Counter
    reached = Counter()
    times = []
    for seed in range(first, first + count):
        options = draw_node_options(seed)
        if n and options.replica_count != n:
            continue
        t = time.perf_counter()
        report = NodeWorld(options, print if "-v" in sys.argv else None).run()
        times.append(time.perf_counter() - t)
        reached.update(report.events); reached.update(report.probes)
        if count == 1:
            show(report)
        if report.outcome:
            print(seed, options.replica_count, report.outcome.name, report.reason[:600], round(times[-1],2), flush=True)
    print(sorted(reached.items()) if "-p" in sys.argv else "", len(times), "seeds", sum(times), sorted(times)[len(times)//2], max(times))
