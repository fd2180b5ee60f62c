"""A Messenger sends and receives the rows of a rank's messages over torch.distributed."""

from __future__ import annotations

from collections import deque

import torch
import torch.distributed as dist

from dflop._errors import InputError
from dflop.torch._board import lost_peers

_HEADER = 10  # numbers that describe the following rows: type, number of dimensions, and all sizes except the first
_TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


class Messenger:
    """Sends and receives rows.

    NCCL matches messages between two ranks by their order. Receives are therefore posted in the order of sends, and
    each direction between two ranks has its own communicator. gloo matches messages by their tags.
    """

    def __init__(self, program, group, device, wait):
        self._group = group
        self._wait_for_work = wait  # wait(work, rank)
        self._device = device
        self._ranks = [g.rank for g in program.groups]
        self._route_groups = {}
        if device.type != "cpu":
            self._open_routes(program)
        self._rows = {}  # by the (group, stage) that makes them: type and sizes of an output row
        self._told = set()  # (stage, group): the groups that know the rows of this rank's stage
        self._sends = deque()  # (work, destination, tensor); a tensor is kept until it is sent
        self._posted = {}

    def _open_routes(self, program):
        """Makes a communicator for each route, and uses it once.

        NCCL connects two ranks at their first exchange, for which both wait. With the same order on all ranks, there is
        no deadlock.
        """
        routes = program.possible_routes()
        for a, b in routes:
            self._route_groups[a, b] = dist.new_group(sorted((self._ranks[a], self._ranks[b])))
        nothing = torch.zeros(1, device=self._device)
        for a, b in routes:
            with lost_peers(self._ranks[a], self._ranks[b]):
                if self._group == a:
                    dist.send(nothing, self._ranks[b], group=self._route_groups[a, b])
                elif self._group == b:
                    dist.recv(nothing, self._ranks[a], group=self._route_groups[a, b])

    def close(self):
        """Ends the communicators of this messenger."""
        for group in self._route_groups.values():
            if group is not dist.GroupMember.NON_GROUP_MEMBER:
                dist.destroy_process_group(group)

    def begin(self, program):
        """Begins an iteration."""
        self._program = program
        self._routes = {source: deque(messages) for source, messages in program.routes_to(self._group).items()}
        for route in self._routes.values():
            self._post_next(route)

    def send(self, index, tensor):
        """Sends the rows of a message, without waiting."""
        message = self._program.messages[index]
        if message.activations:
            self._require_same_rows(message.source_stage, tensor)
        if message.activations and (message.source_stage, message.destination) not in self._told:
            self._told.add((message.source_stage, message.destination))
            self._isend(index, message, _header(tensor, self._device))
        self._isend(index, message, tensor.contiguous())
        while self._sends and self._sends[0][0].is_completed():
            self._sends.popleft()

    def _require_same_rows(self, stage, tensor):
        """Rejects rows that differ from earlier ones in type or size: receivers know only those, and would misread the
        rows."""
        found = (tensor.dtype, tuple(tensor.shape[1:]))
        known = self._rows.setdefault((self._group, stage), found)
        if found != known:
            raise InputError(
                f"stages: expected rows of {known[0]} and shape {known[1]} from stage {stage}, as before, found "
                f"{found[0]} and {found[1]}"
            )

    def receive(self, index):
        """Returns the rows of a message."""
        message = self._program.messages[index]
        while index not in self._posted:
            self._post(self._routes[message.source].popleft())
        work, tensor = self._posted.pop(index)
        self._wait(work, message.source)
        return tensor

    def post_ahead(self, index):
        """Posts the receive of the next message from the same sender, which can then arrive during compute."""
        self._post_next(self._routes[self._program.messages[index].source])

    def _post_next(self, route):
        # The first rows from a stage are preceded by a header, for which the receive would wait.
        if route and self._key_of_rows(self._program.messages[route[0]]) in self._rows:
            self._post(route.popleft())

    def finish(self):
        """Waits until everything that this rank sends has been sent."""
        while self._sends:
            work, destination, _ = self._sends[0]
            self._wait(work, destination)
            self._sends.popleft()

    def _isend(self, index, message, tensor):
        rank = self._ranks[message.destination]
        group = self._route_groups.get((self._group, message.destination))
        with lost_peers(rank):
            work = dist.isend(tensor, rank, group=group, tag=index)
        self._sends.append((work, message.destination, tensor))

    def _post(self, index):
        message = self._program.messages[index]
        dtype, sizes = self._row(index, message)
        tensor = torch.empty((message.rows, *sizes), dtype=dtype, device=self._device)
        self._posted[index] = (self._irecv(index, message, tensor), tensor)

    def _key_of_rows(self, message):
        if message.activations:
            return (message.source, message.source_stage)
        return (self._group, message.destination_stage)

    def _row(self, index, message):
        """Returns the type and sizes of a row. A header precedes the first activations from a stage."""
        key = self._key_of_rows(message)
        if key not in self._rows:
            header = torch.empty(_HEADER, dtype=torch.int64, device=self._device)
            self._wait(self._irecv(index, message, header), message.source)
            kind, dimensions, *sizes = header.tolist()
            self._rows[key] = (_TYPES[kind], tuple(sizes[:dimensions]))
        return self._rows[key]

    def _irecv(self, index, message, tensor):
        rank = self._ranks[message.source]
        with lost_peers(rank):
            return dist.irecv(tensor, rank, group=self._route_groups.get((message.source, self._group)), tag=index)

    def _wait(self, work, group):
        self._wait_for_work(work, self._ranks[group])


def _header(tensor, device):
    """Returns a header, which tells a receiver the type and sizes of rows."""
    sizes = tensor.shape[1:]
    if tensor.dtype not in _TYPES or len(sizes) > _HEADER - 2:
        raise InputError(
            f"stages: expected an output of f32, bf16, f16 or f64 with at most {_HEADER - 1} dimensions, found "
            f"{tensor.dtype} of shape {tuple(tensor.shape)}"
        )
    numbers = [_TYPES.index(tensor.dtype), len(sizes), *sizes]
    return torch.tensor(numbers + [0] * (_HEADER - len(numbers)), dtype=torch.int64, device=device)
