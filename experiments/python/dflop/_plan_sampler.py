"""A PlanSampler draws global batches and has each scheduled for a plan, whose program comes with it."""

from __future__ import annotations

import json
import os
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from dflop._epochs import Permutations, Position, log_left_out, read_state
from dflop._errors import InputError
from dflop._outliers import MOST_DELAY, Moves, window_of
from dflop._partition import LEAST_WAIT_S, MOST_SEED, MOST_WAIT_S, finite_number, truth, whole_number
from dflop._samples import read_sample
from dflop._scheduling import Scheduling


class Batch(NamedTuple):
    """A global batch: `indices` of its samples in the data set, and the program that all ranks run, for an Executor of
    dflop.torch, with the name of the plan's "order". Samples have their positions in `indices` as numbers there."""

    epoch: int
    step: int
    indices: list[int]
    program: dict[str, Any]


class PlanSampler:
    """Gives the global batches of a plan, each a Batch with its program.

        sampler = dflop.PlanSampler("plan.json", samples)
        executor = dflop.torch.Executor("plan.json", stages, inputs=inputs, loss=loss)
        for batch in executor.batches(sampler):
            executor.step(batch.program, batch)

    plan      a path, or what the file holds
    samples   of the data set, each as make_sample() returns it
    method    as `dflop schedule --scheduler`
    profile   a file of `dflop profile` or dflop.torch.profile(), whose times schedules go by
    patience  so many seconds the loop waits for a schedule
    delay_outliers  so many batches are regrouped together, so that samples which cost more than the mean bin run beside
              each other; how far samples have moved is added to `log` at the end of an epoch. 0: none
    keep      keeps all schedules in memory, some kilobytes a batch, for write_schedule()

    One rank's is enough, whose batches Executor.batches() gives to all. Where several are asked they need the same
    arguments, and have the same batches, as answers do not depend on the machine. A batch is scheduled in a child
    process while the one before it trains. A child that dies is started again; where that is in vain ServerError is
    raised, as a program cannot be made without it.

    `state_dict` and `load_state_dict` resume exactly; a state that was saved after an epoch goes on with the next one.
    Each `iter` begins anew, but for the first after load_state_dict.
    Samples that fill no global batch are left out of an epoch; each epoch leaves out others.
    """

    def __init__(
        self,
        plan: str | os.PathLike[str] | Mapping[str, Any],
        samples: Sequence[dict[str, Any]],
        *,
        method: str = "auto",
        profile: str | os.PathLike[str] | None = None,
        seed: int = 1,
        shuffle: bool = True,
        patience: float = 60.0,
        keep: bool = False,
        delay_outliers: int = 0,
    ) -> None:
        self._plan = plan if isinstance(plan, dict) else _read(plan)
        self._samples = samples
        self._gbs = self._plan["gbs"]
        self._method = method
        self._profile = None if profile is None else os.fspath(profile)
        self._seed = whole_number("seed", seed, 0, MOST_SEED)
        self._shuffle = truth("shuffle", shuffle)
        self._window = whole_number("delay_outliers", delay_outliers, 0, MOST_DELAY)
        self._moves = Moves()  # of the epoch
        self._patience = finite_number("patience", patience, LEAST_WAIT_S, MOST_WAIT_S)
        self._permutations = Permutations(len(samples), self._seed, self._shuffle)
        self._scheduling = None
        self._keep = truth("keep", keep)
        self._scheduled: list[Any] = []  # (indices, answer) of batches that are kept
        self.log: list[str] = []
        self._position = Position("PlanSampler", len(self), self.log)
        if len(samples) < self._gbs:
            raise InputError(f"samples: expected at least gbs = {self._gbs}, found {len(samples)}")
        log_left_out("PlanSampler", len(samples), self._gbs)

    def __len__(self) -> int:
        return len(self._samples) // self._gbs

    def __iter__(self) -> Iterator[Batch]:
        position = self._position
        position.begin()
        self._moves = Moves()
        while position.done < len(self):
            batch = self._batch(position.done)
            position.done += 1
            yield batch
        if self._window > 1:
            self.log.append(f"epoch {self.epoch}: outliers are delayed: {self._moves}")
        position.end()

    def set_epoch(self, epoch: int) -> None:
        """Has the next pass be of an epoch, which has a permutation of its own.

        The epoch that a state was loaded of goes on where it is; where that is its end, it stays
        empty until another one is named. Any other one begins at its start, and a warning says so where a state is dropped by that.
        """
        self._position.set_epoch(epoch)

    @property
    def epoch(self) -> int:
        """The epoch of the pass that is under way or was the last; after load_state_dict() that of the next pass."""
        return self._position.epoch

    def state_dict(self) -> dict[str, Any]:
        """Returns where the sampler is, as JSON can keep it: the epoch, and how many of its batches are done, all of them
        from the last one on until another pass begins."""
        return self._position.state(self._shape())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where the state is from: in its epoch, or with the next one where all of it is done. Raises
        InputError for what is no state, or that of another run."""
        self._position.load(*read_state(state, self._shape(), len(self)))

    def write_schedule(self, path: str | os.PathLike[str]) -> None:
        """Writes the schedule of all batches that were given since the sampler was made, for `dflop simulate`."""
        if not self._scheduled:
            why = "a batch to have been given" if self._keep else "a PlanSampler made with keep=True"
            raise InputError(f"write_schedule: expected {why}, found none")
        drawn = sorted({i for indices, _ in self._scheduled for i in indices})
        place = {i: k for k, i in enumerate(drawn)}
        schedule = {
            "schema": "dflop.schedule",
            "version": 2,
            "scheduler": self._method,
            "model": self._plan["model"],
            "gbs": self._gbs,
            "seed": self._seed,
            "samples": [self._sample(i) for i in drawn],
            "iterations": [
                {
                    "objective": answer["objective"],
                    "status": answer["status"],
                    "c_max_s": answer["value"],
                    "bound_s": answer["bound"],
                    "bound_kind": "simple",
                    "microbatches": self._plan["microbatches"],
                    "dp": self._plan["llm"]["dp"],
                    "samples": [place[i] for i in indices],
                    "bins": answer["bins"],
                }
                for indices, answer in self._scheduled
            ],
        }
        with open(f"{path}.part", "w", encoding="utf-8") as file:
            json.dump(schedule, file)
        os.replace(f"{path}.part", path)

    def __repr__(self) -> str:
        return (
            f"PlanSampler({len(self._samples)} samples, gbs={self._gbs}, epoch={self.epoch}, "
            f"{self._position.done} of {len(self)} given)"
        )

    def __enter__(self) -> PlanSampler:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_scheduling": None}  # a copy in another process has a child of its own

    def close(self) -> None:
        """Ends the child process. A sampler that goes on starts it again."""
        if self._scheduling is not None:
            self._scheduling.close()
            self._scheduling = None

    def _shape(self):
        return {
            "items": len(self._samples),
            "gbs": self._gbs,
            "method": self._method,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "delay_outliers": self._window,
        }

    def _indices(self, epoch, step):
        return self._permutations.of(epoch)[step * self._gbs : (step + 1) * self._gbs]

    def _batch(self, step):
        if self._scheduling is None:
            options = {"plan": self._plan, "method": self._method, "seed": self._seed, "program": True}
            if self._profile is not None:
                options["profile"] = self._profile
            delays = self._window > 1
            if delays:
                options["delay_outliers"] = self._window
            bins = self._plan["microbatches"] * self._plan["llm"]["dp"]
            windows = self._window_of if delays else None
            self._scheduling = Scheduling(options, self._described, self._patience, self.log, bins, windows)
        following = (self.epoch, step + 1) if step + 1 < len(self) else None
        answer = self._scheduling.answer_of(self.epoch, step, following)
        program = answer.pop("program", None)
        if program is None:
            raise InputError(f"epoch {self.epoch}, step {step}: {answer['reason']}")
        indices = self._indices(self.epoch, step)
        if "drawn_at" in answer:
            indices = [self._indices(*place)[index] for place, index in answer["drawn_at"]]
            for place, _ in answer.pop("drawn_at"):
                self._moves.add(place[1], step)
        if self._keep:
            self._scheduled.append((indices, answer))
        return Batch(self.epoch, step, indices, {**program, "order": self._plan["schedule"]})

    def _window_of(self, place):
        epoch, step = place
        return [(epoch, other) for other in window_of(step, len(self), self._window)]

    def _described(self, epoch, step):
        samples = [self._sample(i) for i in self._indices(epoch, step)]
        return {"samples": samples, "stream": epoch * len(self) + step}

    def _sample(self, i):
        sample = read_sample(f"samples: sample {i}: ", self._samples[i])
        return {**sample, "id": sample["id"] or str(i)}


def _read(path):
    try:
        with open(path, encoding="utf-8") as file:
            plan = json.load(file)
    except (OSError, ValueError) as error:
        raise InputError(f"plan: {path}: {error}") from None
    if not isinstance(plan, dict) or plan.get("schema") != "dflop.plan":
        raise InputError(f"plan: {path}: expected a file of 'dflop plan --out'")
    return plan
