"""Runs a function on several ranks, each in its own process, for tests of torch.distributed over gloo."""

import datetime
import multiprocessing
import os
import pickle
import tempfile
import time
import traceback

GRACE = 10.0
"""Ranks that are still busy this many seconds after another one failed are killed."""


class RanksFailed(AssertionError):
    """Some ranks raised, died or hung. `failures` has texts by rank, `results` the other ranks' return values."""

    def __init__(self, failures, results):
        super().__init__("\n".join(f"rank {rank}: {text}" for rank, text in sorted(failures.items())))
        self.failures = failures
        self.results = results


def run_ranks(world, function, *args, timeout=60):
    """Returns the results of function(rank, world, *args) on each of `world` ranks, in the order of ranks.

    The function runs with the gloo process group initialized and one compute thread. It must be a module-level
    function, because it is pickled along with its arguments and results. Raises RanksFailed with the tracebacks of the
    ranks that raise, die, or have not ended after `timeout` seconds.
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="dflop-ranks") as folder:
        processes = [
            context.Process(
                target=_run_rank, args=(folder, rank, world, function, args, timeout), daemon=True
            )
            for rank in range(world)
        ]
        for process in processes:
            process.start()
        deadline = time.monotonic() + timeout
        while any(process.is_alive() for process in processes) and time.monotonic() < deadline:
            if any(process.exitcode not in (None, 0) for process in processes):
                deadline = min(deadline, time.monotonic() + GRACE)
            time.sleep(0.02)
        hung = [rank for rank, process in enumerate(processes) if process.is_alive()]
        for process in processes:
            process.kill()
            process.join()
        return _collected(folder, processes, hung)


def _collected(folder, processes, hung):
    failures, results = {}, {}
    for rank, process in enumerate(processes):
        path = os.path.join(folder, f"result{rank}")
        if os.path.exists(path):
            with open(path, "rb") as file:
                returned, value = pickle.load(file)
            (results if returned else failures)[rank] = value
        elif rank in hung:
            failures[rank] = "did not end in time, and was killed"
        else:
            failures[rank] = f"ended with exit code {process.exitcode}"
    if failures:
        raise RanksFailed(failures, results)
    return [results[rank] for rank in range(len(processes))]


def _run_rank(folder, rank, world, function, args, timeout):
    try:
        outcome = (True, _returned(folder, rank, world, function, args, timeout))
    except BaseException:
        outcome = (False, traceback.format_exc())
    path = os.path.join(folder, f"result{rank}")
    with open(path + ".part", "wb") as file:
        pickle.dump(outcome, file)
    os.replace(path + ".part", path)
    # A process group with a failed rank may wait in its destructor. Nothing after the result matters.
    os._exit(0 if outcome[0] else 1)


def _returned(folder, rank, world, function, args, timeout):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(seconds=timeout),
    )
    result = function(rank, world, *args)
    # Ranks that end early close the connections of the others.
    dist.barrier()
    return result
