"""A Walk runs one rank's instructions: which rows go where, how long they are kept, and which sums run when.

Its `work` defines what rows, modules and gradients are, so a Walk does not need torch. The work of an Executor computes
with torch over torch.distributed, the work of a test with plain numbers.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Protocol

from dflop.torch._program import BACKWARDS, RECEIVES, SENDS, Instruction, Part, Program


class Unit:
    """The data that a rank keeps for one microbatch at one stage, from its forward pass to its backward pass."""

    __slots__ = ("x", "tape", "output", "y_grad", "x_grad", "split")

    def __init__(self) -> None:
        self.x: Any = None  # the input; None if there is none
        self.tape: Any = None  # data of the forward pass that the backward pass needs; None if nothing was computed
        self.output: Any = None  # the values of the output, until everything that needs them has them
        self.y_grad: Any = None
        self.x_grad: Any = None
        self.split: Any = None  # data of the input part that the weight part needs


class Work(Protocol):
    """The operations of a Walk. Rows are anything that supports reading and assigning slices, such as tensors and
    lists."""

    def begin(self, instruction: Instruction) -> None:
        """Called with each instruction before it runs."""

    def zeros(self, count: int, like: Any) -> Any:
        """Returns `count` rows of zeros, each with the form of the rows in `like`."""

    def send(self, instruction: Instruction, rows: Any) -> None:
        """Sends the rows of a message, without waiting."""

    def receive(self, instruction: Instruction) -> Any:
        """Returns the rows of a message."""

    def forward(self, instruction: Instruction, unit: Unit, part: Part) -> None:
        """Computes a Part with samples or pieces from unit.x. Sets unit.tape, and unit.output or, at the last stage,
        unit.y_grad."""

    def forward_nothing(self, instruction: Instruction) -> None:
        """Called for a forward pass without samples or pieces, such as in an encoder stage if a microbatch has no
        pictures."""

    def losses_are_known(self) -> None:
        """Called after the last forward pass of the last stage, on ranks that hold this stage."""

    def backward_input(self, instruction: Instruction, unit: Unit) -> None:
        """Sets unit.x_grad if there is an x, and unit.split if the weight part has to follow."""

    def backward(self, instruction: Instruction, unit: Unit) -> None:
        """Runs the weight part if unit.split is set, else a whole backward pass, which sets unit.x_grad if there is an
        x."""

    def reduce(self, instruction: Instruction) -> None:
        """Sums the gradients of a stage over its dp ranks."""

    def start_reduction(self, instruction: Instruction, buckets: int) -> None:
        """Begins one of `buckets` such sums, each over a part of the gradients."""

    def wait_for_reduction(self, instruction: Instruction) -> None:
        """Waits for the next of the begun sums."""

    def join_ends(self, instruction: Instruction) -> None:
        """Sums the gradients of the matrix that is the embedding on one rank and the head on another."""

    def find_norm(self, instruction: Instruction) -> None:
        """Computes the norm of all gradients, which are already reduced, and clips the gradients of this rank by it."""

    def optimizer_step(self, instruction: Instruction) -> None:
        """Runs the optimizer step of a stage, whose gradients are already reduced."""


class Walk:
    """One iteration on one rank; `group` is the index of the rank's group in the program."""

    def __init__(self, program: Program, group: int, work: Work) -> None:
        self._program = program
        self._own = program.groups[group]
        self._work = work
        self._units: dict[tuple[int, int], Unit] = {}
        self._last_stage = len(program.stages) - 1
        instructions = self._own.instructions
        self._losses_left = sum(i.op == "forward" and i.stage == self._last_stage for i in instructions)
        sent = [i for i in instructions if i.op in SENDS]
        self._sends_left = Counter(
            (i.stage, i.microbatch, program.messages[i.index].activations) for i in sent
        )
        self._buckets = Counter(i.stage for i in instructions if i.op == "all_reduce_start")
        self._rows: dict[tuple[int, int], int] = {}
        for i in sent:
            message = program.messages[i.index]
            if message.activations:
                key = i.stage, i.microbatch
                self._rows[key] = max(message.source_row + message.rows, self._rows.get(key, 0))

    def rows_needed(self, stage: int, microbatch: int) -> int | None:
        """Returns how many rows of a stage's output other ranks get; None if they get none."""
        return self._rows.get((stage, microbatch))

    def run(self) -> None:
        """Runs all instructions of the rank in order."""
        for instruction in self._own.instructions:
            self._work.begin(instruction)
            self._run(instruction)

    def _run(self, i: Instruction) -> None:
        if i.op in SENDS:
            self._send(i)
        elif i.op in RECEIVES:
            self._receive(i)
        elif i.op == "forward":
            self._forward(i)
        elif i.op in BACKWARDS:
            self._backward(i)
        elif i.op == "optimizer_step":
            self._work.optimizer_step(i)
        else:
            self._sum(i)

    def _unit(self, stage: int, microbatch: int) -> Unit:
        return self._units.setdefault((stage, microbatch), Unit())

    def _send(self, i: Instruction) -> None:
        message = self._program.messages[i.index]
        unit = self._unit(i.stage, i.microbatch)
        rows = unit.output if message.activations else unit.x_grad
        self._work.send(i, rows[message.source_row : message.source_row + message.rows])
        key = (i.stage, i.microbatch, message.activations)
        self._sends_left[key] -= 1
        if self._sends_left[key] == 0:
            if message.activations:
                unit.output = None
            else:
                unit.x_grad = None

    def _receive(self, i: Instruction) -> None:
        message = self._program.messages[i.index]
        rows = self._work.receive(i)
        unit = self._unit(i.stage, i.microbatch)
        if message.rows == message.of:
            whole = rows
        else:
            whole = unit.x if message.activations else unit.y_grad
            if whole is None:
                whole = self._work.zeros(message.of, rows)
            whole[message.destination_row : message.destination_row + message.rows] = rows
        if message.activations:
            unit.x = whole
        else:
            unit.y_grad = whole

    def _forward(self, i: Instruction) -> None:
        unit = self._unit(i.stage, i.microbatch)
        before = self._units.get((i.stage - 1, i.microbatch))
        if before is not None:  # the previous stage is on this rank, too
            unit.x, before.output = before.output, None
        part = self._program.part(i.stage, i.microbatch, self._own.dp_rank)
        if part.samples or part.pieces:
            self._work.forward(i, unit, part)
        else:
            self._work.forward_nothing(i)
        if i.stage == self._last_stage:
            self._losses_left -= 1
            if self._losses_left == 0:
                self._work.losses_are_known()

    def _backward(self, i: Instruction) -> None:
        unit = self._unit(i.stage, i.microbatch)
        after = self._units.get((i.stage + 1, i.microbatch))
        if after is not None and after.x_grad is not None:  # the next stage is on this rank, too
            unit.y_grad, after.x_grad = after.x_grad, None
        if i.op == "backward_input":
            self._work.backward_input(i, unit)
        else:
            self._work.backward(i, unit)
            unit.tape = unit.y_grad = unit.split = None

    def _sum(self, i: Instruction) -> None:
        what = self._program.collectives[i.index].sum
        if what == "norm":
            self._work.find_norm(i)
        elif what == "joined_ends":
            self._work.join_ends(i)
        elif i.op == "all_reduce":
            self._work.reduce(i)
        elif i.op == "all_reduce_start":
            self._work.start_reduction(i, self._buckets[i.stage])
        else:
            self._work.wait_for_reduction(i)
