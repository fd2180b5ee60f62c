#!/usr/bin/env python3
"""Trains with dflop and with PyTorch on one GPU, on the same samples, weights and batches, and compares them.

    python3 experiments/gpu/head_to_head.py --out out/head-to-head

A text model (Llama, 1.24 billion parameters, 8 x 4,096 tokens per step) and a VLM (Qwen2.5-VL, 1.9 billion, 16 of 256
pictures with conversations per step). PyTorch runs with the transformers of this Python. The losses of both must agree
step by step. OUT receives table.txt, table.md, head-to-head.json, report.html and the output of each run.

--small uses small models, f32 and the processor, to show that everything works. If torch is missing, it only compiles
the peer's sources.
"""

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
PEER = os.path.join(HERE, "h2h")
sys.path.insert(0, PEER)

import data  # noqa: E402
import models  # noqa: E402
import report  # noqa: E402
import sides  # noqa: E402

LEAST_S = 15  # min time left that makes a run worth starting
MICROBATCHES = 4
TOLERANCE = 0.03  # for the losses of later steps: bf16 rounds differently on both sides, and training amplifies the
                  # difference
FIRST_TOLERANCE = 0.001  # for the loss of the first step, before any weight has changed
SMALL_TOLERANCE = 0.001  # for f32
# Dense bf16 TFLOP/s, by a part of the name in nvidia-smi.
PEAKS = {"H100 PCIe": 756, "H100 NVL": 835, "H100": 989, "H200": 989, "A100": 312, "B200": 2250}


class Variant(NamedTuple):
    kind: str
    who: str
    name: str
    seconds: int  # at most
    options: tuple = ()


# The most important variants come first, because time may run out.
VARIANTS = (
    Variant("text", "dflop", "dflop", 40),
    Variant("text", "torch", "eager, f32 masters", 40),
    Variant("vlm", "dflop", "dflop", 50),
    Variant("vlm", "torch", "packed attention, f32 masters", 60, ("--attention", "packed")),
    Variant("text", "torch", "torch.compile, f32 masters", 60, ("--compile",)),
    Variant("text", "torch", "autocast", 40, ("--precision", "autocast")),
    Variant("vlm", "torch", "stock attention, f32 masters", 60),
)


class Study:
    """All runs, on data in one folder."""

    def __init__(self, options):
        self.options, self.small = options, options.small
        self.folder = options.data
        self.configs = models.SMALL_MODELS if self.small else models.MODELS
        self.samples, self.length = data.read_samples(self.folder)
        self.schedules = {}
        self.deadline = options.begin + options.seconds

    def path(self, name):
        return os.path.join(self.folder, name)

    def source(self, kind):
        if kind == "text":
            return ["--data", self.path("text.bin"), "--sequence-length", str(self.length)]
        return ["--data", self.path("vlm.tar")]

    def schedule(self, kind):
        """Writes a plan of one rank and the batches that dflop draws, which the peer uses, too."""
        encoder, llm = models.layers_of(self.configs[kind])
        one = {"tp": 1, "pp": 1, "dp": 1}
        plan = {
            **{"schema": "dflop.plan", "version": 1, "planner": "by hand", "model": self.path(kind), "cluster": "h100:1"},
            **{"gbs": 8 if kind == "text" or self.small else 16, "layout": "uniform", "microbatches": MICROBATCHES},
            **{"encoder": {**one, "layers": [encoder]}, "llm": {**one, "layers": [llm]}},
            **{"schedule": "1f1b", "recomputation": "none", "zero1": False, "sequence_parallel": False},
        }
        data.write_json(self.path(kind + "-plan.json"), plan)
        steps = self.options.steps or (10 if kind == "text" else 16)
        command = [self.options.dflop, "schedule", "--plan", self.path(kind + "-plan.json"), *self.source(kind)]
        command += ["--scheduler", "lpt", "--iterations", str(steps), "--out", self.path(kind + "-schedule.json")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        self.schedules[kind] = data.read_json(self.path(kind + "-schedule.json"))

    def dflop_command(self, variant, log):
        steps = len(self.schedules[variant.kind]["iterations"])
        command = [self.options.dflop, "train", "--plan", self.path(variant.kind + "-plan.json"), *self.source(variant.kind)]
        command += ["--device", "host", "--dtype", "f32"] if self.small else ["--device", "cuda", "--dtype", "bf16"]
        command += ["--steps", str(steps), "--learning-rate", "1e-4", "--clip-norm", "1", "--data-threads", "4"]
        return [*command, "--log", log, *variant.options]

    def peer_command(self, variant, log):
        command = [sys.executable, os.path.join(PEER, "peer.py"), variant.kind, self.folder, "--log", log, *variant.options]
        if self.small and "--precision" not in variant.options:
            command += ["--precision", "f32"]
        return command + (["--device", "cpu"] if self.small else [])

    def run(self, variant):
        """Returns the row of a variant. Its `state` is how the run ended, and its `note` names an error, if there is
        one."""
        row = {"kind": variant.kind, "who": variant.who, "run": variant.name, "steps": 0, "state": "ok", "note": ""}
        left = self.deadline - time.monotonic()
        if left < LEAST_S:
            return {**row, "state": "failed", "note": "not run: no time left"}
        name = f"{variant.kind}-{variant.who}-{variant.name.replace(', ', '-').replace(' ', '-')}"
        log = os.path.join(self.options.out, name + ".jsonl")
        if os.path.exists(log):
            os.remove(log)
        command = (self.dflop_command if variant.who == "dflop" else self.peer_command)(variant, log)
        say(f"{variant.kind}, {variant.who}: {variant.name}")
        output = os.path.join(self.options.out, name + ".txt")
        seconds = left if self.small else min(variant.seconds, left)  # limits are for a GPU
        status, cut, seen, lines, device = sides.run(command, log, seconds, output)
        row.update(steps=len(lines), device_gib=device, command=command, log=lines, losses=[line["loss"] for line in lines])
        if status != 0 and not (cut and lines):
            why = "no step in its time" if cut else last_line(output) or f"exit status {status}"
            return {**row, "state": "failed", "note": why}
        flop = sides.flop_of_steps(self.configs[variant.kind], self.samples[variant.kind], self.schedules[variant.kind])
        row.update(sides.figures(seen, lines, flop, self.options.warm, self.options.peak_tflops))
        return {**row, "note": f"cut off after {len(lines)} steps" if cut else ""}

    def compare(self, rows):
        """Compares the losses and samples of each peer's row with dflop's."""
        of_dflop = {row["kind"]: row for row in rows if row["who"] == "dflop"}
        for row in rows:
            ours = of_dflop.get(row["kind"])
            if row["who"] == "dflop" or not row["steps"] or not ours or not ours["steps"]:
                continue
            row["loss_difference"], problem = difference(ours["log"], row["log"], self.small)
            if problem:
                row.update(state="failed", note=problem)


def difference(ours, theirs, small=False):
    """Returns the largest relative difference of losses, and the error in the steps, or an empty string."""
    most = 0.0
    for a, b in zip(ours, theirs):
        for key in ("llm_tokens", "encoder_tokens"):
            if a[key] != b[key]:
                return most, f"step {a['step']}: other samples: {key} {a[key]} and {b[key]}"
        apart = abs(a["loss"] / b["loss"] - 1)
        most = max(most, apart)
        tolerance = SMALL_TOLERANCE if small else FIRST_TOLERANCE if a["step"] == 1 else TOLERANCE
        if not apart <= tolerance:
            return most, f"step {a['step']}: losses {a['loss']:.4f} and {b['loss']:.4f} are more than {100 * tolerance:g} % apart"
    return most, ""


def last_line(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return next((line.strip() for line in reversed(file.readlines()) if line.strip()), "")


def say(text):
    print(f"==> {text}", file=sys.stderr, flush=True)


def missing_modules(kind):
    needed = ["torch", "transformers", "numpy"] + (["PIL"] if kind == "vlm" else [])
    return [name for name in needed if importlib.util.find_spec(name) is None]


def gpu_name():
    """Returns the name and driver version of the first GPU; an empty string without a GPU."""
    if not shutil.which("nvidia-smi"):
        return ""
    query = ["nvidia-smi", "--id=0", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    found = subprocess.run(query, stdout=subprocess.PIPE, text=True)
    return found.stdout.strip().replace(", ", ", driver ") if found.returncode == 0 else ""


def versions():
    """Returns the versions of the peer's packages."""
    from importlib import metadata

    found = {}
    for name in ("torch", "transformers"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def small_variants():
    """Returns the variants that run on a processor: no autocast, which is not f32, and no compiler backend."""
    os.environ.update(PEER_BACKEND="eager", OMP_NUM_THREADS="1")  # more threads wait longer than they compute
    return [variant._replace(name=variant.name.replace("f32 masters", "f32")) for variant in VARIANTS if variant.name != "autocast"]


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, metavar="DIR")
    parser.add_argument("--dflop", default=os.path.join(TREE, "build/cuda/dflop"), metavar="FILE")
    parser.add_argument("--data", metavar="DIR", help="where models and data are, or are made; a folder that is removed at the end")
    parser.add_argument("--seconds", type=float, default=300, metavar="S", help="for data and all runs together (%(default)s)")
    parser.add_argument("--steps", type=int, metavar="N", help="of each run (10 of text, 16 of the VLM)")
    parser.add_argument("--warm", type=int, default=4, metavar="N", help="first steps that do not count (%(default)s)")
    parser.add_argument("--peak-tflops", type=float, metavar="T", help="of the GPU, dense bf16; by its name where known")
    parser.add_argument("--small", action="store_true", help="small models on the processor")
    options = parser.parse_args()
    options.begin = time.monotonic()
    if options.small:
        options.steps, options.warm = options.steps or 3, 1
    if options.warm < 0 or (options.steps is not None and options.steps <= options.warm):
        parser.error(f"--steps: expected more than the {options.warm} of --warm, which do not count, found {options.steps}")
    if not os.access(options.dflop, os.X_OK):
        parser.error(f"--dflop: expected a program, found none at {options.dflop}: ./dev build cuda, or release for --small")
    if os.path.exists(options.out) and not os.path.isdir(options.out):
        parser.error(f"--out: expected a folder or a new name, found a file, {options.out}")
    options.gpu = "" if options.small else gpu_name()
    if not options.gpu and not options.small:
        sys.exit("head_to_head.py: there is no GPU; --small runs small models on the processor")
    options.peak_tflops = options.peak_tflops or next((peak for name, peak in PEAKS.items() if name in options.gpu), None)
    return options


def run_all(options):
    say(f"Making models and data in {options.data}")
    if not os.path.exists(os.path.join(options.data, "samples.json")):
        data.make(options.data, ("text", "vlm"), options.small)
    data_s = time.monotonic() - options.begin
    study = Study(options)
    for kind in ("text", "vlm"):
        study.schedule(kind)
    rows = []
    for variant in small_variants() if options.small else VARIANTS:
        missing = missing_modules(variant.kind) if variant.who == "torch" else []
        if missing:
            state = "skipped" if options.small else "failed"
            note = "not run: this Python has no " + ", ".join(missing)
            rows.append({"kind": variant.kind, "who": "torch", "run": variant.name, "steps": 0, "state": state, "note": note})
            continue
        rows.append(study.run(variant))
    study.compare(rows)
    rows.sort(key=lambda row: row["kind"])
    machine = {"gpu": options.gpu or "none", "cores": len(os.sched_getaffinity(0)), **versions()}
    dflop = subprocess.run([options.dflop, "--version"], stdout=subprocess.PIPE, text=True).stdout.strip()
    made = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "dflop": dflop, **machine, "data_s": round(data_s, 1)}
    made["tolerance"] = SMALL_TOLERANCE if options.small else TOLERANCE
    return {"schema": "dflop.head_to_head", "version": 1, "made": made, "peak_tflops": options.peak_tflops, "rows": rows}


def main():
    options = read_options()
    os.makedirs(options.out, exist_ok=True)
    for name in sorted(os.listdir(PEER)):  # also if there is no torch to run it
        if name.endswith(".py"):
            with open(os.path.join(PEER, name), encoding="utf-8") as file:
                compile(file.read(), name, "exec")
    own = None if options.data else tempfile.mkdtemp(prefix="head-to-head-", dir=data.folder_with_room())
    options.data = options.data or own
    try:
        results = run_all(options)
    finally:
        if own:
            shutil.rmtree(own, ignore_errors=True)
    report.write(options.out, results)
    print(report.text_table(results["rows"]))
    failed = [row for row in results["rows"] if row["state"] == "failed"]
    for row in failed:
        print(f"head_to_head.py: {row['kind']}, {row['who']}, {row['run']}: {row['note']}", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
