"""Compares dflop.partition with verl's partitioner, and measures how much of a loop's time BatchSampler takes.

    bench.py [--verl FILE] [--inputs N]

FILE is verl/utils/seqlen_balancing.py of a copy of verl. Without it, this file's own version of the same method is
used: the largest differencing method of Karmarkar and Karp in plain Python, as in get_seqlen_balanced_partitions.
"""

import argparse
import heapq
import random
import statistics
import time

import dflop


class Part:
    """A bin of a partition: its items and their load."""

    def __init__(self, load=0, items=()):
        self.load = load
        self.items = list(items)

    def __lt__(self, other):
        return (self.load, len(self.items), self.items) < (other.load, len(other.items), other.items)


class State:
    """Some of the items in k parts, the largest first. States with a larger spread sort first."""

    def __init__(self, parts):
        self.parts = sorted(parts, reverse=True)
        self.spread = self.parts[0].load - self.parts[-1].load

    def __lt__(self, other):
        return (self.spread, self.parts[0].load) > (other.spread, other.parts[0].load)

    def joined(self, other):
        pairs = zip(self.parts, reversed(other.parts))
        return State([Part(a.load + b.load, a.items + b.items) for a, b in pairs])


def differencing(costs, k, equal_size):
    """Returns k lists of items. Merges the two states with the largest spread, large parts with small ones."""
    order = sorted(range(len(costs)), key=lambda i: (costs[i], i))
    if equal_size:
        groups = [order[first : first + k] for first in range(0, len(order), k)]
    else:
        groups = [[i] for i in order]
    heap = [State([Part(costs[i], [i]) for i in g] + [Part() for _ in range(k - len(g))]) for g in groups]
    heapq.heapify(heap)
    while len(heap) > 1:
        heapq.heappush(heap, heapq.heappop(heap).joined(heapq.heappop(heap)))
    return [part.items for part in heap[0].parts]


def of_verl(path):
    """Returns the function from a file of verl, without running the file's imports."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    first, last = text.index("def karmarkar_karp"), text.index("def greedy_partition")
    names = {"heapq": heapq}
    exec(text[first:last], names)
    return names["karmarkar_karp"]


DRAWS = {
    "uniform": lambda rng: rng.randint(1, 8192),
    "lognormal": lambda rng: int(rng.lognormvariate(6, 1)) + 1,
    "small": lambda rng: rng.randint(1, 20),
    "two kinds": lambda rng: rng.choice([100, 4000]) + rng.randint(0, 50),
    "real": lambda rng: rng.random(),
}


def spread(costs, lists):
    loads = [sum(costs[i] for i in items) for items in lists]
    return max(loads) - min(loads)


def timed(function, times):
    """Returns the min time of several calls in milliseconds, and the result of the last call."""
    least = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        result = function()
        least = min(least, time.perf_counter() - start)
    return least * 1e3, result


def compare_speed(theirs):
    print("items  bins  costs      equal sizes  theirs ms  ours ms  times as fast  spreads, theirs and ours")
    for items, bins in ((512, 32), (4096, 128)):
        for draw in ("uniform", "lognormal"):
            rng = random.Random(items)
            costs = [DRAWS[draw](rng) for _ in range(items)]
            for equal_size in (False, True):
                their_ms, their_lists = timed(lambda: theirs(costs, bins, equal_size), 3)
                our_ms, our_lists = timed(lambda: dflop.partition(costs, bins, equal_size=equal_size), 5)
                sizes = "yes" if equal_size else "no"
                spreads = f"{spread(costs, their_lists):g} {spread(costs, our_lists):g}"
                print(
                    f"{items:5}  {bins:4}  {draw:9}  {sizes:11}  {their_ms:9.1f}  {our_ms:7.1f}"
                    f"  {their_ms / our_ms:13.1f}  {spreads}"
                )


def compare_spreads(theirs, inputs):
    rng = random.Random(1)
    counts = {name: [0, 0, 0] for name in DRAWS}
    for _ in range(inputs):
        bins = rng.choice([2, 3, 4, 7, 8, 16, 32, 64, 128])
        items = bins * rng.choice([1, 2, 3, 4, 8, 16, 32])
        draw = rng.choice(list(DRAWS))
        costs = [DRAWS[draw](rng) for _ in range(items)]
        for equal_size in (False, True):
            their_spread = spread(costs, theirs(costs, bins, equal_size))
            our_spread = spread(costs, dflop.partition(costs, bins, equal_size=equal_size))
            slack = 1e-12 * sum(costs)  # sums in a different order round differently
            counts[draw][0] += our_spread < their_spread - slack
            counts[draw][1] += abs(our_spread - their_spread) <= slack
            counts[draw][2] += our_spread > their_spread + slack
    print("\ncosts      smaller spread  the same  larger")
    for draw, (smaller, same, larger) in counts.items():
        print(f"{draw:9}  {smaller:14}  {same:8}  {larger:6}")


def measure_sampler(compute_s):
    """Measures how long a loop that computes for `compute_s` per microbatch waits for the next one."""
    rng = random.Random(2)
    pairs = [(rng.random(), rng.lognormvariate(0, 1)) for _ in range(2048 * 12)]
    sampler = dflop.BatchSampler(pairs, gbs=2048, microbatches=16, dp_size=8, dp_rank=0)
    waits = []
    iterator = iter(sampler)
    next(iterator)
    for _ in range(len(sampler) - 1):
        time.sleep(compute_s)
        start = time.perf_counter()
        next(iterator)
        waits.append((time.perf_counter() - start) * 1e3)
    mean, median, largest = statistics.mean(waits), statistics.median(waits), max(waits)
    print(f"{compute_s * 1e3:14.0f}  {mean:9.3f}  {median:9.3f}  {largest:10.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--verl")
    parser.add_argument("--inputs", type=int, default=500)
    arguments = parser.parse_args()
    method = of_verl(arguments.verl) if arguments.verl else differencing
    compare_speed(method)
    compare_spreads(method, arguments.inputs)
    print("\nBatchSampler, 2,048 items a global batch in 16 microbatches on 8 dp ranks: next() in ms")
    print("microbatch ms      mean     median     largest")
    for seconds in (0.0, 0.002, 0.01, 0.05):
        measure_sampler(seconds)
