"""A Recorder writes a few steps of a run as PyTorch-profiler traces, which `dflop import --kineto` reads."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import sys
import tempfile
from decimal import Decimal
from typing import Any, ContextManager

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity

from dflop._errors import DflopError, InputError

OPERATIONS = frozenset(
    "forward backward backward_input backward_weight send_forward send_backward receive_forward "
    "receive_backward send receive reshard_send reshard_receive all_reduce all_reduce_start all_reduce_wait "
    "optimizer_step wait".split()
)
"""Names of what a rank does in a range; docs/replay.md says what each is."""

DEVICE_CATEGORIES = frozenset("cuda_runtime cuda_driver kernel gpu_memcpy gpu_memset".split())
ARGUMENTS = frozenset(
    "correlation,device,stream,bytes,Sequence number,Fwd thread id,Collective name,dtype,In msg nelems,"
    "Out msg nelems,Group size,Process Group Name,Process Group Ranks,Seq,Src Rank,Dst Rank,Input Dims,"
    "Input type,Concrete Inputs".split(",")
)
"""Arguments of events that the import reads."""

_NOTHING = contextlib.nullcontext()


def span(
    op: str, stage: int | None = None, mb: int | None = None, peer: int | None = None, msg: int | None = None
) -> ContextManager[Any]:
    """Returns a context that names its contents for `dflop import`: "dflop:forward stage=1 mb=0".

        with dflop.torch.span("forward", stage=rank, mb=j):
            y = module(x)

    `op` is one of OPERATIONS, `stage` and `mb` are the numbers of stage and microbatch, `peer` is the global rank at
    the other end of a message, and `msg` a number that all participants of a message or sum give it. Does nothing while
    no profiler records. Raises InputError for another op.
    """
    if op not in OPERATIONS:
        raise InputError(f"span: expected one of {', '.join(sorted(OPERATIONS))}, found {op!r}")
    if not torch.autograd._profiler_enabled():
        return _NOTHING
    name = f"dflop:{op}"
    for key, value in (("stage", stage), ("mb", mb), ("peer", peer), ("msg", msg)):
        if value is not None:
            name += f" {key}={value}"
    return torch.profiler.record_function(name)


class Recorder:
    """Records steps of this rank, and writes rankR.json.gz to a folder.

        with dflop.torch.Recorder("run", active=3) as recorder:
            for batch in loader:
                train(batch)
                if not recorder.step():
                    break
        # then: dflop import --kineto run/rank*.json.gz --out run.json

    The first `wait` steps run without the profiler. The next `warmup` steps run with the profiler, which discards them.
    Then `active` steps are recorded. CPU activities are recorded, and CUDA activities if there is a device. The file
    contains only what the import reads, is either complete or absent, and has its origin in `made_by`. It is written in
    step(), after the last active step. If an exception leaves the context before that, nothing is written.
    """

    def __init__(self, folder: str | os.PathLike[str], wait: int = 0, warmup: int = 1, active: int = 3) -> None:
        if wait < 0 or warmup < 0 or active < 1:
            raise InputError(
                "Recorder: expected wait and warmup of at least 0 and active of at least 1, "
                f"found {wait}, {warmup} and {active}"
            )
        self.folder = os.fspath(folder)
        self.steps = wait + warmup + active
        self.path: str | None = None
        """The file, once it is written."""
        self._plan = {"wait": wait, "warmup": warmup, "active": active}
        self._done = 0
        self._failed = False
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(
            activities=activities,
            schedule=torch.profiler.schedule(repeat=1, **self._plan),
            on_trace_ready=self._write,
            record_shapes=True,
        )

    def __enter__(self) -> Recorder:
        self._profiler.__enter__()
        return self

    def step(self) -> bool:
        """Registers the end of a step, and returns whether more are needed."""
        self._done += 1
        if self._done <= self.steps:
            self._profiler.step()
        return self._done < self.steps

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._failed = kind is not None
        self._profiler.__exit__(kind, error, trace)
        if self.path is None and not self._failed:
            raise DflopError(
                f"{self.folder}: nothing was recorded, because the run ended after {self._done} steps: expected "
                f"Recorder.step() after each of at least {self.steps} ({self._plan})"
            )

    def _write(self, profiler):
        # The profiler also delivers an incomplete recording when its context is left.
        if self._failed or self._done < self.steps:
            return
        with tempfile.TemporaryDirectory(prefix="dflop-record") as scratch:
            whole = os.path.join(scratch, "trace.json")
            profiler.export_chrome_trace(whole)
            with open(whole, encoding="utf-8", errors="replace") as file:
                trace = json.load(file, parse_float=Decimal, strict=False)
        os.makedirs(self.folder, exist_ok=True)
        path = os.path.join(self.folder, f"rank{_rank()}.json.gz")
        part = path + ".part"
        with gzip.open(part, "wt", encoding="utf-8") as file:
            json.dump(self._reduced(trace), file)
        os.replace(part, path)
        self.path = path

    def _reduced(self, trace):
        """Returns only the events that the import reads, with times relative to the first one."""
        events = trace["traceEvents"]
        with_device = any(event.get("cat") in DEVICE_CATEGORIES for event in events)
        kept = _without_own_steps([event for event in events if _is_read(event, with_device)])
        # Times get a new base: as doubles, absolute times would be rounded to a quarter of a microsecond.
        base_us = int(min((event["ts"] for event in kept), default=0))
        reduced = {
            "schemaVersion": trace.get("schemaVersion", 1),
            "baseTimeNanoseconds": int(trace.get("baseTimeNanoseconds", 0)) + 1000 * base_us,
            "made_by": {
                "recorder": "dflop.torch.Recorder",
                "torch": torch.__version__,
                "command": " ".join(sys.argv),
                **self._plan,
            },
            "traceEvents": [_small(event, base_us) for event in kept],
        }
        if "distributedInfo" in trace:
            reduced["distributedInfo"] = trace["distributedInfo"]
        return reduced


def _rank():
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    return int(os.environ.get("RANK", 0))


def _is_read(event, with_device):
    if event.get("ph") == "i":
        return event.get("name") == "Record Window End"
    if event.get("ph") != "X":
        return False
    category = event.get("cat")
    if category == "cpu_op":
        # Operations tell the phase of the kernels that they launch; without a device there are no kernels.
        arguments = event.get("args", {})
        tells_phase = "Sequence number" in arguments or "Fwd thread id" in arguments
        return event["name"].startswith("c10d::") or (with_device and tells_phase)
    return category in DEVICE_CATEGORIES or category in ("user_annotation", "Trace")


def _without_own_steps(events):
    """Drops torch's own ranges of optimizer steps inside a span that names the stage, so that a step is read only once.
    """
    spans = [event for event in events if event["name"].startswith("dflop:optimizer_step")]

    def is_said(event):
        return event["name"].startswith("Optimizer.step") and any(
            span["tid"] == event["tid"] and span["ts"] <= event["ts"] <= span["ts"] + span["dur"]
            for span in spans
        )

    return [event for event in events if not is_said(event)]


def _small(event, base_us):
    small = {key: event[key] for key in ("ph", "cat", "name", "pid", "tid", "s") if key in event}
    small["ts"] = float(event["ts"] - base_us)
    if "dur" in event:
        small["dur"] = float(event["dur"])
    arguments = {key: value for key, value in event.get("args", {}).items() if key in ARGUMENTS}
    if arguments:
        small["args"] = arguments
    return small
