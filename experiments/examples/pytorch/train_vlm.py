"""Trains a vision tower, a projector and a decoder in plain torch under a dflop plan, and checks predictions of it.

    python train_vlm.py --ranks 2 --out run

A picture consists of tiles of colored noise, and its caption names the color of each tile. The script measures the
modules, searches for the best plan for these shapes, trains under it, records three steps, predicts another plan from
the recording, and measures that plan, too. docs/pytorch.md explains it step by step.
"""

import argparse
import contextlib
import itertools
import json
import os
import random
import statistics
import tempfile
import time

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise the profiler reports its start and end

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import dflop
import dflop.torch

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "vlm.json")
PATCHES, PATCH, MERGE = 64, 48, 4  # patches of a tile; numbers of a patch; patches that are merged into one token
COLORS, WORDS, END = 8, 64, 63
GBS = 16


# The data: shapes first, contents when a rank needs them.


class Pictures:
    """Pictures with captions, and some texts without pictures. `samples` are their shapes, for dflop."""

    def __init__(self, count=240, seed=0):
        rng = random.Random(seed)
        self.tiles = [rng.choice([0, 1, 1, 2, 2, 3, 4, 8]) for _ in range(count)]
        self.words = [tiles + rng.randint(8, 80) for tiles in self.tiles]
        visual = PATCHES // MERGE
        self.samples = [
            dflop.make_sample(visual * tiles + words, [PATCHES] * tiles, visual * tiles, f"picture {i}")
            for i, (tiles, words) in enumerate(zip(self.tiles, self.words))
        ]

    def colors(self, i):
        return torch.randint(0, COLORS, (self.tiles[i],), generator=torch.Generator().manual_seed(i))

    def patches(self, i, first, tiles):
        """Returns the patches of some tiles: the numbers of their color, plus noise."""
        noise = torch.randn(self.tiles[i], PATCHES, PATCH, generator=torch.Generator().manual_seed(i))
        signal = torch.eye(COLORS)[self.colors(i)].repeat_interleave(PATCH // COLORS, dim=1)
        return (noise + 2 * signal[:, None, :])[first : first + tiles].reshape(-1, PATCH)

    def text(self, i):
        """Returns the words of a caption: its colors, followed by counting, which is easy to learn."""
        counted = COLORS + torch.arange(self.words[i] - self.tiles[i]) % (WORDS - COLORS - 1)
        return torch.cat([self.colors(i), counted])


# The model: rows are packed, one sequence of any length after the other.


class Layer(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, lengths):
        heads = self.qkv(self.norms[0](x)).unflatten(-1, (3 * self.heads, -1)).transpose(0, 1)
        parts = [
            F.scaled_dot_product_attention(*part.chunk(3), is_causal=self.causal)
            for part in heads.split(lengths, dim=1)
        ]
        x = x + self.out(torch.cat(parts, dim=1).transpose(0, 1).flatten(1))
        return x + self.mlp(self.norms[1](x))


class Projector(nn.Module):
    def __init__(self, encoder, llm):
        super().__init__()
        self.linear = nn.Linear(MERGE * encoder, llm)

    def forward(self, x):
        return self.linear(x.reshape(len(x) // MERGE, -1))


class Embedding(nn.Module):
    """Puts visual tokens before the words of each sample."""

    def __init__(self, llm):
        super().__init__()
        self.words = nn.Embedding(WORDS, llm)

    def forward(self, visual, words, visual_lengths, word_lengths):
        words = self.words(words).split(word_lengths)
        visual = visual.split(visual_lengths) if visual is not None else [w[:0] for w in words]
        return torch.cat([part for pair in zip(visual, words) for part in pair])


class Stage(nn.Module):
    """The contents of one stage of a plan, according to its description."""

    def __init__(self, stage):
        super().__init__()
        with open(MODEL, encoding="utf-8") as file:
            model = json.load(file)
        encoder, llm = model["encoder"], model["llm"]
        torch.manual_seed(0)
        self.patch = nn.Linear(PATCH, encoder["hidden"]) if stage.index == 0 else None
        self.encoder = nn.ModuleList(
            Layer(encoder["hidden"], encoder["heads"], False) for _ in range(stage.encoder_layers)
        )
        self.projector = Projector(encoder["hidden"], llm["hidden"]) if stage.connector else None
        self.embedding = Embedding(llm["hidden"]) if stage.embedding else None
        self.llm = nn.ModuleList(Layer(llm["hidden"], llm["heads"], True) for _ in range(stage.llm_layers))
        self.head = nn.Linear(llm["hidden"], WORDS) if stage.head else None

    def forward(self, x, patches, tiles, words, visual_lengths, word_lengths):
        if tiles and (self.encoder or self.projector):
            x = self.patch(patches) if self.patch else x
            for layer in self.encoder:
                x = layer(x, tiles)
            x = self.projector(x) if self.projector else x
        if self.embedding:
            x = self.embedding(x, words, visual_lengths, word_lengths)
        lengths = [a + b for a, b in zip(visual_lengths, word_lengths)]
        for layer in self.llm:
            x = layer(x, lengths)
        return self.head(x) if self.head else x


def inputs(part, batch):
    """Returns the inputs that a stage needs from its samples and pieces, in addition to the rows of the previous
    stage."""
    data, indices = batch
    pieces = [(indices[p.sample], p.first_sequence, p.sequences) for p in part.pieces]
    own = [indices[i] for i in part.samples]
    return {
        "patches": torch.cat([data.patches(*piece) for piece in pieces]) if pieces else None,
        "tiles": [PATCHES] * sum(tiles for _, _, tiles in pieces),
        "words": torch.cat([data.text(i) for i in own]) if own else None,
        "visual_lengths": [data.tiles[i] * PATCHES // MERGE for i in own],
        "word_lengths": [data.words[i] for i in own],
    }


def loss(logits, part, batch):
    """Returns the summed loss of all words, each predicted from the words before it, and their number."""
    data, indices = batch
    total, tokens, offset = 0.0, 0, 0
    for i in (indices[i] for i in part.samples):
        text = data.text(i)
        first = offset + data.tiles[i] * PATCHES // MERGE
        targets = torch.cat([text[1:], torch.tensor([END])])
        total = total + F.cross_entropy(logits[first : first + len(text)], targets, reduction="sum")
        tokens, offset = tokens + len(text), first + len(text)
    return total, tokens


# The run. Each of the next functions is run by one rank.


def profile(rank, path):
    """Measures the modules on all ranks at once, and the links between them. Returns notes on disturbances."""
    stage = Stage(dflop.torch.StageDescription(0, 1, 1, True, True, True))
    widths = {"patches": PATCH, "encoder": 192, "connector": 192, "llm": 256, "head": 256}

    def make_input(part, lengths):
        tokens = sum(lengths)
        if part == "embedding":
            return (None, torch.zeros(tokens, dtype=torch.int64), [0] * len(lengths), list(lengths))
        rows = torch.randn(tokens, widths[part])
        return (rows, list(lengths)) if part in ("encoder", "llm") else rows

    samples = Pictures().samples
    lengths = {"encoder": [PATCHES], "llm": [sample["llm_tokens"] for sample in samples]}
    parts = {
        "patches": stage.patch,
        "encoder": stage.encoder[0],
        "connector": stage.projector,
        "embedding": stage.embedding,
        "llm": stage.llm[0],
        "head": stage.head,
    }
    return list(dflop.torch.profile(parts, make_input, lengths, model=MODEL, out=path, most_tokens=2048).notes)


def train(rank, plan, options, steps, record):
    """Trains under a plan, and returns the seconds of each step; `record` is a folder for a recording of the last
    ones."""
    data = Pictures()
    sampler = dflop.PlanSampler(plan, data.samples, profile=options.profile, keep=True)  # only the first rank's is used
    executor = dflop.torch.Executor(
        plan,
        Stage,
        inputs=inputs,
        loss=loss,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
    )
    recorder = dflop.torch.Recorder(record, wait=steps - 4, warmup=1, active=3) if record else None
    seconds = []
    with recorder or contextlib.nullcontext():
        for batch in itertools.islice(batches(executor, sampler), steps):
            begin = time.perf_counter()
            result = executor.step(batch.program, (data, batch.indices))
            seconds.append(time.perf_counter() - begin)
            if rank == 0 and record:
                print(f"step {len(seconds):3}  loss {result.loss:.3f}  {1e3 * seconds[-1]:6.1f} ms")
            if recorder:
                recorder.step()
    if rank == 0:
        sampler.write_schedule(plan.replace(".json", ".schedule.json"))
    executor.close()
    return seconds


def batches(executor, sampler):
    """Returns the batches of one epoch after the other."""
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        yield from executor.batches(sampler)


def run_ranks(options, function, *arguments):
    """Runs function(rank, ...) on all ranks, and returns the result of the first one."""
    context = torch.multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        where = f"file://{folder}/rendezvous"
        torch.multiprocessing.spawn(
            run_rank, (options.ranks, where, results, function, arguments), nprocs=options.ranks
        )
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
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--out", default="run", help="folder of all files")
    options = parser.parse_args()
    if options.ranks < 2 or options.steps < 4:
        parser.error("expected at least 2 ranks and 4 steps, of which the last three are recorded")
    os.makedirs(options.out, exist_ok=True)
    file = lambda name: os.path.join(options.out, name)
    options.profile = file("profile.json")

    dflop.write_samples(file("samples.json"), Pictures().samples)
    dflop.write_cluster(file("cluster.json"), options.ranks, memory_bytes=4 << 30)
    print("measuring the modules")
    for note in run_ranks(options, profile, options.profile):
        print("note:", note)

    study = {"model": MODEL, "cluster": file("cluster.json"), "data": file("samples.json"), "gbs": GBS}
    asked = {**study, "planner": "search", "profile": options.profile, "recompute": "none", "no_zero1": True}
    plan = dflop.plan(**asked, out=file("plan.json"))
    other_layout = "uniform" if plan["layout"] != "uniform" else "disaggregated"
    other = dflop.plan(**asked, layout=other_layout, out=file("other.json"))
    print("plan: ", describe(plan), "\nother:", describe(other))

    seconds = run_ranks(options, train, file("plan.json"), options, options.steps, file("traces"))
    other_seconds = run_ranks(options, train, file("other.json"), options, options.steps, None)
    report(options, file, seconds, other_seconds)


def report(options, file, seconds, other_seconds):
    """Prints the time of the last steps next to the predictions from the profile and from the recording."""
    own = {"plan": file("plan.json"), "schedule": file("plan.schedule.json")}
    other = {"plan": file("other.json"), "schedule": file("other.schedule.json")}
    traces = [file(f"traces/rank{rank}.json.gz") for rank in range(options.ranks)]
    dflop.run("import", kineto=traces, **own, out=file("run.json"))
    profile = {"profile": options.profile}
    rows = [
        ("the plan", "profile", dflop.run("simulate", **own, **profile)["iterations_s"][-3:], seconds),
        ("the plan", "its own record", replayed(file("run.json")), seconds),
        ("another plan", "profile", dflop.run("simulate", **other, **profile)["iterations_s"][-3:], other_seconds),
        ("another plan", "the plan's record", replayed(file("run.json"), **other, **profile), other_seconds),
    ]
    print(f"\n{'run':16}{'predicted from':20}{'predicted ms':>14}{'measured ms':>14}{'error %':>10}")
    for run, source, predicted, measured in rows:
        predicted, measured = statistics.mean(predicted), statistics.mean(measured[-3:])
        error = 100 * (predicted / measured - 1)
        print(f"{run:16}{source:20}{1e3 * predicted:14.1f}{1e3 * measured:14.1f}{error:+10.1f}")


def replayed(record, **what_if):
    """Returns the time of the recording when it is replayed, under another plan if one is given."""
    return [dflop.run("replay", trace=record, iteration="all", **what_if)["runs"][-1]["makespan_s"]]


def describe(plan):
    encoder, llm = (f"pp{plan[m]['pp']} dp{plan[m]['dp']} layers {plan[m]['layers']}" for m in ("encoder", "llm"))
    return f"{plan['layout']}, encoder {encoder}, LLM {llm}, {plan['microbatches']} microbatches, {plan['schedule']}"


if __name__ == "__main__":
    main()
