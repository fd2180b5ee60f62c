"""One rank of three, one of which fails as the arguments say: failing_rank.py RANK PORT PROGRAM CULPRIT HOW

It meets the others as under torchrun, through a store in rank 0's process, and ends like any script.
"""

import datetime
import json
import os
import sys

import torch
import torch.distributed as dist

import dflop.torch

rank, port, path, culprit, how = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
torch.set_num_threads(1)
with open(path, encoding="utf-8") as file:
    program = json.load(file)


def fail(moment):
    if rank == culprit and how == f"raises {moment}":
        raise ValueError("a picture that is no picture")
    if rank == culprit and how == f"dies {moment}":
        os._exit(9)


class Stage(torch.nn.Linear):
    def __init__(self, description):
        super().__init__(2, 2)
        fail("making modules")

    def forward(self, x, rows, step, microbatch):
        if step == 1 and microbatch == 1:
            fail("in a step")
        return super().forward(torch.ones(rows, 2) if x is None else x)


def make_optimizer(parameters):
    fail("making optimizers")
    return torch.optim.SGD(parameters, lr=0.1)


dist.init_process_group(
    "gloo",
    init_method=f"tcp://127.0.0.1:{port}",
    rank=rank,
    world_size=3,
    timeout=datetime.timedelta(seconds=100),
)
executor = dflop.torch.Executor(
    program,
    Stage,
    inputs=lambda part, step: {"rows": len(part.samples), "step": step, "microbatch": part.microbatch},
    loss=lambda output, part, step: (output.sum(), len(output)),
    optimizer=make_optimizer,
)
for step in range(3):
    if step == 1:
        fail("between steps")
    executor.step(program, step)
