"""Kills a child, a rank or all ranks of a training loop at random moments: no sample is lost or given twice."""

import os
import random
import signal
import subprocess
import sys
import time

import training_loop

KILLS = int(os.environ.get("DFLOP_TEST_KILLS", "12"))
EPOCHS = 3


class Run:
    """The processes of a training run. If one is killed, all restart from the last point that all had reached."""

    def __init__(self, folder, ranks):
        self.folder = folder
        self.ranks = ranks
        self.stopped = []
        folder.mkdir()
        self.start()

    def start(self):
        common = min(len(training_loop.journal(self.folder, r)) for r in range(self.ranks))
        for rank in range(self.ranks):
            training_loop.keep(self.folder, rank, common)
        arguments = [sys.executable, training_loop.__file__, str(self.folder)]
        self.processes = [
            subprocess.Popen([*arguments, str(rank), str(self.ranks), str(EPOCHS)])
            for rank in range(self.ranks)
        ]

    def ends(self):
        codes = [process.poll() for process in self.processes]
        assert all(code in (None, 0) for code in codes), codes
        return all(code == 0 for code in codes)

    def children(self, rank):
        pid = self.processes[rank].pid
        try:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
                return [int(child) for child in file.read().split()]
        except OSError:
            return []

    def signal_child(self, rank, number):
        """Sends a signal to the rank's child. Returns whether there was one."""
        for child in self.children(rank):
            try:
                os.kill(child, number)
                if number == signal.SIGSTOP:
                    self.stopped.append(child)
                return True
            except ProcessLookupError:
                pass
        return False

    def kill_ranks(self, first):
        """Kills one rank and then the others, as a launcher does, and starts them again."""
        first.kill()
        first.wait()
        self.kill_all()
        self.start()
        return True

    def kill_all(self):
        """Kills all ranks and their stopped children."""
        for process in self.processes:
            process.kill()
            process.wait()
        self.kill_stopped()

    def kill_stopped(self):
        """Kills the stopped children. A child without a parent sees the end of its input only if it runs."""
        for pid in self.stopped:
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    is_ours = b"serve" in file.read()
                if is_ours:
                    os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        self.stopped.clear()


def hurt(run, rng):
    """Does one of three things to a run. Returns its name, or None if it did not apply."""
    rank = rng.randrange(run.ranks)
    deed = rng.choice(["child killed", "child stopped", "rank killed"])
    if deed == "child killed":
        return deed if run.signal_child(rank, signal.SIGKILL) else None
    if deed == "child stopped":
        return deed if run.signal_child(rank, signal.SIGSTOP) else None
    return deed if run.kill_ranks(run.processes[rank]) else None


def require_all_samples_once(folder, ranks):
    expected = training_loop.sampler(folder, 0, ranks)
    journals = [training_loop.journal(folder, rank) for rank in range(ranks)]
    assert {len(one) for one in journals} == {EPOCHS * len(expected)}
    for epoch in range(EPOCHS):
        expected.set_epoch(epoch)
        for step in range(expected.steps):
            given = [
                item
                for one in journals
                for line in one
                if (line["epoch"], line["step"]) == (epoch, step)
                for item in line["items"]
            ]
            assert sorted(given) == sorted(expected.batch(step)), (epoch, step)


def test_whatever_is_killed_no_sample_is_lost_or_repeated(tmp_path):
    rng = random.Random(os.environ.get("DFLOP_TEST_SEED", "1"))
    counts = {}
    runs = 0
    while sum(counts.values()) < KILLS:
        ranks = rng.choice([1, 2])
        run = Run(tmp_path / f"run{runs}", ranks)
        runs += 1
        deadline = time.monotonic() + 300
        try:
            while not run.ends():
                assert time.monotonic() < deadline, "a run hangs"
                time.sleep(rng.uniform(0.02, 0.3))
                if sum(counts.values()) < KILLS and not run.ends():
                    deed = hurt(run, rng)
                    if deed:
                        counts[deed] = counts.get(deed, 0) + 1
        finally:
            run.kill_all()
        require_all_samples_once(run.folder, ranks)
    print(f"{runs} runs: {counts}")
