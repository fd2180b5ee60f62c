"""Compares predictions from a PyTorch recording with runs measured afterwards.

    python experiments/python/predict.py --out out/predict

Three ranks run stages that sleep instead of computing, so that a busy machine changes little: a time per token and
layer, and twice that in backward passes. One plan is recorded. From the recording, `dflop replay` predicts the times of
other orders of this plan, and of plans with other dp of encoder and LLM. These are then measured on the same batches.
"""

import argparse
import json
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist

import dflop
import dflop.torch

ENCODER_S, LLM_S = 12e-6, 40e-6  # per token, for all layers of the module together
ENCODER_LAYERS, LLM_LAYERS = 4, 6  # of small-vlm
STEPS, KEPT = 5, 3
WIDTH = 64


class Sleep(torch.autograd.Function):
    """Returns its input; sleeps in the forward pass and in the backward pass."""

    @staticmethod
    def forward(ctx, x, forward_s, backward_s):
        ctx.backward_s = backward_s
        time.sleep(forward_s)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.backward_s)
        return gradient, None, None


class SleepingStage(torch.nn.Module):
    """Takes time for its tokens and layers. The input and weight parts of its backward pass take half each."""

    def __init__(self, stage):
        super().__init__()
        self.s_per_encoder_token = ENCODER_S * stage.encoder_layers / ENCODER_LAYERS
        self.s_per_llm_token = LLM_S * stage.llm_layers / LLM_LAYERS
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, x, encoder_tokens, llm_tokens, rows):
        seconds = self.s_per_encoder_token * encoder_tokens + self.s_per_llm_token * llm_tokens
        weight = Sleep.apply(self.weight, 0.0, seconds)
        if x is None:
            x = torch.ones(rows, WIDTH)
        elif len(x) != rows:  # the visual tokens are the first of the LLM's
            x = torch.cat([x, x.new_ones(rows - len(x), WIDTH)])
        return Sleep.apply(x, seconds, seconds) * weight


def inputs(part, samples):
    tokens = {i: [t for n, t, _ in samples[i]["encoder_sequences"] for _ in range(n)] for i in range(len(samples))}
    encoder_tokens = sum(
        sum(tokens[p.sample][p.first_sequence : p.first_sequence + p.sequences]) for p in part.pieces
    )
    llm_tokens = sum(samples[i]["llm_tokens"] for i in part.samples)
    rows = llm_tokens or sum(piece.rows for piece in part.pieces)
    return {"encoder_tokens": encoder_tokens, "llm_tokens": llm_tokens, "rows": rows}


def loss(output, part, samples):
    return output.sum(), len(output)


def plan_of(encoder_dp, pp, dp, order, microbatches=8, gbs=32):
    """Returns a plan of small-vlm: an encoder on its own ranks, and an LLM on pp x dp ranks."""
    layers = [LLM_LAYERS // pp] * pp
    return {
        "schema": "dflop.plan",
        "version": 1,
        "planner": "predict.py",
        "model": "small-vlm",
        "cluster": "a100-80g:1",
        "gbs": gbs,
        "layout": "disaggregated",
        "encoder": {"tp": 1, "pp": 1, "dp": encoder_dp, "layers": [ENCODER_LAYERS]},
        "llm": {"tp": 1, "pp": pp, "dp": dp, "layers": layers},
        "microbatches": microbatches,
        "schedule": order,
        "recomputation": "none",
        "zero1": False,
        "sequence_parallel": False,
    }


RECORDED = ("E1 | L pp2, 1f1b", plan_of(1, 2, 1, "1f1b"))
OTHERS = [
    ("gpipe", plan_of(1, 2, 1, "gpipe")),
    ("eager-1f1b", plan_of(1, 2, 1, "eager-1f1b")),
    ("zb-h1", plan_of(1, 2, 1, "zb-h1")),
    ("4 microbatches", plan_of(1, 2, 1, "1f1b", microbatches=4)),
    ("E dp2 | L", plan_of(2, 1, 1, "1f1b")),
    ("E | L dp2", plan_of(1, 1, 2, "1f1b", microbatches=6)),
    ("E | L dp2, gpipe", plan_of(1, 1, 2, "gpipe", microbatches=6)),
]


def make_samples(count=32 * STEPS):
    """Returns shapes like the bundled mix's: pictures, videos and texts."""
    import random

    rng = random.Random(1)
    samples = []
    for i in range(count):
        tiles = rng.choice([0, 0, 1, 2, 3, 5, 9, 20])
        samples.append(dflop.make_sample(16 * tiles + rng.randint(20, 300), [64] * tiles, 16 * tiles, str(i)))
    return samples


def run(rank, plan, record):
    """Runs several steps of a plan, and returns the seconds of the last ones; `record` is a folder or None."""
    samples = make_samples()
    sampler = dflop.PlanSampler(plan, samples, method="lpt", keep=True)
    executor = dflop.torch.Executor(plan, SleepingStage, inputs=inputs, loss=loss)
    recorder = dflop.torch.Recorder(record, wait=STEPS - KEPT - 1, warmup=1, active=KEPT) if record else None
    seconds = []
    if recorder:
        recorder.__enter__()
    for batch in executor.batches(sampler):
        batch_samples = [samples[i] for i in batch.indices]
        begin = time.perf_counter()
        executor.step(batch.program, batch_samples)
        seconds.append(time.perf_counter() - begin)
        if recorder:
            recorder.step()
    if recorder:
        recorder.__exit__(None, None, None)
    if rank == 0:
        sampler.write_schedule(plan.replace(".json", ".schedule.json"))
    return seconds[-KEPT:]


def run_ranks(ranks, function, *arguments):
    """Runs function(rank, ...) on gloo ranks, and returns the result of the first one."""
    context = torch.multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        where = f"file://{folder}/rendezvous"
        torch.multiprocessing.spawn(run_rank, (ranks, where, results, function, arguments), nprocs=ranks)
        return results.get()


def run_rank(rank, ranks, where, results, function, arguments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=ranks)
    result = function(rank, *arguments)
    if rank == 0:
        results.put(result)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="out/predict", help="folder of all files")
    out = parser.parse_args().out
    os.makedirs(out, exist_ok=True)

    def write(number, plan):
        path = os.path.join(out, f"plan{number}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(plan, file)
        return path, {"plan": path, "schedule": path.replace(".json", ".schedule.json")}

    path, files = write(0, RECORDED[1])
    measured = run_ranks(3, run, path, os.path.join(out, "traces"))
    record = os.path.join(out, "run.json")
    traces = [os.path.join(out, f"traces/rank{rank}.json.gz") for rank in range(3)]
    dflop.run("import", kineto=traces, **files, out=record)
    print(f"{'run':24}{'predicted ms':>14}{'measured ms':>14}{'error %':>10}")
    errors = []
    show(f"{RECORDED[0]} (recorded)", replayed(record), measured)
    for number, (name, plan) in enumerate(OTHERS, 1):
        path, files = write(number, plan)
        measured = run_ranks(3, run, path, None)
        errors.append(abs(show(name, replayed(record, **files), measured)))
    print(f"mean of errors {statistics.mean(errors):.2f} %, largest {max(errors):.2f} %")


def replayed(record, **what_if):
    return dflop.run("replay", trace=record, iteration="all", **what_if)["runs"][-1]["makespan_s"]


def show(name, predicted, measured):
    """Prints a row, and returns the error in percent."""
    measured = statistics.mean(measured)
    error = 100 * (predicted / measured - 1)
    print(f"{name:24}{1e3 * predicted:14.1f}{1e3 * measured:14.1f}{error:+10.2f}", flush=True)
    return error


if __name__ == "__main__":
    main()
