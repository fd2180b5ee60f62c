"""A PlanSampler draws global batches and has each one scheduled for a plan. Each comes with its program."""

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
    dflop.torch, with the name of the plan's "order". In the program, a sample's number is its position in `indices`."""

    epoch: int
    step: int
    indices: list[int]
    program: dict[str, Any]


class PlanSampler:
    """Returns the global batches of a plan, each as a Batch with its program.

        sampler = dflop.PlanSampler("plan.json", samples)
        executor = dflop.torch.Executor("plan.json", stages, inputs=inputs, loss=loss)
        for batch in executor.batches(sampler):
            executor.step(batch.program, batch)

    plan      a path, or the contents of the file
    samples   of the data set, each as returned by make_sample()
    method    as `dflop schedule --scheduler`
    profile   a file from `dflop profile` or dflop.torch.profile() with the times that schedules use
    patience  seconds that the loop waits for a schedule
    delay_outliers  number of batches that are regrouped together, so that samples with a cost above the mean of a bin
              run at the same time. At the end of an epoch, how far samples have moved is added to `log`. 0: none
    keep      keeps all schedules in memory, a few kilobytes per batch, for write_schedule()

    A sampler on one rank is enough: Executor.batches() passes its batches to all ranks. If several ranks use samplers,
    these need the same arguments. They then return the same batches, because answers do not depend on the machine. A
    batch is scheduled in a child process while the previous one trains. A child that dies is restarted. If that fails,
    ServerError is raised, because a program cannot be made without a child.

    `state_dict` and `load_state_dict` resume exactly. A state that was saved after an epoch continues with the next
    one. Each `iter` starts from the beginning, except for the first one after load_state_dict. Samples that do not fill
    a global batch are left out of an epoch; each epoch leaves out different ones.
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
        self._moves = Moves()  # in the current epoch
        self._patience = finite_number("patience", patience, LEAST_WAIT_S, MOST_WAIT_S)
        self._permutations = Permutations(len(samples), self._seed, self._shuffle)
        self._scheduling = None
        self._keep = truth("keep", keep)
        self._scheduled: list[Any] = []  # (indices, answer) of the batches kept for write_schedule()
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
        """Sets the epoch of the next pass. Each epoch has its own permutation.

        The epoch of a loaded state continues at the position of the state. If that is the end of the epoch, passes stay
        empty until another epoch is named. Any other epoch begins at its start, with a warning if this discards a
        state.
        """
        self._position.set_epoch(epoch)

    @property
    def epoch(self) -> int:
        """The epoch of the current or last pass; after load_state_dict(), the epoch of the next pass."""
        return self._position.epoch

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the sampler in a form that JSON can store: the epoch, and the number of its completed
        batches. After the last batch, all of them count as completed until another pass begins."""
        return self._position.state(self._shape())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues at the position of the state: in its epoch, or with the next epoch if all of it is done. Raises
        InputError for an invalid state, or a state of another run."""
        self._position.load(*read_state(state, self._shape(), len(self)))

    def write_schedule(self, path: str | os.PathLike[str]) -> None:
        """Writes the schedule of all batches returned since the sampler was made, for `dflop simulate`."""
        if not self._scheduled:
            why = "at least one batch that was given" if self._keep else "a PlanSampler made with keep=True"
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
        return {**self.__dict__, "_scheduling": None}  # a copy in another process has its own child

    def close(self) -> None:
        """Ends the child process. If the sampler is used again, it restarts the child."""
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
