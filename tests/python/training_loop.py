"""A training loop of one rank, which tests kill: training_loop.py FOLDER RANK RANKS EPOCHS

It writes each microbatch and the state after it to FOLDER/journal.RANK, resumes after the last one in the journal, and
waits at the end of each global batch for the other ranks, as in a reduction of gradients.
"""

import json
import sys
import time
import warnings
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "experiments" / "python"))

import dflop  # noqa: E402

MICROBATCHES = 3
COSTS = [1 + 7 * i % 31 for i in range(203)]


def sampler(folder, rank, ranks):
    return dflop.BatchSampler(
        COSTS,
        gbs=24,
        microbatches=MICROBATCHES,
        dp_rank=rank,
        dp_size=ranks,
        seed=5,
        agreement=Path(folder) / "agreed",
        patience=0.4,
    )


def journal(folder, rank):
    """Returns the complete lines of a rank's journal, each with the epoch, the step, its items, and the state after
    it."""
    path = Path(folder) / f"journal.{rank}"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def keep(folder, rank, count):
    """Keeps only the first `count` lines of a rank's journal."""
    lines = [json.dumps(line) + "\n" for line in journal(folder, rank)[:count]]
    (Path(folder) / f"journal.{rank}").write_text("".join(lines))


def train(folder, rank, ranks, epochs):
    warnings.simplefilter("ignore")
    one = sampler(folder, rank, ranks)
    done = journal(folder, rank)
    if done:
        one.load_state_dict(done[-1]["state"])
    count = len(done)
    with open(Path(folder) / f"journal.{rank}", "a", encoding="ascii") as file:
        for epoch in range(one.epoch, epochs):
            one.set_epoch(epoch)
            for items in one:
                state = one.state_dict()
                step = (state["done"] - 1) // MICROBATCHES
                line = {"epoch": epoch, "step": step, "items": items, "state": state}
                file.write(json.dumps(line) + "\n")
                file.flush()
                count += 1
                time.sleep(0.002)
                while count % MICROBATCHES == 0 and any(
                    len(journal(folder, r)) < count for r in range(ranks)
                ):
                    time.sleep(0.002)


if __name__ == "__main__":
    train(sys.argv[1], *map(int, sys.argv[2:]))
