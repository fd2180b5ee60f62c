"""Your own scheduler for `dflop schedule` and `dflop compare`, without a compiler.

    dflop schedule --plan plan.json --data traces/datasets/vision_mix.csv --scheduler-command 'python3
    experiments/examples/scheduler.py'

dflop writes a line of JSON for each batch and reads one back; docs/schedule-file.md lists the keys. This scheduler
assigns the largest items first, each to the bin whose larger load is then smallest, as LPT does.
"""

import json
import sys


def bins_of(request):
    """Returns the bin of each item: microbatch * dp + dp rank."""
    items = request["items"]
    loads = [[0.0, 0.0] for _ in range(request["bins"])]
    fill = [0] * request["bins"]
    bins = [0] * len(items)
    order = sorted(range(len(items)), key=lambda i: -max(items[i]["encoder_s"], items[i]["llm_s"]))
    for place, i in enumerate(order):
        encoder, llm = items[i]["encoder_s"], items[i]["llm_s"]
        # If only as many items remain as there are empty bins, only empty bins are allowed.
        must_fill = len(order) - place <= fill.count(0)
        open_bins = [b for b in range(len(loads)) if not must_fill or fill[b] == 0]
        best = min(open_bins, key=lambda b: max(loads[b][0] + encoder, loads[b][1] + llm))
        bins[i] = best
        fill[best] += 1
        loads[best][0] += encoder
        loads[best][1] += llm
    return bins


for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"iteration": request["iteration"], "bins": bins_of(request)}), flush=True)
