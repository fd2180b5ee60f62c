"""Levels bins: reduces the difference between the largest and the smallest load."""

import bisect
import heapq

_MOST_STEPS = 200  # random inputs need about 20
_PARTNERS = 32  # number of bins to try; the last search, which finds nothing, takes as long as all previous ones
                # together


def spread(costs, lists):
    """Returns the difference between the largest and the smallest load of lists of items."""
    loads = [sum(costs[i] for i in items) for items in lists]
    return max(loads) - min(loads)


def level(costs, lists, *, moves):
    """Returns lists whose spread is not larger. Exchanges two items, or moves one (`moves`), between the fullest bin
    and one of the emptiest, or between the emptiest and one of the fullest, as long as that brings their loads
    closer."""
    cost = costs.__getitem__
    lists = [sorted(items, key=cost) for items in lists]
    loads = [sum(map(cost, items)) for items in lists]
    least = _least_spread(costs, len(lists))
    for _ in range(_MOST_STEPS):
        by_load = sorted(range(len(lists)), key=loads.__getitem__)
        low, high = by_load[0], by_load[-1]
        if loads[high] - loads[low] <= least:
            break
        pairs = [(high, b) for b in by_load[:-1][:_PARTNERS]]
        pairs += [(b, low) for b in by_load[:0:-1][1:_PARTNERS]]
        for rich, poor in pairs:
            found = _exchange(costs, lists[rich], lists[poor], loads[rich] - loads[poor], moves)
            if found is not None:
                break
        else:
            break
        given, taken = found
        lists[rich] = sorted([i for i in lists[rich] if i != given] + taken, key=cost)
        lists[poor] = sorted([i for i in lists[poor] if i not in taken] + [given], key=cost)
        for b in (rich, poor):
            loads[b] = sum(map(cost, lists[b]))
    return [sorted(items) for items in lists]


def _least_spread(costs, bins):
    """Returns a lower bound of the spread: 1 for whole numbers whose sum is not divisible by the number of bins, else
    0."""
    return 1.0 if all(map(float.is_integer, costs)) and sum(costs) % bins else 0.0


def _exchange(costs, rich, poor, gap, moves):
    """Returns (item of rich, [item of poor] or []) whose difference is closest to half the gap, or None if no choice
    reduces the gap. Both lists are sorted by cost."""
    rich_costs = [costs[i] for i in rich]
    best, least = None, gap * (1 - 1e-9)
    partners = [([i], costs[i]) for i in poor]
    if moves and len(rich) > 1:
        partners.append(([], 0.0))
    for taken, cost in partners:
        place = bisect.bisect_left(rich_costs, cost + gap / 2)
        for k in (place - 1, place):
            if 0 <= k < len(rich):
                left = abs(gap - 2 * (rich_costs[k] - cost))
                if left < least:
                    best, least = (rich[k], taken), left
    return best


def equal_sizes(costs, bins):
    """Returns lists of the same number of items by the largest differencing method (Karmarkar and Karp). The items,
    sorted by cost, are divided into groups with one item per bin. The two groups with the largest spread are merged,
    the largest bins of one with the smallest of the other. Users of verl know this result; ties are broken in the same
    way as there."""
    order = sorted(range(len(costs)), key=lambda i: (costs[i], i))
    heap = [_group([(costs[i], [i]) for i in order[k : k + bins]]) for k in range(0, len(order), bins)]
    heapq.heapify(heap)
    while len(heap) > 1:
        first, second = heapq.heappop(heap)[-1], heapq.heappop(heap)[-1]
        merged = [(a + b, of_a + of_b) for (a, of_a), (b, of_b) in zip(first, reversed(second))]
        heapq.heappush(heap, _group(merged))
    return [sorted(items) for _, items in heap[0][-1]]


def _group(parts):
    """Returns a heap entry. Entries sort by the largest spread first, then by the largest part."""
    parts = sorted(parts, reverse=True)
    load, items = parts[0]
    return parts[-1][0] - load, -load, [-i for i in items], parts
