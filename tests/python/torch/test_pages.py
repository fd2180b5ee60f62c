"""Runs every Python block of docs/pytorch.md as printed. This file provides the names that a block assumes."""

import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

import dflop
import dflop.torch

SOURCE = Path(__file__).resolve().parents[3]


def blocks():
    """Returns the Python blocks of the page by their heading."""
    found, heading = {}, None
    page = (SOURCE / "docs" / "pytorch.md").read_text()
    for match in re.finditer(r"^#+ ([^\n]*)$|^```python\n(.*?)^```$", page, re.M | re.S):
        if match[1]:
            heading = match[1]
        else:
            found.setdefault(heading, []).append(match[2])
    return found


BLOCKS = blocks()


def example():
    """Returns the module train_vlm.py, whose stages and samples stand in for the reader's own."""
    path = SOURCE / "experiments" / "examples" / "pytorch" / "train_vlm.py"
    spec = importlib.util.spec_from_file_location("train_vlm", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(heading, index=0, **names):
    """Runs a block and returns its names."""
    exec(compile(BLOCKS[heading][index], f"docs/pytorch.md: {heading}", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.symlink(SOURCE / "traces", tmp_path / "traces")


def test_the_page_has_these_blocks():
    assert {heading: len(found) for heading, found in BLOCKS.items()} == {
        "Bins of about equal cost": 1,
        "Microbatches of a training loop": 2,
        "Plans in a notebook": 1,
        "A plan on your own modules": 2,
        "Checkpoints": 2,
        "Recording a run": 2,
        "Profiling your modules": 1,
        "torch.distributed.pipelining": 1,
    }


def test_the_example_prints_what_disturbed_its_profile(monkeypatch, capsys):
    module, planned = example(), RuntimeError("as far as the first plan")

    def plan(**options):
        raise planned

    noisy = types.SimpleNamespace(notes=("llm: 3 of 7 rounds took up to 4.0 medians",))
    monkeypatch.setattr(dflop.torch, "profile", lambda *arguments, **options: noisy)
    monkeypatch.setattr(module, "run_ranks", lambda options, function, *arguments: function(0, *arguments))
    monkeypatch.setattr(dflop, "plan", plan)
    monkeypatch.setattr(sys, "argv", ["train_vlm.py"])
    with pytest.raises(RuntimeError, match=str(planned)):
        module.main()
    assert "measuring the modules\nnote: llm: 3 of 7 rounds took up to 4.0 medians\n" in capsys.readouterr().out


def test_bins():
    first = BLOCKS["Bins of about equal cost"][0].splitlines()[2]
    assert first.startswith("lists = dflop.partition([9, 7, 6, 5, 4, 3], 2) ")
    assert dflop.partition([9, 7, 6, 5, 4, 3], 2) == eval(first.split("# ")[1].split(": ")[0])
    lengths = [100 + 37 * i % 900 for i in range(256)]
    table = {"llm": lengths, "encoder": lengths, "tokens": lengths}
    names = run("Bins of about equal cost", lengths=lengths, encoder=lengths, llm=lengths, table=table)
    assert sorted(i for items in names["lists"] for i in items) == list(range(256))


def test_a_training_loop():
    pytest.importorskip("torchdata")
    trained = []
    costs = [float(i % 97) for i in range(1030)]
    about = {"dflop": dflop, "costs": costs, "rank": 1, "data": list(range(1030)), "pack": list, "train": trained.append}
    names = run("Microbatches of a training loop", **about, epochs=2)
    # 1030 items are 2 global batches of 512, of 16 microbatches each.
    assert len(trained) == 2 * 2 * 16
    # The second epoch is over, so two more are trained.
    run("Microbatches of a training loop", 1, **{**names, "epochs": 4})
    assert len(trained) == 4 * 2 * 16
    whole = list(trained)
    # The same in the middle of the third epoch.
    del trained[:]
    names["sampler"].set_epoch(2)
    for microbatch in itertools.islice(names["loader"], 5):
        trained.append(microbatch)
    run("Microbatches of a training loop", 1, **{**names, "epochs": 4})
    assert trained == whole[2 * 2 * 16 :]


def test_a_notebook():
    pytest.importorskip("pandas")
    names = run("Plans in a notebook", dflop=dflop)
    assert names["plan"]["gbs"] == 512 and names["run"]["iteration_s_mean"] > 0


def on_each_rank(rank, world, folder):
    """Runs what the page lets ranks do: train under a plan, record it, print the order of a loop, run an order."""
    os.chdir(folder)
    vlm = example()
    data = vlm.Pictures(64)
    make = {"make_stage": vlm.Stage, "samples": data.samples}
    make["inputs"] = lambda part, indices: vlm.inputs(part, (data, indices))
    make["loss"] = lambda output, part, indices: vlm.loss(output, part, (data, indices))
    names = run("A plan on your own modules", 1, dflop=dflop, torch=torch, **make)
    executor, result = names["executor"], names["result"]
    assert result.loss > 0 and result.tokens > 0 and result.norm > 0

    saved = {"executor": executor, "sampler": names["sampler"], "torch": torch}
    run("Checkpoints", 0, **saved)
    modules = executor.modules.items()
    weights = {stage: {name: t.clone() for name, t in module.state_dict().items()} for stage, module in modules}
    steps = {stage: optimizer.state_dict() for stage, optimizer in executor.optimizers.items()}
    for _, module in modules:
        for parameter in module.parameters():
            parameter.data.zero_()
    for stage in executor.optimizers:
        executor.optimizers[stage] = torch.optim.AdamW(executor.modules[stage].parameters())
    # 64 samples are 4 batches of 16. The first epoch is over, so with one epoch in all nothing is left to train.
    run("Checkpoints", 1, **saved, epochs=1)
    assert executor._steps == 4
    for stage, module in modules:
        assert all(torch.equal(t, weights[stage][name]) for name, t in module.state_dict().items())
        found = executor.optimizers[stage].state_dict()["state"]
        assert found.keys() == steps[stage]["state"].keys() and found, "each parameter has a state"
        assert all(torch.equal(found[k]["exp_avg"], steps[stage]["state"][k]["exp_avg"]) for k in found)

    run("Checkpoints", 1, **saved, epochs=3)
    assert executor._steps == 4 + 2 * 4

    def train(batch):
        executor.step(batch.program, batch.indices)

    run("Recording a run", loader=executor.batches(names["sampler"]), train=train)
    sent = types.SimpleNamespace(send=lambda y, to: dist.send(y, to) if rank == 0 else dist.recv(y, 0))
    about = {"s": rank, "j": 0, "next_rank": 1, "module": torch.nn.Linear(2, 2), "x": torch.ones(1, 2)}
    with torch.no_grad():
        run("Recording a run", 1, span=dflop.torch.span, dist=sent, **about)

    torch.manual_seed(rank)
    losses = []
    run(
        "torch.distributed.pipelining",
        module=torch.nn.Linear(3, 3),
        rank=rank,
        stages=2,
        device=torch.device("cpu"),
        loss_sum=lambda output, target: (output - target).square().sum(),
        inputs=[(torch.ones(n, 3),) for n in (2, 1)] if rank == 0 else None,
        targets=[torch.zeros(n, 3) for n in (2, 1)] if rank == 1 else None,
        rows=[2, 1],
        tokens_of_the_batch=3,
        losses=losses if rank == 1 else None,
    )
    return len(losses)


def test_user_modules_are_profiled_planned_trained_and_recorded(tmp_path):
    torch.set_num_threads(1)
    vlm = example()
    (tmp_path / "my-model.json").write_text(Path(vlm.MODEL).read_text())
    (tmp_path / "order.json").write_text(
        json.dumps({"schema": "dflop.order", "ranks": [["F0", "F1", "B0", "B1"], ["F0", "B0", "F1", "B1"]]})
    )

    def make_input(part, lengths):
        rows = torch.randn(sum(lengths), 256 if part in ("llm", "head") else 192)
        return (rows, lengths) if part in ("encoder", "llm") else rows

    class Decoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(vlm.Layer(256, 4, True) for _ in range(4))

        def forward(self, x, lengths):
            for layer in self.layers:
                x = layer(x, lengths)
            return x

    names = run(
        "Profiling your modules",
        dflop=dflop,
        vit=types.SimpleNamespace(blocks=[vlm.Layer(192, 4, False)]),
        projector=vlm.Projector(192, 256),
        decoder=Decoder(),
        lm_head=torch.nn.Linear(256, 64),
        make_input=make_input,
    )
    assert names["profile"]["schema"] == "dflop.profile"

    shapes = [(s["llm_tokens"], sum(count for count, _, _ in s["encoder_sequences"])) for s in vlm.Pictures(64).samples]
    plan = run("A plan on your own modules", 0, dflop=dflop, shapes=shapes)["plan"]
    assert plan["clip_gradients"] and not plan["zero1"]
    ranks = sum(plan[module]["pp"] * plan[module]["dp"] for module in ("encoder", "llm"))
    ranks = ranks if plan["layout"] == "disaggregated" else plan["llm"]["pp"] * plan["llm"]["dp"]
    assert ranks == 2 and plan["layout"] != "shared"
    commands = re.findall(r"^    (dflop (?:import|replay) .*)$", (SOURCE / "docs" / "pytorch.md").read_text(), re.M)
    assert len(commands) == 2

    def printed(command):
        line = command.replace("dflop ", dflop.executable() + " ", 1)
        return subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True)

    # On a busy machine, torch's profiler sometimes loses ranges of a step. Such a run is recorded again.
    for _ in range(4):
        assert run_ranks(2, on_each_rank, str(tmp_path), timeout=300) == [0, 2]
        imported = printed(commands[0])
        said = imported.stdout + imported.stderr
        if imported.returncode == 0 and "missing_range" not in said:
            break
    assert imported.returncode == 0, said
    record = json.loads((tmp_path / "run.json").read_text())
    # On a busy machine, some steps take another time when replayed. They are left out by name.
    left_out = set(re.findall(r"(?:inconsistent_step|truncated_profile) .*?\bstep (\d+)", said))
    assert len(record["iterations"]) + len(left_out) == 3, said
    replayed = printed(commands[1])
    assert replayed.returncode == 0, replayed.stderr
    for iteration in record["iterations"]:
        spans = iteration["spans"]
        sums = {  # the norm's sum, in which both ranks meet; gradients have another, or buckets during compute
            rank: message
            for rank, op, message in zip(spans["rank"], spans["op"], spans["message"])
            if record["ops"][op] == "all_reduce"
        }
        assert sums.keys() == {0, 1} and sums[0] == sums[1] >= 0


def test_megatron_commands_work(tmp_path):
    page = (SOURCE / "docs" / "pytorch.md").read_text()
    commands = re.findall(r"^    (dflop (?:plan|export) [^#\n]*)", page, re.M)
    assert len(commands) == 4
    for command in commands:
        line = command.replace("dflop ", dflop.executable() + " ", 1)
        done = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    compile((tmp_path / "mimo_plan.py").read_text(), "mimo_plan.py", "exec")
    assert "PARALLELISM" in (tmp_path / "mimo_plan.py").read_text()
