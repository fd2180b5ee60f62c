"""The output of Recorder can be imported and replayed, with the times of stages that sleep."""

import gzip
import json
import time

import pytest
import torch
import torch.distributed as dist
import vlm
from plans import ORDERS, make_plan, make_program
from ranks import run_ranks

import dflop
from dflop.torch import Executor, Recorder, Schedule, Stage, span
from dflop.torch._program import Program

ORDER = [["F0", "F1", "B0", "F2", "B1", "B2"], ["F0", "B0", "F1", "B1", "F2", "B2"]]
ROWS = [4, 9, 2]


class Nap(torch.autograd.Function):
    """Sleeps 2 ms per row forward and 4 ms backward."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.rows = len(x)
        time.sleep(0.002 * len(x))
        return x * weight

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(0.004 * ctx.rows)
        return gradient, gradient.sum()


class Sleeper(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        return Nap.apply(x, self.weight)


def inputs():
    return [torch.ones(rows, 3) for rows in ROWS]


def record_pipelining(rank, world, folder):
    stage = Stage(Sleeper(), rank, world, torch.device("cpu"))
    schedule = Schedule([stage], ORDER, lambda output, target: output.sum())
    optimizer = torch.optim.SGD(stage.submod.parameters(), 0.1)

    def step():
        dist.barrier()
        schedule.step(
            arg_mbs=[(x,) for x in inputs()] if rank == 0 else None,
            target_mbs=inputs() if rank == 1 else None,
            shapes=ROWS,
        )
        with span("optimizer_step", stage=rank):
            optimizer.step()

    step()
    with Recorder(folder, active=2) as recorder:
        asked = 1
        step()
        while recorder.step():
            asked += 1
            step()
    return asked, recorder.path


def record_own_loop(rank, world, folder):
    """Runs gpipe over two ranks by hand, with spans around each action."""
    module = Sleeper()

    def step():
        dist.barrier()
        forward, outputs = [], []
        for mb, x in enumerate(inputs()):
            if rank == 1:
                with span("receive_forward", stage=1, mb=mb, peer=0):
                    dist.recv(x, 0)
                x.requires_grad_()
            with span("forward", stage=rank, mb=mb):
                outputs.append(module(x))
            forward.append(x)
            if rank == 0:
                with span("send_forward", stage=0, mb=mb, peer=1):
                    dist.send(outputs[mb].detach(), 1)
        for mb, x in enumerate(forward):
            gradient = torch.ones_like(x)
            if rank == 0:
                with span("receive_backward", stage=0, mb=mb, peer=1):
                    dist.recv(gradient, 1)
            with span("backward", stage=rank, mb=mb):
                outputs[mb].backward(gradient)
            if rank == 1:
                with span("send_backward", stage=1, mb=mb, peer=0):
                    dist.send(x.grad, 0)

    step()
    with Recorder(folder, active=2) as recorder:
        step()
        while recorder.step():
            step()
    return recorder.path


def replayed(folder, paths):
    """Imports a record and replays it in the order gpipe. Returns the seconds of an iteration by row."""
    out = str(folder / "run.json")
    dflop.run("import", kineto=paths, out=out)
    rows = dflop.run("replay", trace=out, pipeline_schedule="gpipe")["runs"]
    return {row["run"]: row["makespan_s"] for row in rows}


# Forwards of the three microbatches sleep 8, 18 and 4 ms, backwards twice as long, on both ranks, so in ms:
#   1f1b    rank 0   F0 0-8  F1 8-26   B0 32-48  F2 48-52             B1 86-122         B2 122-130
#           rank 1           F0 8-16   B0 16-32  F1 32-50  B1 50-86   F2 86-90  B2 90-98
#   gpipe   rank 0   F0 0-8  F1 8-26   F2 26-30            B0 64-80             B1 100-136   B2 136-144
#           rank 1           F0 8-16   F1 26-44  F2 44-48  B0 48-64   B1 64-100 B2 100-108
# Sleeps may take longer but never shorter.
LEAST_1F1B, LEAST_GPIPE = 0.130, 0.144


def test_a_recorded_pipeline_is_imported_and_replayed(tmp_path):
    asked, paths = zip(*run_ranks(2, record_pipelining, str(tmp_path / "run")))
    # One warm-up step and two active ones.
    assert asked == (3, 3)
    assert paths == tuple(str(tmp_path / "run" / f"rank{rank}.json.gz") for rank in range(2))
    seconds = replayed(tmp_path, list(paths))
    assert seconds["recorded"] >= LEAST_1F1B
    assert seconds["replayed"] >= LEAST_1F1B
    assert seconds["gpipe"] >= LEAST_GPIPE
    assert seconds["gpipe"] > seconds["replayed"]


def test_a_users_loop_is_imported_and_replayed(tmp_path):
    seconds = replayed(tmp_path, run_ranks(2, record_own_loop, str(tmp_path / "run")))
    assert seconds["replayed"] >= LEAST_GPIPE
    # The loop is gpipe already, with messages that are sent and received at once.
    assert seconds["gpipe"] == seconds["replayed"]


class SlowStage(vlm.StageModule):
    """Takes longer than the surrounding code does on a busy machine."""

    def forward(self, x, **arguments):
        time.sleep(0.03)
        return super().forward(x, **arguments)


def record_executor(rank, world, programs, samples, folder):
    paths = []
    for order, program in programs.items():
        stages = Program(program).stages
        executor = Executor(
            program,
            lambda stage: SlowStage(stages, stage, torch.float32, 0),
            inputs=vlm.inputs,
            loss=vlm.loss,
        )
        with Recorder(f"{folder}/{order}", active=2) as recorder:
            executor.step(program, (samples, torch.float32))
            while recorder.step():
                executor.step(program, (samples, torch.float32))
        paths.append(recorder.path)
        executor.close()
    return paths


def test_forwards_without_compute_are_recorded(server, tmp_path):
    # Only one of three samples has a picture. Two of three microbatches give the encoder's rank no rows, but their
    # steps still run.
    samples = [
        {**dflop.make_sample(6, [8] * pictures, 2 * pictures), "id": f"sample {i}"}
        for i, pictures in enumerate((0, 1, 0))
    ]
    programs = {}
    for order in ORDERS:
        plan = make_plan("disaggregated", order, (1, 1), (1, 1), 3, 3)
        programs[order] = make_program(plan, samples, server)
    recorded = run_ranks(2, record_executor, programs, samples, str(tmp_path), timeout=120)
    for order, *paths in zip(programs, *recorded):
        out = tmp_path / f"{order}.json"
        dflop.run("import", kineto=paths, out=out)
        timeline = json.loads(out.read_text())
        assert len(timeline["iterations"]) == 2, order
        assert [f for f in timeline.get("findings", []) if f["kind"] != "lost_time"] == [], order


def read(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def record_here(folder, steps, **plan):
    module = torch.nn.Linear(8, 8)
    with Recorder(folder, **plan) as recorder:
        for _ in range(steps):
            with span("forward", stage=0, mb=0):
                module(torch.ones(2, 8))
            with span("optimizer_step", stage=0):
                torch.optim.SGD(module.parameters(), 0.1).step()
            recorder.step()
    return recorder


def test_a_file_has_all_keys_that_the_import_reads(tmp_path):
    recorder = record_here(tmp_path / "run", 5, wait=1, warmup=1, active=2)
    assert recorder.path == str(tmp_path / "run" / "rank0.json.gz")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["rank0.json.gz"]
    trace = read(recorder.path)
    assert trace["made_by"]["recorder"] == "dflop.torch.Recorder"
    assert trace["made_by"]["active"] == 2
    events = trace["traceEvents"]
    # Steps 0 and 1 wait and warm up. torch's own operations launch nothing here, and its range for the optimizer's step
    # is inside a span.
    named = [event["name"] for event in events if event.get("cat") == "user_annotation"]
    ranges = ["dflop:forward stage=0 mb=0", "dflop:optimizer_step stage=0"]
    assert sorted(named) == sorted(["ProfilerStep#2", "ProfilerStep#3", *ranges, *ranges])
    assert not [event for event in events if event.get("cat") == "cpu_op"]
    # Times are small, so a double can hold nanoseconds, and the base gives the date.
    assert 0 <= min(event["ts"] for event in events) < 1
    assert abs(trace["baseTimeNanoseconds"] * 1e-9 - time.time()) < 3600


def test_a_device_keeps_the_events_that_identify_phases():
    def event(cat, name, **args):
        return {"ph": "X", "cat": cat, "name": name, "ts": 1, "dur": 1, "pid": 0, "tid": 0, "args": args}

    launch = event("cuda_runtime", "cudaLaunchKernel", correlation=3, cbid=211)
    kernel = event("kernel", "gemm", correlation=3, **{"est. achieved occupancy %": 4})
    forward = event("cpu_op", "aten::mm", **{"Sequence number": 7, "Record function id": 0})
    view = event("cpu_op", "aten::view")
    flow = {"ph": "s", "id": 3, "cat": "ac2g", "name": "ac2g", "ts": 1, "pid": 0, "tid": 0}
    recorder = Recorder("unused")
    kept = recorder._reduced({"traceEvents": [launch, kernel, forward, view, flow]})["traceEvents"]
    assert [one["name"] for one in kept] == ["cudaLaunchKernel", "gemm", "aten::mm"]
    assert [one["args"] for one in kept] == [{"correlation": 3}, {"correlation": 3}, {"Sequence number": 7}]
    assert recorder._reduced({"traceEvents": [forward, view]})["traceEvents"] == []


def test_a_run_that_ends_too_early_is_an_error(tmp_path):
    with pytest.raises(dflop.DflopError, match="nothing was recorded, because the run ended after 2 steps: .* 4 "):
        record_here(tmp_path / "run", 2, warmup=1, active=3)
    assert not (tmp_path / "run").exists()


def test_an_exception_goes_through_and_nothing_is_written(tmp_path):
    with pytest.raises(KeyError):
        with Recorder(tmp_path / "run", warmup=0, active=2) as recorder:
            recorder.step()
            raise KeyError("the loop's own")
    assert not (tmp_path / "run").exists()


def test_unsupported_recordings_are_rejected():
    with pytest.raises(dflop.InputError, match="active of at least 1, found 0, 1 and 0"):
        Recorder("run", active=0)
    with pytest.raises(dflop.InputError, match="span: expected one of all_reduce, .*, found 'foward'"):
        span("foward")
    # Without a profiler, all spans share one context.
    assert span("forward", stage=1, mb=2) is span("wait")
