"""Stage and Schedule compared with one process, on 4 gloo ranks, for all orders of dflop."""

import json
import pathlib
import subprocess

import pytest
import torch
from ranks import RanksFailed, run_ranks
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _Action, _get_1f1b_rank_ops, _PipelineScheduleRuntime

import dflop
from dflop._executable import executable
from dflop.torch import Schedule, Stage
from dflop.torch._pipelining import check_torch, stage_steps

WIDTH = 6
CPU = torch.device("cpu")
ROWS = [5, 2, 7, 1, 3, 6, 4, 2]
"""Rows of each microbatch; the first is neither the shortest nor the longest."""
ORDERS = ["gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2", "zb-v", "interleaved"]
OUT_OF_ORDER = [["F0", "F1", "F2", "B1", "B0", "B2"], ["F1", "F0", "F2", "B1", "B0", "B2"]]


class Module(torch.nn.Module):
    """A stage whose output is a transposed view. Optionally it has half of the rows, or does not depend on a single
    input row.
    """

    def __init__(self, halves, skips):
        super().__init__()
        self.halves = halves
        self.skips = skips
        self.first = torch.nn.Linear(WIDTH, WIDTH)
        self.second = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        if self.skips and len(x) == 1:
            x = torch.ones(1, WIDTH)
        y = self.second(torch.tanh(self.first(x))) + x
        return (y[: len(y) // 2 + 1] if self.halves else y).t().contiguous().t()


def modules_of(count, frozen):
    torch.manual_seed(5)
    modules = [Module(halves=index == 1, skips=index == 2) for index in range(count)]
    for module in modules[:frozen]:
        module.requires_grad_(False)
    return modules


def shapes_of(rows, count):
    """Stage 1 halves the rows, so n rows become n // 2 + 1 after it."""
    return [list(rows)] + [[n // 2 + 1 for n in rows]] * (count - 2)


def batch(rows):
    generator = torch.Generator().manual_seed(9)
    inputs = [torch.randn(n, WIDTH, generator=generator) for n in rows]
    return inputs, [torch.full((), 1.0 + index) for index in range(len(rows))]


def loss_sum(output, target):
    return (output.square() * target).sum()


def reference(count, rows, tokens, frozen=0, order_of_sums=None):
    """Returns losses and gradients of one process, which adds up microbatches in order, or in the given order."""
    modules = modules_of(count, frozen)
    losses = {}
    inputs, targets = batch(rows)
    for microbatch in order_of_sums or range(len(rows)):
        x = inputs[microbatch]
        for module in modules[:-1]:
            x = module(x).contiguous()  # as sent: with another layout the last bits may differ
        loss = loss_sum(modules[-1](x), targets[microbatch]) / tokens
        loss.backward()
        losses[microbatch] = loss.item()
    gradients = [[parameter.grad for parameter in module.parameters()] for module in modules]
    return [losses[microbatch] for microbatch in range(len(rows))], gradients


def order_of(name, folder, ranks=4, microbatches=len(ROWS)):
    """Returns the path of dflop's order with the name."""
    pipeline = {
        "schema": "dflop.pipeline",
        "version": 1,
        "schedule": name,
        "stages": ranks,
        "microbatches": microbatches,
        "forward_s": 0.01,
        "backward_s": 0.01,
        "backward_weight_s": 0.01,
    }
    if name == "interleaved":
        pipeline["chunks"] = 2
    path = folder / f"{name}.json"
    path.write_text(json.dumps(pipeline))
    out = folder / f"{name}-order.json"
    subprocess.run(
        [executable(), "simulate", "--pipeline", str(path), "--order-out", str(out)],
        check=True,
        capture_output=True,
    )
    return str(out)


@pytest.mark.parametrize("microbatches", [2, 3, 4, 5, 7, 8, 10])
def test_interleaved_is_the_order_of_torch(microbatches, tmp_path):
    ranks, chunks = 4, 2
    group = microbatches // max(1, microbatches // ranks)
    order = json.loads(pathlib.Path(order_of("interleaved", tmp_path, ranks, microbatches)).read_text())
    total = microbatches * chunks
    for rank, names in enumerate(order["ranks"]):
        warm_up = min((chunks - 1) * group + 2 * (ranks - 1 - rank), total)
        actions = _get_1f1b_rank_ops(
            chunks,
            ranks,
            warm_up,
            total - warm_up,
            warm_up,
            rank,
            lambda step, rank=rank: step // group % chunks * ranks + rank,
            lambda step, rank=rank, first=warm_up: (chunks - 1 - (step - first) // group % chunks) * ranks + rank,
        )
        expected = [
            f"{'F' if action.computation_type.name == 'FORWARD' else 'B'}{action.microbatch_index}"
            + (f".{action.stage_index // ranks}" if action.stage_index >= ranks else "")
            for action in actions
            if action is not None
        ]
        assert names == expected


def train(rank, world, cases, rows, tokens):
    """Runs each case (order, frozen stages) and returns losses, gradients by stage, and outputs if there are any."""
    return [train_one(rank, order, frozen, rows, tokens) for order, frozen in cases]


def train_one(rank, order, frozen, rows, tokens):
    steps_by_rank = stage_steps(order)
    count = 1 + max(stage for row in steps_by_rank for stage, _, _ in row)
    modules = modules_of(count, frozen)
    mine = sorted({stage for stage, _, _ in steps_by_rank[rank]})
    stages = [Stage(modules[index], index, count, CPU) for index in mine]
    schedule = Schedule(stages, order, loss_sum)
    losses = []
    # The first batch is the second reversed: shapes belong to each batch, not to the first one.
    for turned in (rows[::-1], rows):
        for stage in stages:
            stage.submod.zero_grad()
        inputs, targets = batch(turned)
        output = schedule.step(
            arg_mbs=[(x,) for x in inputs] if 0 in mine else None,
            target_mbs=targets if count - 1 in mine else None,
            losses=losses if count - 1 in mine else None,
            shapes=shapes_of(turned, count),
            tokens=tokens,
        )
    return (
        [loss.item() for loss in losses],
        {stage.stage_index: [parameter.grad for parameter in stage.submod.parameters()] for stage in stages},
        None if output is None else output.detach(),
    )


def check(results, count, rows, expected):
    """Compares the ranks' results exactly with (losses, gradients) of one process."""
    losses, gradients = expected
    outputs = [output for _, _, output in results if output is not None]
    assert [found for found, _, _ in results if found] == [losses]
    assert [len(output) for output in outputs] == [sum(n // 2 + 1 for n in rows)]
    of_stages = {stage: found for _, by_stage, _ in results for stage, found in by_stage.items()}
    assert sorted(of_stages) == list(range(count))
    for stage, found in of_stages.items():
        for ours, theirs in zip(found, gradients[stage]):
            assert ours is theirs is None or torch.equal(ours, theirs), f"stage {stage}"


def test_all_orders_give_the_gradients_of_one_process(tmp_path):
    # Microbatch 3 has one row, so stage 2 does not use its input there, and the previous stages get zeros for one row.
    orders = [order_of(name, tmp_path) for name in ORDERS]
    cases = [(order, 0) for order in orders] + [(orders[ORDERS.index("zb-h1")], 2)]
    by_rank = run_ranks(4, train, cases, ROWS, 30, timeout=120)
    for index, (order, frozen) in enumerate(cases):
        count = 8 if "zb-v" in order or "interleaved" in order else 4
        check([results[index] for results in by_rank], count, ROWS, reference(count, ROWS, 30, frozen))


def test_forwards_may_be_out_of_order_on_the_last_stage():
    # Both ranks add up microbatches 1, 0, 2, while stage 1 outputs 1, 0, 2.
    rows = [3, 4, 1]
    results = run_ranks(2, train, [(OUT_OF_ORDER, 0)], rows, 8)
    check([result[0] for result in results], 2, rows, reference(2, rows, 8, order_of_sums=[1, 0, 2]))
    x = batch(rows)[0]
    modules = modules_of(2, 0)
    expected = torch.cat([modules[1](modules[0](one)) for one in x])
    assert torch.allclose(results[1][0][2], expected, rtol=1e-5)


def train_upstream(rank, world):
    """Runs OUT_OF_ORDER with torch's own classes on three microbatches of one shape."""
    module = plain_modules()[rank]
    stage = PipelineStage(module, rank, 2, CPU)
    schedule = _PipelineScheduleRuntime([stage], 3, loss_fn=linear_loss, scale_grads=False)
    schedule.pipeline_order = {
        index: [_Action.from_str(f"{index}{step}") for step in steps]
        for index, steps in enumerate(OUT_OF_ORDER)
    }
    schedule._prepare_schedule_with_comms(schedule.pipeline_order)
    inputs, targets = batch([4, 4, 4])
    schedule.step(
        arg_mbs=[(x,) for x in inputs] if rank == 0 else None, target_mbs=targets if rank == 1 else None
    )
    return [parameter.grad for parameter in module.parameters()]


def test_torch_gives_wrong_gradients_out_of_order_silently():
    """This is why Schedule looks up losses itself. If this test fails, torch has fixed the bug."""
    modules = plain_modules()
    for x, target in zip(*batch([4, 4, 4])):
        linear_loss(modules[1](modules[0](x)), target).backward()
    found = run_ranks(2, train_upstream)
    wrong = [
        ((ours - parameter.grad).abs().max() / parameter.grad.abs().max()).item()
        for stage in range(2)
        for ours, parameter in zip(found[stage], modules[stage].parameters())
    ]
    assert max(wrong) > 0.1


def linear_loss(output, target):
    """A loss that, like cross_entropy, does not keep the output. Others would raise an error."""
    return (output * target).sum()


def plain_modules():
    torch.manual_seed(5)
    return [torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)]


def train_with_shapes(rank, world, rows, shapes):
    module = modules_of(2, 0)[rank]
    schedule = Schedule(
        [Stage(module, rank, 2, CPU)], [["F0", "F1", "B0", "B1"], ["F0", "B0", "F1", "B1"]], loss_sum
    )
    inputs, targets = batch(rows)
    schedule.step(
        arg_mbs=[(x,) for x in inputs] if rank == 0 else None,
        target_mbs=targets if rank == 1 else None,
        shapes=shapes,
    )


def test_wrong_shapes_are_rejected():
    with pytest.raises(RanksFailed, match="expected one for each of 2 microbatches, found 3"):
        run_ranks(2, train_with_shapes, [3, 4], [3, 4, 5])
    # Without shapes, all microbatches are assumed to have the first one's shape. torch by itself would fill part of a
    # buffer.
    with pytest.raises(RanksFailed) as caught:
        run_ranks(2, train_with_shapes, [4, 3], None)
    assert (
        "stage 0, microbatch 1: expected an output of shape (4, 6), found (3, 6)" in caught.value.failures[0]
    )


def test_steps_of_chunks_equal_steps_of_stages():
    # Two ranks in a V hold stages 0 and 3, 1 and 2; round-robin, 0 and 2, 1 and 3.
    ranks = [["F0", "F0.1", "B0.1", "B0"], ["F0", "F0.1", "B0.1", "B0"]]
    v = stage_steps({"schema": "dflop.order", "version": 1, "placement": "v", "ranks": ranks})
    assert [[stage for stage, _, _ in steps] for steps in v] == [[0, 3, 3, 0], [1, 2, 2, 1]]
    assert [[stage for stage, _, _ in steps] for steps in stage_steps(ranks)] == [[0, 2, 2, 0], [1, 3, 3, 1]]
    # An encoder rank without chunks precedes them.
    with_encoder = stage_steps([["F0", "B0"], *ranks])
    assert [[stage for stage, _, _ in steps] for steps in with_encoder] == [
        [0, 0],
        [1, 3, 3, 1],
        [2, 4, 4, 2],
    ]
    assert stage_steps([["I12", "W12"]]) == [[(0, "I", 12), (0, "W", 12)]]


@pytest.mark.parametrize(
    "order, message",
    [
        ([["F0", "X0"]], "rank 0: expected steps such as F3, .* found 'X0'"),
        ([["F0.e"]], "need dflop.torch.Executor"),
        ({"schema": "dflop.plan", "ranks": []}, "expected schema 'dflop.order', found 'dflop.plan'"),
        ({"schema": "dflop.order", "placement": "w", "ranks": []}, "key 'placement': expected"),
    ],
)
def test_invalid_orders_are_rejected(order, message):
    with pytest.raises(dflop.InputError, match=message):
        stage_steps(order)


def refused(rank, world, order, indices, count):
    modules = modules_of(count, 0)
    try:
        Schedule([Stage(modules[index], index, count, CPU) for index in indices], order)
    except dflop.InputError as error:
        return str(error)


def test_stages_that_do_not_fit_the_order_are_rejected():
    two = [["F0", "B0"], ["F0", "B0"]]
    chunks = [["F0", "F0.1", "B0.1", "B0"]]
    assert run_ranks(1, refused, two, [0], 2) == ["stages: the order has 2 ranks, found a group of 1"]
    assert run_ranks(1, refused, chunks, [0], 2) == [
        "stages: the order gives stages [0, 1] to rank 0, found [0]"
    ]
    assert run_ranks(1, refused, chunks, [0], 3) == [
        "stages: the order has 2 stages, found Stages made for 3"
    ]


def test_an_old_torch_is_rejected():
    check_torch("2.14.0")
    check_torch("3.0")
    with pytest.raises(dflop.DflopError, match="need torch 2.14 or newer,.* found 2.9.1"):
        check_torch("2.9.1+cpu")
