"""BatchSamplers on ranks of torch.distributed, which must agree."""

import itertools

import torch.distributed as dist
from ranks import run_ranks

import dflop

COSTS = [float(1 + 7 * i % 31) for i in range(103)]  # 4 global batches of 24
STEP = 3  # microbatches


def of_rank(rank, options, **usual):
    usual = {"gbs": 24, "microbatches": STEP, "dp_size": 2, "dp_rank": rank, "seed": 1, **usual}
    options = {**usual, **options}
    return dflop.BatchSampler(options.pop("costs", COSTS), **options)


def drawn(iterator, count):
    """Returns `count` microbatches, or the error in their place."""
    try:
        return list(itertools.islice(iterator, count))
    except dflop.InputError as error:
        return str(error)


def one_after_the_other(rank, world, cases):
    """Returns, for each case, a rank's first result in its turn, and then its results until the end of two global
    batches."""
    found = []
    for options, epochs, consumed in cases:
        sampler = of_rank(rank, options[rank])
        if rank == 1 and consumed:
            sampler.load_state_dict(sampler.state_dict(consumed=consumed))
        sampler.set_epoch(epochs[rank])
        iterator = iter(sampler)
        for turn in range(world):
            if turn == rank:
                first = drawn(iterator, 1)
            dist.barrier()
        found.append((first, drawn(iterator, 2 * STEP - 1)))
        dist.barrier()
    return found


def refused(*cases):
    """Returns the last rank's error at its first batch, after the others have received theirs, and all ranks' error at
    the next."""
    ranks = len(cases[0][0])
    messages = []
    for found in zip(*run_ranks(ranks, one_after_the_other, cases)):
        assert all(isinstance(first, list) and len(first) == 1 for first, _ in found[:-1])
        messages.append(found[-1][0])
        assert [rest for _, rest in found[:-1]] == [messages[-1]] * (ranks - 1)
    return messages


SWAPPED = [COSTS[1], COSTS[0], *COSTS[2:]]
OTHER = [*COSTS[:-1], COSTS[-1] + 0.5]
DIFFERENT = [
    ({"seed": 2}, "seed: expected one value on all ranks, found 1 on rank 0 and 2 on rank 1"),
    ({"costs": SWAPPED}, "costs: expected one value on all ranks, found some with the hash "),
    ({"costs": OTHER}, "costs: expected one value on all ranks, found some with the hash "),
    ({"costs": COSTS[:-1]}, "items: expected one value on all ranks, found 103 on rank 0 and 102 on rank 1"),
    ({"microbatches": 4}, "microbatches: expected one value on all ranks, found 3 on rank 0 and 4 on rank 1"),
    ({"gbs": 30}, "gbs: expected one value on all ranks, found 24 on rank 0 and 30 on rank 1"),
    ({"shuffle": False}, "shuffle: expected one value on all ranks, found True on rank 0 and False on rank 1"),
    ({"dp_size": 3}, "dp_size: expected one value on all ranks, found 2 on rank 0 and 3 on rank 1"),
    (
        {"dp_rank": 0},
        "dp_rank: expected each of 0 to 1 on a rank, because dp_size is 2 and torch.distributed has 2 ranks, found 0 on "
        "rank 0, 0 on rank 1: too few ranks are left for 1, whose items would not be trained",
    ),
]


def test_ranks_that_differ_are_rejected():
    cases = [([{}, options], (0, 0), 0) for options, _ in DIFFERENT]
    expected = [said for _, said in DIFFERENT]
    cases += [([{}, {}], (1, 0), 0), ([{}, {}], (0, 0), 5)]
    expected.append("epoch: expected one value on all ranks, found 1 on rank 0 and 0 on rank 1")
    expected.append("position: expected one value on all ranks, found 0 on rank 0 and 5 on rank 1")
    for message, said in zip(refused(*cases), expected):
        assert message.startswith(said)


def test_ranks_of_a_dp_rank_must_agree_and_every_dp_rank_must_exist():
    none = [{"dp_rank": 0}] * 4
    other = [{"dp_rank": 0}, {"dp_rank": 0}, {"dp_rank": 1}, {"dp_rank": 1, "seed": 4}]
    first, second = refused((none, (0,) * 4, 0), (other, (0,) * 4, 0))
    # Of four ranks, the third could still have dp rank 1. If the fourth has 0 too, no rank is left for it.
    assert "found 0 on rank 0, 0 on rank 1, 0 on rank 2, 0 on rank 3: too few ranks are left for 1, " in first
    assert second.startswith("seed: expected one value on all ranks, found 1 on rank 0 and 4 on rank 3")


def forgets_set_epoch(rank, world):
    """Returns the ranks' results in two epochs, if rank 1 skips set_epoch(), and how many microbatches they
    received."""
    sampler = of_rank(rank, {})
    found = []
    for epoch in range(2):
        for turn in range(world):
            if turn == rank:
                if rank == 0:
                    sampler.set_epoch(epoch)
                found.append(drawn(iter(sampler), len(sampler) + 1))
            dist.barrier()
    return found


def test_a_rank_that_forgets_set_epoch_is_rejected_at_its_second_epoch():
    first, second = run_ranks(2, forgets_set_epoch)
    assert [len(given) for given in first] == [4 * STEP, 4 * STEP] and len(second[0]) == 4 * STEP
    assert second[1].startswith("epoch: expected one value on all ranks, found 1 on rank 0 and 0 on rank 1")


def epochs_of(rank, dp_rank, dp_size, resumes):
    """Returns everything that a rank draws in three epochs, the second of which is left early."""
    sampler = of_rank(rank, {"dp_rank": dp_rank, "dp_size": dp_size})
    if resumes:
        sampler.load_state_dict(sampler.state_dict(consumed=4))
    elif rank == 0:
        next(iter(sampler))  # a look at the first batch that other ranks do not take
    given = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        given.append(list(itertools.islice(sampler, 5 if epoch == 1 else None)))
    return given


def ranks_that_agree(rank, world, cases):
    found = []
    for dp_ranks, dp_size, resumes in cases:
        if rank == 0:
            # A sampler that no other rank has and that differs.
            list(of_rank(0, {"seed": 9, "dp_size": 1, "dp_rank": 0, "compare": False}))
        if dp_ranks[rank] is None:
            of_rank(rank, {"dp_rank": 0})  # nobody requests its batches
            found.append(None)
        else:
            found.append(epochs_of(rank, dp_ranks[rank], dp_size, resumes))
    return found


def check_that_they_agree(cases):
    for (dp_ranks, dp_size, resumes), *found in zip(cases, *run_ranks(len(cases[0][0]), ranks_that_agree, cases)):
        for dp_rank, given in zip(dp_ranks, found):
            assert given == (None if dp_rank is None else epochs_of(1, dp_rank, dp_size, resumes))


def test_ranks_that_agree_draw_the_same_as_by_themselves():
    pipeline = [([0, 0], 1, False), ([0, None], 1, False)]
    check_that_they_agree([([0, 1], 2, False), ([0, 1], 2, True), *pipeline])
    check_that_they_agree([([0, 0, 1, 1], 2, False), ([0, 1, 0, None], 2, False), ([0, None, 1, None], 2, True)])
