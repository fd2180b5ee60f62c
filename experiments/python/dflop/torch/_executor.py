"""An Executor runs the Program of an iteration on PyTorch: the same Program that the simulator and the C++ backend
run."""

from __future__ import annotations

import atexit
import hashlib
import itertools
import json
import math
import os
import threading
import traceback
import warnings
from contextlib import nullcontext
from typing import Any, Callable, Iterator, Mapping, NamedTuple

import torch
import torch.distributed as dist

from dflop._errors import DflopError, InputError
from dflop._plan_sampler import Batch, PlanSampler
from dflop._server import default_server
from dflop.torch._board import Board, lost_peers
from dflop.torch._messenger import Messenger
from dflop.torch._program import RECEIVES, SENDS, Instruction, Part, Program, StageDescription
from dflop.torch._reduction import JoinedEnds, StageReduction
from dflop.torch._tie import Tie
from dflop.torch._version import require_split_backwards
from dflop.torch._walk import Walk

BUCKET_BYTES = 25 * 2**20
# The keys of a plan that name its maker, and the keys of a program that depend on its batch.
_NOT_COMPARED = frozenset(("made_by", "iteration", "groups", "messages", "bins", "pieces"))
_LEAVING_S = 10.0  # how long a process that ends after a failure waits for its communication to end


class Result(NamedTuple):
    """The result of a step, the same on all ranks."""

    loss: float
    """The mean loss over all trained tokens of the batch."""
    tokens: int
    """Their number."""
    norm: float | None
    """The norm of all gradients before they were clipped; None where the plan does not clip."""


class NonFiniteNorm(DflopError, ArithmeticError):
    """The norm of all gradients is NaN or infinite. No optimizer of any rank has stepped, and the next step can
    continue."""


class _OnAllRanks(Exception):
    """An error that occurs on all ranks, as each of them knows."""

    def __init__(self, error):
        super().__init__(str(error))
        self.error = error


class Executor:
    """Runs iterations of a plan on this rank's stage modules, over torch.distributed (gloo or NCCL).

    plan       the plan (a path, or the contents of the file), or the program of one of its iterations; the same on all
               ranks
    stages     a module by stage number; or stages(stage) -> module, which is called with a description of each stage of
               this rank: its index, encoder_layers, llm_layers, connector, embedding, head, and the numbers of its
               first layers in the whole model, first_encoder_layer and first_llm_layer
    inputs     inputs(part, batch) -> dict: keyword arguments of a stage's module for a Part of the batch
    loss       loss(output, part, batch) -> (sum, tokens): the summed loss of the last stage's output for a Part, a
               scalar tensor, and the number of tokens in the sum
    optimizer  optimizer(parameters) -> an optimizer of one stage; without it, step() adds to the existing gradients
    device     of modules and messages; default: the current GPU with NCCL, else the CPU
    clip_norm  the max norm of all gradients, for plans with clip_gradients: if it is exceeded, gradients are scaled
               down before the optimizer steps, as by torch.nn.utils.clip_grad_norm_; math.inf only computes the norm
    error_if_nonfinite  raises NonFiniteNorm on all ranks, before any optimizer steps, if that norm is NaN or infinite;
               False scales gradients by it and continues, as torch does by default
    tied       tied(module, stage) -> the parameter that is the embedding in the module of one stage and the head in the
               module of another, for plans of a model whose embedding and head are the same matrix (tied_embeddings) on
               two ranks
    modules_recompute  confirms that the modules checkpoint according to the plan's recomputation; without it, a warning
               asks for this

    A module is called as module(x, **inputs(part, batch)) and returns one tensor, whose first dimension is the rows of
    the Part's samples or pieces, packed. x has the rows from the previous stage. It is None if there are none: at the
    first stage, and at the LLM's first stage for a microbatch without encoder output. The program decides where rows
    go.

    The loss is the sum over all dp ranks and microbatches divided by the sum of all tokens, regardless of their
    distribution, and so are its gradients. At the start, all dp ranks get the weights of the first one. Activation
    checkpointing is up to the modules. Parameters without requires_grad stay unchanged.

    Trained parameters are f32, bf16 or f64: gradients are summed undivided, and divided by the number of tokens at the
    end, for which the range of f16 is too small. Without an `optimizer`, the caller does steps and zero_grad(), and
    also clipping, unless the plan clips. In that case, clipping comes before gradients are added to earlier steps'
    gradients.

    The modules and optimizers of this rank are in the dicts `modules` and `optimizers`, by stage number. `stages` has
    these numbers, and `program` is the plan's Program without a batch, with the `stages` and `groups` of all ranks.

    All ranks of torch.distributed make the executor and call step() together, and finally close(). If one fails, all
    raise RankFailed, which names the first to fail, and torch.distributed is shut down with all of its groups.
    """

    _made = 0

    def __init__(
        self,
        plan: str | os.PathLike[str] | Mapping[str, Any],
        stages: Callable[[StageDescription], torch.nn.Module] | Mapping[int, torch.nn.Module],
        *,
        inputs: Callable[[Part, Any], dict[str, Any]],
        loss: Callable[[torch.Tensor, Part, Any], tuple[torch.Tensor, int]],
        optimizer: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer] | None = None,
        device: torch.device | str | None = None,
        bucket_bytes: int = BUCKET_BYTES,
        clip_norm: float | None = None,
        error_if_nonfinite: bool = True,
        tied: Callable[[torch.nn.Module, StageDescription], torch.nn.Parameter] | None = None,
        modules_recompute: bool = False,
    ) -> None:
        if not dist.is_initialized():
            raise InputError("Executor: expected torch.distributed to be initialized: call init_process_group() first")
        self._rank = dist.get_rank()
        self._inputs = inputs
        self._loss = loss
        self._clip_norm = clip_norm
        self._error_if_nonfinite = error_if_nonfinite
        self._tied = tied
        self._device = torch.device(device) if device is not None else _default_device()
        self._at: str | None = None  # the current action of this rank, for messages
        self._steps = 0
        Executor._made += 1
        self._board = Board(f"{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}.{self._made}", self._rank)
        # Small sums and the layout are sent over the host, so that no GPU waits for them.
        self._control: Any = dist.new_group(backend="gloo")
        self._together(lambda: self._require_one_plan(_claim(plan)))
        self.program = Program(self._together(lambda: self._of_first_rank(lambda: _layout(plan, modules_recompute))))
        _require_runnable(self.program, dist.get_world_size(), clip_norm, tied)
        self._group = self.program.group_of(self._rank)
        self.stages = self.program.groups[self._group].stages
        self.modules: dict[int, torch.nn.Module] = {}
        self.optimizers: dict[int, torch.optim.Optimizer] = {}
        self._together(lambda: self._make(stages, optimizer, bucket_bytes))

    def _make(self, stages, optimizer, bucket_bytes):
        """Makes the modules, communication and optimizers of this rank's stages."""
        self._at = "making the modules"
        for stage in self.stages:
            self.modules[stage] = self._module(stages, stage)
        self._require_own_parameters()
        self._unsplit = self._stages_not_split()
        own_ends = self._own_ends()
        # All ranks make a group together. If the module of one rank failed, the others would wait until the timeout.
        self._require_like_modules()
        self._messenger = Messenger(self.program, self._group, self._device, self._wait_for_work)
        self._reductions = self._make_reductions(bucket_bytes)
        self._ends = self._make_joined_ends(own_ends)
        self._counted_once = self._parameters_of_norm()
        self._at = "making the optimizers"
        self._optimizes = optimizer is not None
        self._known = {parameter for stage in self.stages for parameter in self._trained(stage)}
        for stage in self.stages:
            if optimizer is not None and self._trained(stage):
                self.optimizers[stage] = optimizer(self._trained(stage))
        self._wait_for_all()

    def _wait_for_all(self):
        self._board.wait(lambda: dist.barrier(group=self._control))

    def _wait_for_work(self, work, *ranks):
        """Waits for communication with ranks. With NCCL the current stream waits, and the host continues."""
        if self._device.type == "cpu":
            self._board.wait(work.wait, *ranks)
        else:
            with lost_peers(*ranks):
                work.wait()

    def batches(self, sampler: PlanSampler | None) -> Iterator[Batch]:
        """Returns the batches of the first rank's PlanSampler on all ranks, so that one process schedules for all.

        The samplers of other ranks are not used, and may be None. They follow the first one, so that their state is the
        same. Errors of the first sampler are raised on all ranks.
        """
        iterator = None if sampler is None else iter(sampler)
        follows = sampler if self._rank > 0 and isinstance(sampler, PlanSampler) else None

        def draw():
            if iterator is None:
                raise InputError("batches: expected a PlanSampler on the first rank, found None")
            return next(iterator, None)

        while True:
            self._at = f"the batch of step {self._steps}"
            drawn = self._together(lambda: self._of_first_rank(draw))
            if drawn is None:
                if follows is not None:
                    follows._position.end()
                return
            if follows is not None:
                follows._position.follow(drawn.epoch, drawn.step + 1)
            yield drawn

    def step(self, program: Program | dict[str, Any], batch: Any) -> Result:
        """Runs one iteration, and returns its Result. `batch` is passed to inputs() and loss().

        Raises InputError if the program belongs to another plan (other ranks, stages, sums, microbatches, or another
        order if both specify it), and RankFailed if any rank failed.
        """
        if not isinstance(program, Program):
            program = Program(program)
        self._require_own_plan(program)
        # Copies are needed because the version counters of BatchNorm's statistics do not change.
        buffers = {key: buffer.clone() for key, buffer in self._own_buffers()} if self._steps == 0 else {}
        try:
            result = self._together(lambda: _Step(self, program, batch).run())
        except NonFiniteNorm:
            self._did_step()
            raise
        self._did_step()
        if buffers:
            self._warn_of_buffers(buffers)
        return result

    def _did_step(self):
        self._steps += 1
        self._board.did_step()

    def _own_buffers(self):
        """Returns the buffers of stages with several dp ranks of which this rank is the first, with (stage, name)."""
        stages = [stage for stage in self._reductions if self._rank == self._first_rank(stage)]
        return [((stage, name), buffer) for stage in stages for name, buffer in self.modules[stage].named_buffers()]

    def _warn_of_buffers(self, before):
        """Warns about buffers that a step has changed, because each dp rank changes them by its own samples."""
        after = self._own_buffers()
        changed = [key for key, buffer in after if key in before and not torch.equal(before[key], buffer)]
        for stage in self.stages:
            names = [name for of_stage, name in changed if of_stage == stage]
            if names:
                warnings.warn(
                    f"stages: forwards change buffers of stage {stage} ({', '.join(names)}), as BatchNorm does: each "
                    "dp rank changes them with its own microbatches and they are not summed, so the dp ranks differ; "
                    "norms without running statistics, such as LayerNorm or GroupNorm, have no such buffers",
                    RuntimeWarning,
                    stacklevel=3,
                )

    def _first_rank(self, stage):
        return min(group.rank for group in self.program.groups if stage in group.stages)

    def close(self) -> None:
        """Ends the communication of this executor, not torch.distributed. All ranks call it, after a whole step."""
        if self._control is None:
            return
        self._board.leave()
        self._messenger.close()
        for reduction in [*self._reductions.values(), *self._ends.values()]:
            reduction.close()
        dist.destroy_process_group(self._control)
        self._messenger = self._control = None
        self._reductions = self._ends = {}

    def _together(self, run):
        """Returns the result of run(); raises RankFailed if this rank fails or learns that another one did."""
        if self._control is None:
            raise InputError("Executor: it was closed, or a rank failed; make a new executor")
        try:
            return run()
        except _OnAllRanks as error:
            raise error.error
        except Exception as error:
            failure = self._board.report(error, self._at)
            self._leave(error)
            raise failure from error

    def _leave(self, error):
        """Ends this rank's communication, so that other ranks learn that they wait for it in vain.

        A connection closes when nothing refers to its group any more, including the frames of the error's traceback.
        """
        traceback.clear_frames(error.__traceback__)
        self._messenger = self._control = None
        self._reductions = self._ends = {}
        # A group with sums in flight waits for them, and thus for other ranks; this rank need not wait.
        leaving = threading.Thread(target=dist.destroy_process_group, daemon=True)
        leaving.start()
        atexit.register(_end, leaving, self._board)

    def _of_first_rank(self, make):
        """Returns the result of make() on the first rank to all ranks; raises its DflopError on all."""
        answer = [None]
        if self._rank == 0:
            try:
                answer = [(True, make())]
            except DflopError as error:
                answer = [(False, error)]
        self._board.wait(lambda: dist.broadcast_object_list(answer, src=0, group=self._control), 0)
        succeeded, value = answer[0]
        if not succeeded:
            raise _OnAllRanks(value)
        return value

    def _module(self, stages, stage):
        module = stages(self.program.stages[stage]) if callable(stages) else stages[stage]
        if not isinstance(module, torch.nn.Module):
            raise InputError(f"stages: expected a torch.nn.Module for stage {stage}, found {type(module).__name__}")
        for name, parameter in module.named_parameters():
            if parameter.requires_grad and parameter.dtype == torch.float16:
                raise InputError(f"stages: expected f32, bf16 or f64 to train, found f16: {name} of stage {stage}")
        return module.to(self._device)

    def _make_reductions(self, bucket_bytes):
        """Makes the dp groups of all stages, in the same order on all ranks, and copies weights to all dp ranks."""
        reductions = {}
        for stage in range(len(self.program.stages)):
            ranks = sorted(group.rank for group in self.program.groups if stage in group.stages)
            if len(ranks) == 1:
                continue
            group = dist.new_group(ranks)
            if self._rank in ranks:
                module = self.modules[stage]
                with torch.no_grad():
                    for tensor in [*module.parameters(), *module.buffers()]:
                        with lost_peers(*ranks):
                            copied = dist.broadcast(tensor, src=ranks[0], group=group, async_op=True)
                        self._wait_for_work(copied, *ranks)
                reductions[stage] = StageReduction(list(module.parameters()), group, bucket_bytes, self._wait_for_work)
        return reductions

    def _own_ends(self):
        """Returns (stage, matrix) of the tied ends of the model that this rank has, by collective."""
        ends = {}
        for i in self.program.groups[self._group].instructions:
            if i.op == "all_reduce" and self.program.collectives[i.index].sum == "joined_ends":
                matrix = self._tied(self.modules[i.stage], self.program.stages[i.stage])
                if not any(matrix is parameter for parameter in self.modules[i.stage].parameters()):
                    found = type(matrix).__name__
                    raise InputError(f"tied: expected a parameter of the module of stage {i.stage}, found {found}")
                ends[i.index] = (i.stage, matrix)
        return ends

    def _make_joined_ends(self, own):
        """Makes the pairs of ranks whose embedding and head are the same matrix, and copies the embedding to the
        head."""
        ends = {}
        for index, collective in enumerate(self.program.collectives):
            if collective.sum == "joined_ends":
                ranks = [self.program.groups[group].rank for group in collective.groups]
                pair = dist.new_group(ranks)
                if index in own:
                    ends[index] = JoinedEnds(*own[index], pair, ranks, self._wait_for_work)
        self._require_like_ends({index: tuple(end.matrix.shape) for index, end in ends.items()})
        for end in ends.values():
            end.copy_first()
        return ends

    def _require_like_ends(self, shapes):
        if not any(collective.sum == "joined_ends" for collective in self.program.collectives):
            return
        everywhere = self._gathered(shapes)
        for index, shape in shapes.items():
            for other in everywhere:
                if other.get(index, shape) != shape:
                    raise InputError(f"tied: expected one shape at both ends, found {shape} and {other[index]}")

    def _parameters_of_norm(self):
        """Returns the parameters that this rank counts in the norm of all gradients. Of copies, which exist on dp ranks
        and at both ends of the model, only the first rank's counts."""
        heads = [end.matrix for end in self._ends.values() if not self.program.stages[end.stage].embedding]
        counted = []
        for stage in self.stages:
            if self._rank == self._first_rank(stage):
                parameters = self.modules[stage].parameters()
                counted += [p for p in parameters if not any(p is head for head in heads)]
        return counted

    def _trained(self, stage):
        return [p for p in self.modules[stage].parameters() if p.requires_grad]

    def _require_optimized(self):
        """Rejects unfrozen parameters without an optimizer, because they would stay unchanged."""
        for stage, module in self.modules.items() if self._optimizes else ():
            unknown = [(name, p) for name, p in module.named_parameters() if p.requires_grad and p not in self._known]
            if unknown:
                groups = self.optimizers[stage].param_groups if stage in self.optimizers else []
                self._known.update(parameter for group in groups for parameter in group["params"])
            for name, parameter in unknown:
                if parameter not in self._known:
                    raise InputError(
                        f"stages: {name} of stage {stage} was frozen when the Executor was made and now trains, but no "
                        "optimizer has it: give it to an optimizer (executor.optimizers[stage].add_param_group), or "
                        "make the Executor when it trains"
                    )

    def _stages_not_split(self):
        """Returns the stages whose backward passes the order splits but torch cannot, because a parameter has several
        names in them. Their backward passes run whole, where the order has the input part."""
        split = {i.stage for i in self.program.groups[self._group].instructions if i.op == "backward_input"}
        found = set()
        for stage, module in self.modules.items():
            names = {}
            for name, parameter in module.named_parameters(remove_duplicate=False):
                if parameter.requires_grad:
                    names.setdefault(parameter, []).append(name)
            shared = next((several for several in names.values() if len(several) > 1), None)
            if stage in split and shared:
                found.add(stage)
                warnings.warn(
                    f"stages: {' and '.join(shared)} of stage {stage} are one parameter, for which torch cannot split a "
                    "backward: backwards of the stage run whole, and a step may take longer than planned",
                    stacklevel=6,
                )
        return found

    def _require_own_parameters(self):
        """Rejects modules of two stages that share a parameter, because each stage's gradients are summed and divided
        separately."""
        owners = {}
        for stage, module in self.modules.items():
            for name, parameter in module.named_parameters():
                owner = owners.setdefault(parameter, stage)
                if owner != stage:
                    raise InputError(
                        f"stages: expected modules that share no parameter, found {name} of stage {stage} also in "
                        f"stage {owner}: it can be shared only in a plan that has both uses in one stage, or on two "
                        "ranks (tied=)"
                    )

    def _require_like_modules(self):
        """Waits until all ranks have their modules, and rejects a stage whose modules differ between dp ranks.

        Weights are copied and gradients summed one by one. With different sizes gloo would abort; in a different order
        they would be mixed up.
        """
        described = {stage: _described(module) for stage, module in self.modules.items()}
        digests = {stage: hashlib.sha256(repr(rows).encode()).digest() for stage, rows in described.items()}
        everywhere = self._gathered(digests)
        for stage in range(len(self.program.stages)):
            ranks = sorted(group.rank for group in self.program.groups if stage in group.stages)
            other = next((r for r in ranks if everywhere[r][stage] != everywhere[ranks[0]][stage]), None)
            if other is not None:
                rows = self._gathered(described.get(stage))
                raise _OnAllRanks(InputError(_difference(stage, ranks[0], rows[ranks[0]], other, rows[other])))

    def _require_one_plan(self, claim):
        """Rejects ranks whose plans differ or are missing, because all run the plan of the first rank."""
        everywhere = self._gathered(claim)
        own, reason = everywhere[0]
        if reason is not None:
            return  # the command reports the error in the plan
        for rank, (other, reason) in enumerate(everywhere):
            if reason is not None:
                raise _OnAllRanks(
                    InputError(f"plan: expected the plan of rank 0 on all ranks, found on rank {rank}: {reason}")
                )
            key = next((key for key in {**own, **other} if own.get(key) != other.get(key)), None)
            if key is not None:
                same = [r for r, (o, _) in enumerate(everywhere) if o is not None and o.get(key) == other.get(key)]
                found = f"{own.get(key, 'none')} on rank 0 and {other.get(key, 'none')} on {_ranks(same)}"
                raise _OnAllRanks(InputError(f"plan: {key}: expected one plan on all ranks, found {found}"))

    def _gathered(self, value):
        """Returns the values of all ranks, by rank."""
        everywhere = [None] * dist.get_world_size()
        self._board.wait(lambda: dist.all_gather_object(everywhere, value, group=self._control))
        return everywhere

    def _require_own_plan(self, program):
        own = [(group.rank, group.dp_rank, group.stages) for group in self.program.groups]
        other = [(group.rank, group.dp_rank, group.stages) for group in program.groups]
        if own != other or self.program.stages != program.stages or self.program.sums != program.sums:
            raise InputError(
                "program: expected a program of the executor's plan, found one with different ranks, stages or sums"
            )
        orders, counts = (self.program.order, program.order), (self.program.microbatches, program.microbatches)
        for what, (own, other) in (("order", orders), ("number of microbatches", counts)):
            if None not in (own, other) and own != other:
                raise InputError(
                    f"program: expected a program of the executor's plan, whose {what} is {own}, found one of a plan "
                    f"whose {what} is {other}: give the PlanSampler the executor's plan"
                )


def _claim(plan):
    """Returns the description of a rank's plan or program, by key, and None; or None and the reason why it has none.
    Keys that differ from batch to batch are left out."""
    try:
        plan = _read(plan)
    except (OSError, ValueError) as error:
        return None, f"{os.fspath(plan)}: {getattr(error, 'strerror', None) or error}"
    texts = {key: json.dumps(value, sort_keys=True) for key, value in plan.items() if key not in _NOT_COMPARED}
    return {key: text if len(text) <= 80 else _hashed(text) for key, text in texts.items()}, None


def _hashed(text):
    return f"one with the hash {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _ranks(numbers):
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _described(module):
    """Returns (name, description) of all parameters and buffers of a module, in the order in which they are summed."""
    parameters = [
        (name, f"{'a trained' if p.requires_grad else 'a frozen'} {p.dtype} of shape {tuple(p.shape)}")
        for name, p in module.named_parameters()
    ]
    return parameters + [(name, f"a buffer {b.dtype} of shape {tuple(b.shape)}") for name, b in module.named_buffers()]


def _difference(stage, rank, rows, other, other_rows):
    """Returns a message about the first parameter in which two dp ranks of a stage differ."""
    pairs = itertools.zip_longest(rows, other_rows, fillvalue=("nothing more", ""))
    place, (own, found) = next((k, pair) for k, pair in enumerate(pairs) if pair[0] != pair[1])
    if own[0] == found[0]:
        says = f"{own[0]} {own[1]} on rank {rank}, found {found[1]} on rank {other}"
    else:
        says = f"{own[0]} as number {place} on rank {rank}, found {found[0]} on rank {other}"
    return f"stages: expected the same parameters of stage {stage} in the same order on all of its dp ranks: {says}"


def _require_runnable(program, ranks, clip_norm, tied):
    """Raises if a plan requires something that the Executor does not support, or for which an argument is missing."""
    if program.layout == "shared":
        raise InputError(
            "Executor: expected a plan whose ranks have their own GPUs, found a shared plan: dflop.plan(..., "
            "no_shared=True) excludes such plans"
        )
    if program.ranks != ranks:
        raise InputError(
            f"Executor: expected the {program.ranks} ranks of the plan, found a process group of {ranks}"
        )
    if any(i.op == "backward_input" for group in program.groups for i in group.instructions):
        require_split_backwards("Executor: the plan's order splits backwards, which needs")
    if clip_norm is not None and not (isinstance(clip_norm, (int, float)) and clip_norm > 0):
        raise InputError(f"clip_norm: expected a number above 0 (math.inf clips nothing), found {clip_norm!r}")
    if "norm" in program.sums and clip_norm is None:
        raise InputError(
            "clip_norm: expected the max norm of gradients, because the plan has clip_gradients, found none: "
            "Executor(..., clip_norm=1.0); math.inf only computes the norm, and plans without clip_gradients need no "
            "clip_norm"
        )
    if "norm" not in program.sums and clip_norm is not None:
        raise InputError(
            f"clip_norm: expected a plan with clip_gradients, whose program has the norm's sum, found one without: "
            "dflop.plan(..., clip_gradients=True)"
        )
    if "joined_ends" in program.sums and tied is None:
        raise InputError(
            "tied: expected a function tied(module, stage) that returns the matrix shared by embedding and head, "
            "because the plan's model has tied_embeddings and the plan has them on two ranks, found none"
        )
    embedding = next((stage.index for stage in program.stages if stage.embedding), -1)
    if tied is not None and "joined_ends" not in program.sums and embedding != len(program.stages) - 1:
        raise InputError(
            "tied: expected a plan that sums embedding and head, or has both in one stage, found one with stages "
            f"{embedding} and {len(program.stages) - 1} that does neither: the model needs tied_embeddings, and the "
            "plan an order with the ends on two ranks"
        )


def _end(leaving, board):
    """Delays the end of the process until a failed rank's communication has ended properly."""
    leaving.join(_LEAVING_S)
    board.linger()
    board.stop_waiting()


def _default_device():
    # Without the name of a backend, torch uses NCCL for GPUs and gloo for everything else.
    if "cuda:nccl" in dist.get_backend_config() and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _layout(plan, modules_recompute):
    """Returns a program with the ranks and stages of a plan."""
    if isinstance(plan, dict) and "groups" in plan:
        return plan
    plan = plan if isinstance(plan, dict) else os.fspath(plan)
    opened = default_server().request("open", {"plan": plan, "program": True}, 60)
    default_server().request("close", {"session": opened["session"]}, 60)
    plan = _read(plan)
    _note_memory(plan, opened["program"], modules_recompute)
    return {**opened["program"], "order": plan["schedule"]}


def _read(plan):
    """Returns the contents of a plan's file, or the contents that were given instead."""
    if isinstance(plan, dict):
        return plan
    with open(os.fspath(plan), encoding="utf-8") as file:
        plan = json.load(file)
    if not isinstance(plan, dict):
        raise ValueError("expected a file of 'dflop plan --out'")
    return plan


def _note_memory(plan, program, modules_recompute):
    """Warns about a plan whose memory assumes something that the Executor does not do: each dp rank has the whole
    optimizer states, and keeps everything that its modules keep."""
    if plan["zero1"] and any(len(collective["groups"]) > 1 for collective in program["collectives"]):
        warnings.warn(
            "plan: zero1 splits optimizer states over dp ranks, but with the Executor each dp rank keeps them whole, "
            "so it needs more memory than planned (dflop.plan(..., zero1=False) plans for whole states)",
            RuntimeWarning,
            stacklevel=2,
        )
    recomputation = plan.get("recomputation", "none")
    if recomputation != "none" and not modules_recompute:
        warnings.warn(
            f"plan: its recomputation is {recomputation}, which the Executor leaves to the modules: unless they call "
            "torch.utils.checkpoint, memory and time differ from the plan. Pass modules_recompute=True if they do, "
            "or plan without recomputation: dflop.plan(..., recompute='none')",
            RuntimeWarning,
            stacklevel=2,
        )


class _Step:
    """One iteration on one rank: the Work of a Walk that uses torch."""

    def __init__(self, executor, program, batch):
        self._executor = executor
        self._program = program
        self._batch = batch
        self._walk = Walk(program, executor._group, self)
        self._messenger = executor._messenger
        self._last_stage = len(program.stages) - 1
        self._loss = torch.zeros((), dtype=torch.float64, device=executor._device)
        self._tokens = 0
        self._norm = None  # norm of all gradients, divided by the number of tokens
        self._scale = None  # factor on the gradients, if the plan clips
        # By stage: (parameter, gradient). They are set aside, because they are already reduced and divided.
        self._earlier = {}

    def run(self):
        executor = self._executor
        executor._at = f"the begin of step {executor._steps}"
        executor._require_optimized()
        for stage, module in executor.modules.items():
            if not executor._optimizes:
                self._earlier[stage] = [(p, p.grad) for p in module.parameters() if p.grad is not None]
            module.zero_grad(set_to_none=True)
        if not executor._board.agree(executor._steps, self._program.fingerprint):
            raise InputError(
                "program: expected the program of the other ranks, found one of other samples or microbatches"
            )
        self._messenger.begin(self._program)
        self._walk.run()
        executor._at = f"the end of step {executor._steps}"
        self._messenger.finish()
        tokens = self._counted()
        loss = self._loss.cpu()
        executor._board.wait(lambda: dist.all_reduce(loss, group=executor._control))
        return Result(loss.item() / tokens, tokens, None if self._norm is None else self._norm.item())

    def begin(self, i: Instruction) -> None:
        self._executor._at = _describe(i, self._executor._steps)

    def _range(self, i):
        """Returns a context that names its contents for a profiler, if one is active."""
        if not torch.autograd._profiler_enabled():
            return nullcontext()
        return torch.profiler.record_function(self._range_name(i))

    def _range_name(self, i):
        if i.op in SENDS or i.op in RECEIVES:
            message = self._program.messages[i.index]
            peer = message.destination if i.op in SENDS else message.source
            kind = ("send" if i.op in SENDS else "receive") + ("_forward" if message.activations else "_backward")
            rank = self._program.groups[peer].rank
            return f"dflop:{kind} stage={i.stage} mb={i.microbatch} peer={rank} msg={i.index}"
        name = f"dflop:{i.op} stage={i.stage}"
        if i.index >= 0 and self._program.collectives[i.index].sum != "gradients":
            return f"{name} msg={i.index}"  # it involves stages of several ranks
        return name if i.microbatch < 0 else f"{name} mb={i.microbatch}"

    # Messages.

    def zeros(self, count, like):
        return like.new_zeros((count, *like.shape[1:]))

    def send(self, i, rows):
        with self._range(i):
            self._messenger.send(i.index, rows)

    def receive(self, i):
        with self._range(i):
            rows = self._messenger.receive(i.index)
        self._messenger.post_ahead(i.index)  # outside the range, which covers only this message
        return rows

    # Compute.

    def forward(self, i, unit, part):
        arguments = self._executor._inputs(part, self._batch)
        with self._range(i):
            self._compute(unit, part, arguments)

    def forward_nothing(self, i):
        with self._range(i):  # so that a recording has every instruction
            pass

    def _compute(self, unit, part, arguments):
        if unit.x is not None:
            unit.x.requires_grad_()
        y = self._executor.modules[part.stage](unit.x, **arguments)
        if not isinstance(y, torch.Tensor):
            raise InputError(
                f"stages: expected a tensor from the module of stage {part.stage}, found {type(y).__name__}"
            )
        self._require_rows(y, part)
        if part.stage == self._last_stage:
            y = self._add_loss(y, part)
            unit.y_grad = torch.ones_like(y)
        else:
            unit.output = y.detach()
        if y.requires_grad:
            if unit.x is not None:
                y = Tie.apply(y, unit.x, False)
            # The edge keeps alive what the backward pass reads, which may not include the output.
            unit.tape = torch.autograd.graph.get_gradient_edge(y)

    def _require_rows(self, output, part):
        rows = self._walk.rows_needed(part.stage, part.microbatch)
        if rows is not None and (output.dim() == 0 or len(output) != rows):
            raise InputError(
                f"stages: expected {rows} rows from the module of stage {part.stage}, as in the program, found shape "
                f"{tuple(output.shape)}"
            )

    def _add_loss(self, output, part):
        executor, at = self._executor, self._executor._at
        executor._at = f"step {executor._steps}, loss of microbatch {part.microbatch}"
        returned = executor._loss(output, part, self._batch)
        if not isinstance(returned, (tuple, list)) or len(returned) != 2:
            found = f"{len(returned)} values" if isinstance(returned, (tuple, list)) else type(returned).__name__
            raise InputError(f"loss: expected a function that returns (sum, tokens), found {found}")
        total, tokens = returned
        if not isinstance(total, torch.Tensor) or total.dim() != 0:
            found = f"shape {tuple(total.shape)}" if isinstance(total, torch.Tensor) else repr(total)
            raise InputError(f"loss: expected the sum as a scalar tensor, found {found}")
        if output.requires_grad and not total.requires_grad and _whole_tokens(tokens) > 0:
            raise InputError("loss: expected a sum that depends on the output, found one without a backward")
        self._loss += total.detach()
        self._tokens += _whole_tokens(tokens)
        executor._at = at
        return total

    def losses_are_known(self):
        last = self._last_stage
        ranks = sum(last in group.stages for group in self._program.groups)
        self._executor._board.add(self._executor._steps, self._tokens, ranks)

    def backward_input(self, i, unit):
        with self._range(i):
            # Without an input there is nothing to send, and the weight part does everything.
            if unit.tape is not None and unit.y_grad is not None and unit.x is not None:
                if i.stage in self._executor._unsplit:
                    torch.autograd.backward([unit.tape], [unit.y_grad])
                    unit.tape = None
                else:
                    from torch.distributed.pipelining._backward import stage_backward_input

                    weights = self._executor._trained(i.stage)
                    _, unit.split = stage_backward_input([unit.tape], [unit.y_grad], [unit.x], iter(weights))
            _take_x_grad(unit)

    def backward(self, i, unit):
        reduction = self._executor._reductions.get(i.stage)
        with self._range(i):
            if unit.split is not None:
                self._backward_weight(i.stage, unit.split)
            else:
                if reduction is not None:
                    reduction.arm()
                if unit.tape is not None and unit.y_grad is not None:
                    torch.autograd.backward([unit.tape], [unit.y_grad])
                _take_x_grad(unit)
        if reduction is not None:
            reduction.end_backward()

    def _backward_weight(self, stage, split):
        from torch.distributed.pipelining._backward import stage_backward_weight

        try:
            stage_backward_weight(iter(self._executor._trained(stage)), split)
        except RuntimeError as error:
            if "backward through the graph a second time" not in str(error):
                raise
            raise InputError(
                f"stages: the module of stage {stage} uses a parameter more than once, and torch cannot split such a "
                "backward: expected an order of whole backwards (1f1b, gpipe, interleaved, eager-1f1b), or a module "
                "that has the parameter under two names"
            ) from error

    # The end of the step.

    def reduce(self, i):
        with self._range(i):
            self._executor._reductions[i.stage].reduce()

    def start_reduction(self, i, buckets):
        with self._range(i):
            self._executor._reductions[i.stage].start(buckets)

    def wait_for_reduction(self, i):
        with self._range(i):
            self._executor._reductions[i.stage].wait()

    def join_ends(self, i):
        with self._range(i):
            self._executor._ends[i.index].sum()

    def find_norm(self, i):
        tokens = self._counted()
        with self._range(i):
            squares = torch.zeros((), dtype=torch.float64, device=self._executor._device)
            for parameter in self._executor._counted_once:
                if parameter.grad is not None:
                    wide = torch.promote_types(parameter.grad.dtype, torch.float32)
                    squares += torch.linalg.vector_norm(parameter.grad, dtype=wide).double().square()
            self._executor._wait_for_work(dist.all_reduce(squares, async_op=True))
            self._norm = squares.sqrt() / tokens
            if self._executor._error_if_nonfinite and not math.isfinite(self._norm.item()):
                self._messenger.finish()
                for stage in self._earlier:
                    self._executor.modules[stage].zero_grad(set_to_none=True)
                    self._add_earlier(stage)
                raise _OnAllRanks(
                    NonFiniteNorm(
                        f"step {self._executor._steps}: expected a finite norm of all gradients, found "
                        f"{self._norm.item()}; no optimizer has stepped (error_if_nonfinite=False goes on)"
                    )
                )
            self._scale = clip_scale(self._norm, self._executor._clip_norm)

    def optimizer_step(self, i):
        tokens = self._counted()
        with self._range(i):
            gradients = [p.grad for p in self._executor.modules[i.stage].parameters() if p.grad is not None]
            if gradients:
                torch._foreach_div_(gradients, tokens)
                if self._scale is not None:
                    torch._foreach_mul_(gradients, self._scale)
            optimizer = self._executor.optimizers.get(i.stage)
            if optimizer is not None:
                optimizer.step()
            self._add_earlier(i.stage)

    def _add_earlier(self, stage):
        """Returns the gradients of earlier steps to their parameters, and adds this step's gradients to them."""
        for parameter, earlier in self._earlier.get(stage, ()):
            if parameter.grad is not None:
                earlier.add_(parameter.grad)
            parameter.grad = earlier

    def _counted(self):
        """Returns the number of trained tokens of the whole batch, which is known long before the optimizer steps."""
        tokens = self._executor._board.sum(self._executor._steps)
        if tokens <= 0:
            raise InputError("loss: expected at least one token in the batch, found none")
        return tokens


def _whole_tokens(tokens):
    try:
        if int(tokens) == tokens and tokens >= 0:
            return int(tokens)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # not a number, or a tensor of several
        pass
    raise InputError(f"loss: expected a whole number of tokens, found {tokens!r}")


def clip_scale(norm, most):
    """Returns the factor that reduces gradients to a norm of at most `most`, as clip_grad_norm_() does."""
    return (most / (norm + 1e-6)).clamp(max=1.0)


def _take_x_grad(unit):
    if unit.x is not None:
        unit.x_grad = unit.x.grad if unit.x.grad is not None else torch.zeros_like(unit.x)
        unit.x = None


def _describe(i, step):
    what = f"{i.op} of stage {i.stage}"
    return f"step {step}, {what}" if i.microbatch < 0 else f"step {step}, {what}, microbatch {i.microbatch}"
