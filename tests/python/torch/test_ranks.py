import os
import time

import pytest
import torch
import torch.distributed as dist
from ranks import RanksFailed, run_ranks


def summed(rank, world, offset):
    value = torch.tensor([rank + offset])
    dist.all_reduce(value)
    return rank, world, value.item(), torch.get_num_threads()


def failing(rank, world):
    if rank == 1:
        raise ValueError("a rank's own words")
    return "fine"


def dying(rank, world):
    if rank == 0:
        os._exit(7)
    dist.barrier()


def hanging(rank, world):
    time.sleep(60)


def test_results_come_by_rank():
    # 0 + 10 and 1 + 10 are summed over both ranks.
    assert run_ranks(2, summed, 10) == [(0, 2, 21, 1), (1, 2, 21, 1)]


def test_tracebacks_come_by_rank():
    with pytest.raises(RanksFailed, match="rank 1: Traceback(.|\n)*a rank's own words"):
        run_ranks(2, failing)


def test_a_dead_rank_is_named():
    with pytest.raises(RanksFailed) as caught:
        run_ranks(2, dying)
    assert caught.value.failures[0] == "ended with exit code 7"
    assert "Traceback" in caught.value.failures[1]


def test_a_hung_rank_is_killed():
    with pytest.raises(RanksFailed, match="did not end in time"):
        run_ranks(1, hanging, timeout=6)
