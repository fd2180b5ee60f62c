"""Groups the outliers within a window of batches, as `dflop serve` does: see solver/service/outlier_delay.hpp.

A BatchSampler does this without its child process, which may have died.
"""

MOST_DELAY = 1024  # batches, the limit of the child


def delay_outliers(costs, batch, microbatches, dp):
    """Returns, batch by batch, the position at which each sample of a window was drawn.

    Matches delay_outliers() in C++ to the last bit: sums are taken in the same order, unlike with sum().
    """
    batches = len(costs) // batch
    mean = _sum(costs) / (batches * microbatches * dp)
    outliers = sorted((i for i, cost in enumerate(costs) if cost > mean), key=lambda i: -costs[i])
    others = [
        [i for i in range(k * batch, (k + 1) * batch) if not costs[i] > mean] for k in range(batches)
    ]
    load = [_sum(costs[i] for i in own) for own in others]
    dealt = [[] for _ in range(batches)]
    for begin in range(0, len(outliers), dp):
        group = outliers[begin : begin + dp]
        host = min(range(batches), key=load.__getitem__)
        dealt[host] += group
        for i in group:
            load[host] += costs[i]
    rooms = [batch - len(some) for some in dealt]
    spare = iter([i for own, room in zip(others, rooms) for i in own[room:]])
    order = []
    for own, room, some in zip(others, rooms, dealt):
        kept = own[:room]
        order += kept + [next(spare) for _ in range(room - len(kept))] + some
    return order


def _sum(costs):
    total = 0.0
    for cost in costs:
        total += cost
    return total


def window_of(step, steps, window):
    """Returns the steps in the same window as `step`; the first `steps` steps of an epoch may exchange samples."""
    first = step // window * window
    return range(first, min(first + window, steps))


class Moves:
    """Counts how far samples have moved."""

    def __init__(self):
        self._samples = self._moved = self._most = self._distance = 0

    def add(self, drawn, given):
        """Counts a sample that was drawn in one step and used in another."""
        distance = abs(given - drawn)
        self._samples += 1
        self._moved += distance > 0
        self._most = max(self._most, distance)
        self._distance += distance

    def __str__(self):
        mean = self._distance / self._moved if self._moved else 0.0
        return (
            f"{self._moved} of {self._samples} samples have moved, by at most {self._most} batches and {mean:.1f} on "
            "average"
        )
