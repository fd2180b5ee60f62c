#!/usr/bin/env python3
"""Starts a process for each rank of a `dflop train --device nccl` run, on one GPU that they share.

    python3 ranks.py RANKS --out DIR [--like LOG] [--kill RANK] -- dflop train --device nccl ...

Each process has its own NCCL_HOSTID, so that NCCL assumes several machines and lets the processes share the GPU.
Outputs and the log of the steps go to DIR. --like: losses must equal those in another log. --kill: kills that rank with
SIGKILL in the middle of a step. Each of the others must then end by itself, with one line that gives the reason.
--alone: without NCCL; each process is a separate run, to check the command without a GPU.
"""

import argparse
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time

TOLERANCE = 0.01  # for losses, because NCCL sums in its own order, in bf16
STEPS_BEFORE_KILL = 3
END_S = 30  # time within which all others must end


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def environments(ranks):
    port, token = str(free_port()), secrets.token_hex(16)
    common = {"WORLD_SIZE": str(ranks), "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "DFLOP_TOKEN": token}
    return [{**os.environ, **common, "RANK": str(rank), "NCCL_HOSTID": f"host-{rank}"} for rank in range(ranks)]


def lines_of(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


class Run:
    def __init__(self, options):
        self.options = options
        self.log = os.path.join(options.out, "log.jsonl")
        if os.path.exists(self.log):
            os.remove(self.log)
        self.processes = []
        for rank, environment in enumerate(environments(options.ranks)):
            own = rank == 0 or not options.alone
            command = options.command + (["--log", self.log] if own else [])
            with open(self.output(rank), "wb") as file:
                streams = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": subprocess.STDOUT}
                self.processes.append(subprocess.Popen(command, env=environment, **streams))

    def output(self, rank):
        return os.path.join(self.options.out, f"rank-{rank}.txt")

    def kill_in_a_step(self):
        """Waits for several steps and half of the next one, and then kills the rank."""
        while len(lines := lines_of(self.log)) < STEPS_BEFORE_KILL:
            if any(process.poll() is not None for process in self.processes):
                sys.exit(f"ranks.py: a rank ended before step {STEPS_BEFORE_KILL}: {self.last_lines()}")
            time.sleep(0.001)
        time.sleep(json.loads(lines[-1])["iteration_s"] / 2)
        self.processes[self.options.kill].send_signal(signal.SIGKILL)

    def wait(self, seconds):
        """Returns the exit status of each rank; None for a rank that did not end in time."""
        deadline = time.monotonic() + seconds
        while None in (statuses := [process.poll() for process in self.processes]) and time.monotonic() < deadline:
            time.sleep(0.01)
        return statuses

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()

    def last_lines(self):
        return {rank: lines[-1] for rank in range(self.options.ranks) if (lines := lines_of(self.output(rank)))}


def problem_of_killed(run, statuses):
    """Returns the error in the end of a run after one rank was killed, or an empty string."""
    killed = run.options.kill
    if statuses[killed] != -signal.SIGKILL:
        return f"rank {killed} ended with status {statuses[killed]} before it was killed"
    if run.options.alone:
        return ""
    for rank, status in enumerate(statuses):
        if rank == killed:
            continue
        if status is None:
            return f"rank {rank} did not end within {END_S} s after rank {killed} was killed"
        said = [line for line in lines_of(run.output(rank)) if line.startswith("dflop: error")]
        if status == 0 or len(said) != 1:
            return f"rank {rank}: expected a failure with one line that says why, found exit status {status} and {said}"
        print(f"rank {rank}: {said[0]}")
    return ""


def losses_of(path):
    return [json.loads(line)["loss"] for line in lines_of(path)]


def problem_of_whole(run, statuses):
    """Returns the error in a run that should have succeeded, or an empty string."""
    if any(statuses):
        return f"exit statuses {statuses}: {run.last_lines()}"
    losses = losses_of(run.log)
    print("losses " + " ".join(f"{loss:.4f}" for loss in losses))
    if not losses:
        return "no step was logged"
    if not run.options.like:
        return ""
    others = losses_of(run.options.like)
    if len(others) != len(losses):
        return f"{len(losses)} steps, and {len(others)} in {run.options.like}"
    apart = max(abs(a / b - 1) for a, b in zip(losses, others))
    print(f"at most {apart:.2%} from {run.options.like}")
    return "" if apart <= TOLERANCE else f"losses are more than {TOLERANCE:.0%} from {run.options.like}"


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ranks", type=int)
    parser.add_argument("--out", required=True, metavar="DIR")
    parser.add_argument("--like", metavar="LOG")
    parser.add_argument("--kill", type=int, metavar="RANK")
    parser.add_argument("--seconds", type=float, default=60, metavar="S")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    return options


def main():
    options = read_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(124))  # so that a time limit ends the ranks, too
    run = Run(options)
    try:
        if options.kill is None:
            problem = problem_of_whole(run, run.wait(options.seconds))
        else:
            run.kill_in_a_step()
            problem = problem_of_killed(run, run.wait(1 if options.alone else END_S))
    finally:
        run.end()
    if problem:
        sys.exit("ranks.py: " + problem)


if __name__ == "__main__":
    main()
