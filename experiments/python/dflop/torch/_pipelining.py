"""Stage and Schedule run a dflop order with torch.distributed.pipelining, over microbatches of any length.

torch.distributed.pipelining receives into buffers with the shape of microbatch 0, runs its own orders, and assigns
losses to the wrong microbatches if the last stage's forward passes are out of order. The classes here change these
three things and leave everything else to it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from typing import Any, Sequence

import torch

from dflop._errors import DflopError, InputError
from dflop.torch._tie import Tie
from dflop.torch._version import OLDEST_TORCH, is_old


def check_torch(version: str = torch.__version__) -> None:
    """Raises DflopError if torch is too old for Stage and Schedule."""
    if is_old(version):
        raise DflopError(
            f"dflop.torch.Stage and Schedule need torch {OLDEST_TORCH} or newer, whose torch.distributed.pipelining "
            f"takes inputs that are already split, found {version}: install a newer one, or use dflop.torch.Executor "
            "with an order of whole backwards"
        )


check_torch()

from torch.distributed.pipelining import PipelineStage  # noqa: E402
from torch.distributed.pipelining.schedules import (  # noqa: E402
    _Action,
    _ComputationType,
    _PipelineScheduleRuntime,
)

STEP = re.compile(r"([FBIW])(\d+)(?:\.(\d+))?")


def stage_steps(order):
    """Returns the steps of every pipeline rank, (stage, kind, microbatch); kinds are F, B, I and W.

    `order` is the path of a file of schema dflop.order (`dflop simulate --order-out`), the contents of such a file, or
    its lists of steps, whose chunks then go round-robin. Ranks without chunks whose neighbors have chunks, such as
    an encoder's ranks, come first. Raises InputError for an invalid order.
    """
    where = "order"
    if isinstance(order, (str, os.PathLike)):
        where = os.fspath(order)
        with open(order, encoding="utf-8") as file:
            order = json.load(file)
    if not isinstance(order, dict):
        order = {"schema": "dflop.order", "ranks": order}
    if order.get("schema") != "dflop.order":
        raise InputError(f"{where}: expected schema 'dflop.order', found {order.get('schema')!r}")
    ranks = [[_parsed(step, where, rank) for step in steps] for rank, steps in enumerate(order["ranks"])]
    placement = order.get("placement", "round-robin")
    if placement not in ("round-robin", "v"):
        raise InputError(f"{where}: key 'placement': expected 'round-robin' or 'v', found {placement!r}")
    chunks = 1 + max((chunk for steps in ranks for _, _, chunk in steps), default=0)
    encoders = 0
    if chunks > 1:
        encoders = next(rank for rank, steps in enumerate(ranks) if any(chunk for _, _, chunk in steps))
    width = len(ranks) - encoders

    def stage_of(rank, chunk):
        place = rank - encoders
        if place < 0:
            return rank
        reverse = placement == "v" and chunk % 2 == 1
        return encoders + chunk * width + (width - 1 - place if reverse else place)

    return [
        [(stage_of(rank, chunk), kind, microbatch) for kind, microbatch, chunk in steps]
        for rank, steps in enumerate(ranks)
    ]


def _parsed(step, where, rank):
    match = STEP.fullmatch(step) if isinstance(step, str) else None
    if match is None:
        in_bubbles = ": orders with an encoder in the bubbles need dflop.torch.Executor"
        raise InputError(
            f"{where}: rank {rank}: expected steps such as F3, B3, I3, W3 or F3.1, found {step!r}"
            + (in_bubbles if str(step).endswith(".e") else "")
        )
    return match[1], int(match[2]), int(match[3] or 0)


class Stage(PipelineStage):
    """A PipelineStage that receives each microbatch into a buffer with that microbatch's own shape."""

    def __init__(self, *args, **kwargs):
        self._received = None
        self._sent = None
        super().__init__(*args, **kwargs)
        self._anchor = torch.zeros((), device=self.device, requires_grad=True)

    def set_shapes(self, received=None, sent=None):
        """Sets the shapes that come from the previous stage (`received`) and go to the next one (`sent`).

        Each is a list by microbatch: the number of rows, which is dimension 0 of all tensors, with the other dimensions
        from microbatch 0; or a list of shapes, one for each tensor. None: all are as in microbatch 0. The shapes apply
        until the next call. Schedule.step(shapes=...) calls this for all its stages.
        """
        self._received = received
        self._sent = sent
        self._give_shapes()

    def _setup_forward_recv_info(self, num_microbatches, has_backward):
        super()._setup_forward_recv_info(num_microbatches, has_backward)
        self._give_shapes()

    def _setup_backward_recv_info(self, num_microbatches):
        super()._setup_backward_recv_info(num_microbatches)
        self._give_shapes()

    def _give_shapes(self):
        if not self.is_first:
            self._give(self.args_recv_info, self._received, self._stage_meta.inputs)
        self._give(self.grad_recv_info, self._sent, self._stage_meta.outputs)

    def _give(self, infos_by_microbatch, shapes, metas):
        for microbatch, infos in infos_by_microbatch.items():
            for index, info in enumerate(infos):
                if info.tensor_meta is not None:
                    shape = self._shape(shapes, microbatch, index, metas[index].shape)
                    # Both ends use contiguous tensors, regardless of microbatch 0.
                    stride = torch.empty(shape, device="meta").stride()
                    info.tensor_meta = dataclasses.replace(info.tensor_meta, shape=shape, stride=stride)

    @staticmethod
    def _shape(shapes, microbatch, index, shape_of_first):
        if shapes is None:
            return torch.Size(shape_of_first)
        shape = shapes[microbatch]
        if isinstance(shape, int):
            return torch.Size((shape, *shape_of_first[1:]))
        return torch.Size(shape[index])

    def forward_maybe_with_nosync(self, *args, **kwargs):
        output = super().forward_maybe_with_nosync(*args, **kwargs)
        if isinstance(output, (tuple, list)):
            return tuple(map(self._tied, output))
        return self._tied(output)

    def _tied(self, output):
        """Ties an output to the anchor, and copies it, unless it is the last stage's.

        The split backward would otherwise lose gradients. Sent outputs are contiguous, like the buffers at the other
        end. They are not views, because the split backward detaches them in place.
        """
        if not isinstance(output, torch.Tensor):
            return output
        if output.requires_grad and self.has_backward:
            return Tie.apply(output, self._anchor, not self.is_last)
        return output if self.is_last else output.clone(memory_format=torch.contiguous_format)

    def backward_maybe_with_nosync(self, backward_type, bwd_kwargs, last_backward=False):
        if backward_type == "input":
            bwd_kwargs["input_values"] = [*bwd_kwargs["input_values"], self._anchor]
        return super().backward_maybe_with_nosync(backward_type, bwd_kwargs, last_backward)

    def forward_one_chunk(self, fwd_chunk_id, *args, **kwargs):
        output = super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)
        if not self.is_last:
            self._check_shapes(fwd_chunk_id, output if isinstance(output, tuple) else (output,))
        return output

    def _check_shapes(self, microbatch, outputs):
        for index, (output, meta) in enumerate(zip(outputs, self._stage_meta.outputs)):
            expected = self._shape(self._sent, microbatch, index, meta.shape)
            if output.shape != expected:
                raise InputError(
                    f"stage {self.stage_index}, microbatch {microbatch}: expected an output of shape "
                    f"{tuple(expected)}, found {tuple(output.shape)}: give step() the shapes of this batch"
                )

    def get_bwd_send_ops(self, bwd_chunk_id):
        if bwd_chunk_id in self.bwd_cache and not self.is_first:
            self.bwd_cache[bwd_chunk_id] = tuple(
                self._sendable(gradient, index, bwd_chunk_id)
                for index, gradient in enumerate(self.bwd_cache[bwd_chunk_id])
            )
        return super().get_bwd_send_ops(bwd_chunk_id)

    def _sendable(self, gradient, index, microbatch):
        """Replaces the missing gradient of an unused input by zeros of the input's shape; torch would use microbatch
        0's."""
        if gradient is not None:
            return gradient.contiguous()
        meta = self._get_grad_send_meta(index)
        if meta is None:
            return None
        return torch.zeros(
            self.args_recv_info[microbatch][index].tensor_meta.shape, dtype=meta.dtype, device=self.device
        )


class Schedule(_PipelineScheduleRuntime):
    """Runs a dflop order over the Stages of this rank.

        schedule = Schedule([stage], "order.json", loss_fn)      # dflop simulate ... --order-out order.json
        schedule.step(arg_mbs=..., kwarg_mbs=..., target_mbs=..., shapes=rows, tokens=total, losses=losses)

    `stages` are the Stages of this rank; for `order` see stage_steps(). loss_fn(output, target) returns the sum over
    the tokens of a microbatch. Gradients are not scaled by the number of microbatches (scale_grads=False): the loss of
    a batch is the sum of the losses of all its tokens / `tokens`, regardless of how they are distributed over
    microbatches. `options` are passed on to torch's schedule. Raises InputError if stages do not fit the order.
    """

    def __init__(self, stages, order, loss_fn=None, **options):
        ranks = stage_steps(order)
        _check_stages(stages, ranks)
        microbatches = 1 + max(microbatch for steps in ranks for _, _, microbatch in steps)
        super().__init__(list(stages), microbatches, loss_fn=loss_fn, scale_grads=False, **options)
        self._tokens = None
        self.pipeline_order = {
            rank: [_Action(stage, _ComputationType(kind), microbatch) for stage, kind, microbatch in steps]
            for rank, steps in enumerate(ranks)
        }
        self._prepare_schedule_with_comms(self.pipeline_order)

    def step(self, *args: Any, shapes: Sequence[Any] | None = None, tokens: int | None = None, **kwargs: Any) -> Any:
        """Trains one batch, like step() of torch's schedules, which defines the other arguments.

        shapes[b][j] is what stage b sends to stage b + 1 for microbatch j, in the form of Stage.set_shapes(). A flat
        list with the number of rows by microbatch applies to every boundary; None means that all are as in microbatch
        0. The loss of each microbatch is divided by `tokens`, the number of tokens in the whole batch over all dp ranks
        (default: 1). Raises InputError if shapes do not match the order or the outputs of stages.
        """
        boundaries = self._boundaries(shapes)
        stages: list[Any] = self._stages
        for stage in stages:
            index = stage.stage_index
            stage.set_shapes(
                received=None if stage.is_first else boundaries[index - 1],
                sent=None if stage.is_last else boundaries[index],
            )
        self._tokens = tokens
        return super().step(*args, **kwargs)

    def _boundaries(self, shapes):
        count = self._num_stages - 1
        if shapes is None:
            return [None] * count
        if all(isinstance(shape, int) for shape in shapes):
            shapes = [shapes] * count
        if len(shapes) != count:
            raise InputError(
                f"shapes: expected {count} lists, one between each two stages, found {len(shapes)}"
            )
        for boundary, row in enumerate(shapes):
            if len(row) != self._n_microbatches:
                raise InputError(
                    f"shapes[{boundary}]: expected one for each of {self._n_microbatches} microbatches, found "
                    f"{len(row)}"
                )
        return shapes

    def _compute_loss(self, output, target, loss_kwargs=None):
        loss = super()._compute_loss(output, target, loss_kwargs)
        return loss if self._tokens is None else loss / self._tokens

    def _maybe_compute_loss(self, stage, output, target_mbs, mb_index, loss_kwargs=None):
        # torch appends losses in the order of forward passes and looks them up by microbatch.
        if stage.is_last and self._loss_fn is not None:
            if not self._internal_losses:
                self._internal_losses.extend([None] * self._n_microbatches)
            self._internal_losses[mb_index] = self._compute_loss(output, target_mbs[mb_index], loss_kwargs)

    def _merge_outputs(self, output_chunks):
        # torch merges outputs in the order of forward passes, too.
        last = self._num_stages - 1
        forwards = [
            action.microbatch_index
            for action in self.pipeline_order[self.rank]
            if action.stage_index == last and action.computation_type == _ComputationType.FORWARD
        ]
        by_microbatch = sorted(zip(forwards, output_chunks), key=lambda pair: pair[0])
        return super()._merge_outputs([output for _, output in by_microbatch])


def _check_stages(stages, ranks):
    count = 1 + max(stage for steps in ranks for stage, _, _ in steps)
    first = stages[0]
    if first.num_stages != count:
        raise InputError(f"stages: the order has {count} stages, found Stages made for {first.num_stages}")
    if first.group_size != len(ranks):
        raise InputError(f"stages: the order has {len(ranks)} ranks, found a group of {first.group_size}")
    expected = sorted({stage for stage, _, _ in ranks[first.group_rank]})
    found = sorted(stage.stage_index for stage in stages)
    if expected != found:
        raise InputError(
            f"stages: the order gives stages {expected} to rank {first.group_rank}, found {found}"
        )
