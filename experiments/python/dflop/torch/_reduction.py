"""Sums the gradients of a stage over its dp ranks, in buckets, during the last backward pass if the plan says so."""

import torch
import torch.distributed as dist

from dflop._errors import InputError
from dflop.torch._board import lost_peers


_IN_FLIGHT = 3  # buckets: one is copied, one is summed, one waits


class Bucket:
    """Parameters of a stage whose gradients form one message."""

    def __init__(self, parameters):
        self.parameters = parameters
        self.missing = set()  # parameters whose gradients the current backward pass has yet to complete
        self.work = None
        self.flat = None  # the gradients, followed by the number of ranks with a gradient for each parameter

    def launch(self, group):
        """Begins the sum. A parameter that no microbatch of this rank used adds zeros."""
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        reached = gradients[0].new_tensor([float(p.grad is not None) for p in self.parameters])
        self.flat = torch.cat([*(gradient.reshape(-1) for gradient in gradients), reached])
        self.work = dist.all_reduce(self.flat, group=group, async_op=True)

    def finish(self):
        """Copies the completed sum to the parameters. A parameter that no microbatch of any rank used keeps no
        gradient, as in a single process, so that optimizers ignore it."""
        sums = self.flat.split([*(p.numel() for p in self.parameters), len(self.parameters)])
        for parameter, total, ranks in zip(self.parameters, sums, sums[-1]):
            if parameter.grad is not None:
                parameter.grad.copy_(total.view_as(parameter))
            elif ranks > 0:
                parameter.grad = total.view_as(parameter).clone()
        self.work = self.flat = None


class StageReduction:
    """The reductions of one stage's gradients. All dp ranks call its methods in the same order.

    A backward pass completes gradients from the last parameter to the first, so buckets start at the end. The
    parameters of a bucket have the same type. Parameters may be frozen or unfrozen between two steps.
    """

    def __init__(self, parameters, group, bucket_bytes, wait):
        self._parameters = parameters
        self._wait_for_work = wait  # wait(work, *ranks)
        self._group = group
        self._ranks = dist.get_process_group_ranks(group)
        self._bucket_bytes = bucket_bytes
        self._buckets = []
        self._launched = 0
        self._finished = 0
        self._wanted = 0  # number of buckets begun by all_reduce_start
        self._handles = []

    def reduce(self):
        """Sums all gradients, and waits for the sums. Copies only a few buckets at a time, to save memory."""
        self._begin(_buckets(self._trained(), self._bucket_bytes))
        while self._finished < len(self._buckets):
            if self._launched < min(len(self._buckets), self._finished + _IN_FLIGHT):
                self._launch_next()
            else:
                self._finish_next()

    def start(self, buckets):
        """Begins one of a stage's `buckets` reductions, whose gradients the next backward pass completes."""
        if self._wanted == 0:
            self._begin(_split(self._trained(), buckets))
        self._wanted += 1

    def arm(self):
        """Makes a whole backward pass launch the begun buckets, each when its gradients are complete."""
        if self._wanted == 0:
            return
        for bucket in self._buckets:
            bucket.missing = set(bucket.parameters)
            for parameter in bucket.parameters:
                self._handles.append(parameter.register_post_accumulate_grad_hook(self._completed(bucket)))

    def end_backward(self):
        """Launches the remaining buckets: those with parameters that the pass did not use, or all if it was split."""
        if self._wanted == 0:
            return
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._launch_all()

    def wait(self):
        """Waits for the next of the begun reductions."""
        self._launch_all()
        if self._finished < len(self._buckets):
            self._finish_next()
        self._wanted -= 1
        if self._wanted == 0:
            self._finish_all()

    def close(self):
        """Ends the communication of the stage's dp ranks."""
        dist.destroy_process_group(self._group)

    def _trained(self):
        return [parameter for parameter in self._parameters if parameter.requires_grad]

    def _begin(self, buckets):
        self._buckets, self._launched, self._finished = buckets, 0, 0

    def _completed(self, bucket):
        def hook(parameter):
            if parameter not in bucket.missing:
                raise InputError(
                    "stages: expected a backward to complete each gradient once, found the gradient of a parameter of "
                    f"shape {tuple(parameter.shape)} completed again, as with torch.utils.checkpoint and "
                    "use_reentrant=True: use use_reentrant=False, or a plan without gradient_bucket_bytes"
                )
            bucket.missing.remove(parameter)
            # In the same order on all ranks, because sums are matched by order.
            while self._launched < len(self._buckets) and not self._buckets[self._launched].missing:
                self._launch_next()

        return hook

    def _launch_next(self):
        with lost_peers(*self._ranks):
            self._buckets[self._launched].launch(self._group)
        self._launched += 1

    def _launch_all(self):
        while self._launched < len(self._buckets):
            self._launch_next()

    def _finish_next(self):
        bucket = self._buckets[self._finished]
        self._wait_for_work(bucket.work, *self._ranks)
        bucket.finish()
        self._finished += 1

    def _finish_all(self):
        while self._finished < len(self._buckets):
            self._finish_next()


class JoinedEnds:
    """The matrix that is the embedding on one rank and the head on another."""

    def __init__(self, stage, matrix, pair, ranks, wait):
        self.stage = stage
        self.matrix = matrix
        self._pair = pair
        self._ranks = ranks
        self._wait_for_work = wait  # wait(work, *ranks)

    def copy_first(self):
        """Copies the matrix of the first rank to both ends."""
        with torch.no_grad(), lost_peers(*self._ranks):
            copied = dist.broadcast(self.matrix, src=self._ranks[0], group=self._pair, async_op=True)
        self._wait_for_work(copied, *self._ranks)

    def sum(self):
        """Sums the gradients of both ends, and stores the sum at both. An end that no microbatch used adds zeros."""
        if not self.matrix.requires_grad:
            return
        if self.matrix.grad is None:
            self.matrix.grad = torch.zeros_like(self.matrix)
        with lost_peers(*self._ranks):
            summed = dist.all_reduce(self.matrix.grad, group=self._pair, async_op=True)
        self._wait_for_work(summed, *self._ranks)

    def close(self):
        """Ends the communication of the two ranks."""
        dist.destroy_process_group(self._pair)


def _bytes(parameter):
    return parameter.numel() * parameter.element_size()


def _buckets(parameters, most_bytes):
    """Returns buckets of at most `most_bytes`, starting with the last parameter. A single larger parameter has its
    own."""
    buckets, filled = [], 0
    for parameter in reversed(parameters):
        alike = buckets and buckets[-1][-1].dtype == parameter.dtype
        if not alike or filled + _bytes(parameter) > most_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(parameter)
        filled += _bytes(parameter)
    return [Bucket(bucket) for bucket in buckets]


def _split(parameters, count):
    """Returns about `count` buckets of similar size, starting with the last parameter."""
    total = sum(map(_bytes, parameters))
    return _buckets(parameters, max(1, -(-total // count)))
