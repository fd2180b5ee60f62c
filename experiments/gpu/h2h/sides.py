"""Runs a program that trains and logs its steps, dflop or the peer, and computes the figures that are compared."""

import json
import os
import shutil
import signal
import statistics
import subprocess
import threading
import time

import models

GRACE_S = 5  # from SIGTERM to SIGKILL


class GpuMemory:
    """Watches the memory in use on the first GPU, by any process; `most_gib` is None without a GPU."""

    def __init__(self):
        self.most_gib = None
        query = ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--loop-ms=100"]
        self.process = None
        if shutil.which(query[0]):
            self.process = subprocess.Popen(query, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self.thread = threading.Thread(target=self.read)
            self.thread.start()

    def read(self):
        for line in self.process.stdout:
            if line.strip().isdigit():
                self.most_gib = max(self.most_gib or 0, int(line) / 1024)

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.thread.join()


class Log:
    """A log that another process writes: its lines, and the time at which each was seen."""

    def __init__(self, path):
        self.path, self.file, self.partial = path, None, ""
        self.lines, self.times = [], []

    def read(self):
        if self.file is None:
            if not os.path.exists(self.path):
                return
            self.file = open(self.path, encoding="utf-8")
        *whole, self.partial = (self.partial + self.file.read()).split("\n")
        for line in whole:
            self.lines.append(json.loads(line))
            self.times.append(time.monotonic())


def run(command, log_path, seconds, output):
    """Runs a command until it ends or `seconds` are over; `output`: a file for its output. Returns exit status, whether
    it was stopped, seconds from the start to each line of the log, the lines, and the GPU's memory in GiB."""
    log, memory, begin, cut = Log(log_path), GpuMemory(), time.monotonic(), False
    with open(output, "wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            log.read()
            spent = time.monotonic() - begin
            if spent > seconds and not cut:
                process.send_signal(signal.SIGTERM)  # dflop ends after the current step
                cut = True
            if spent > seconds + GRACE_S:
                process.kill()
            time.sleep(0.001)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        memory.stop()
    log.read()
    return process.returncode, cut, [at - begin for at in log.times], log.lines, memory.most_gib


def flop_of_steps(config, samples, schedule):
    """Returns the FLOP of each step of a schedule."""
    of_sample = [models.flop(config, samples[sample["id"].rpartition("/")[2]]) for sample in schedule["samples"]]
    return [sum(of_sample[i] for i in iteration["samples"]) for iteration in schedule["iterations"]]


def figures(seen, lines, flop, warm, peak_tflops):
    """Returns the figures by which runs are compared. The first `warm` steps do not count, because kernels are chosen
    and memory is allocated in them. `seen`: seconds from the start to each line."""
    first = min(warm, len(lines) - 1)
    late = lines[first:]
    intervals = [b - a for a, b in zip(seen, seen[1:])][max(0, first - 1) :]
    median_step = statistics.median(line["iteration_s"] for line in late)
    between = statistics.median(intervals) if intervals else median_step
    # Starts at the line before the first counted step, if there is one, because the pause before a step belongs to the
    # step.
    elapsed = seen[-1] - seen[first - 1] if first > 0 else sum(line["iteration_s"] for line in late)
    tflops = sum(flop[line["step"] - 1] for line in late) / elapsed / 1e12
    memory = [line["peak_memory_bytes"] for line in lines if line.get("peak_memory_bytes")]
    return {
        "ready_s": seen[0] - lines[0]["iteration_s"],
        "step_s": median_step,
        "step_to_step_s": between,
        "llm_tokens_per_s": sum(line["llm_tokens"] for line in late) / elapsed,
        "tflops": tflops,
        "of_peak": tflops / peak_tflops if peak_tflops else None,
        "counted_gib": max(memory) / 2**30 if memory else None,
        "data_wait_s": statistics.median(line.get("data_wait_s") or 0 for line in late),
    }
