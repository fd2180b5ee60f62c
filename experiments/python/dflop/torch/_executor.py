"""An Executor runs the Program of an iteration on PyTorch: the one that simulator and C++ backend run."""

import atexit
import json
import os
import threading
import traceback
import warnings
from collections import Counter, deque, namedtuple
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from dflop._errors import DflopError, InputError
from dflop._server import default_server
from dflop.torch._board import Board, lost_peers
from dflop.torch._program import BACKWARDS, RECEIVES, SENDS, Program
from dflop.torch._reduction import StageReduction
from dflop.torch._tie import Tie

BUCKET_BYTES = 25 * 2**20
_LEAVING_S = 10.0  # as long as a process that ends after a failure waits for its communication to end

Result = namedtuple("Result", "loss tokens")
"""The mean loss over all trained tokens of the batch, and their number; the same on all ranks."""

_HEADER = 10  # numbers that describe what follows: type, dimensions, and sizes of all but the first
_TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


class _OnAllRanks(Exception):
    """An error that all ranks have and know of."""

    def __init__(self, error):
        super().__init__(str(error))
        self.error = error


class Executor:
    """Runs iterations of a plan on this rank's stage modules, over torch.distributed (gloo or NCCL).

    plan       the plan (a path, or what the file holds), or the program of one of its iterations
    stages     a module by stage number; or stages(stage) -> module, which is called with a description of each stage of
               this rank: its index, encoder_layers, llm_layers, connector, embedding and head
    inputs     inputs(part, batch) -> dict: keyword arguments of a stage's module for a Part of the batch
    loss       loss(output, part, batch) -> (sum, tokens): the summed loss of the last stage's output for a Part, a
               scalar tensor, and how many tokens it sums over
    optimizer  optimizer(parameters) -> an optimizer of one stage; without one, step() leaves gradients
    device     of modules and messages; default: the current GPU with NCCL, else the CPU

    A module is called as module(x, **inputs(part, batch)) and returns one tensor, whose first dimension are rows: those
    of the Part's samples or pieces, packed. x has the rows of the stage before, or is None where nothing comes: at the
    first stage, and at the LLM's first for a microbatch without encoder output. Rows go where the program says.

    The loss is the sum over all dp ranks and microbatches over the sum of all tokens, whatever their lengths, and so
    are its gradients. Weights of dp ranks begin as those of the first one. Activation checkpointing is the modules'
    own; parameters without requires_grad stay as they are.

    Trained parameters are f32, bf16 or f64: gradients are summed as they are, and divided by the tokens in the end, for
    which f16 has no room. Without an `optimizer` clipping and steps are the caller's.

    All ranks of torch.distributed make the executor and call step() together, and close() at last. Where one fails, all
    raise RankFailed, which names the first, and torch.distributed is shut down with all of its groups.
    """

    _made = 0

    def __init__(self, plan, stages, *, inputs, loss, optimizer=None, device=None, bucket_bytes=BUCKET_BYTES):
        if not dist.is_initialized():
            raise InputError("Executor: expected torch.distributed to be initialised: call init_process_group() first")
        self._rank = dist.get_rank()
        self._inputs = inputs
        self._loss = loss
        self._device = torch.device(device) if device is not None else _default_device()
        self._at = None  # what this rank is doing, for messages
        self._steps = 0
        Executor._made += 1
        self._board = Board(f"{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}.{self._made}", self._rank)
        # Small sums and the layout go over the host, so that no GPU waits for them.
        self._control = dist.new_group(backend="gloo")
        self.program = Program(self._together(lambda: self._of_first_rank(lambda: _layout(plan))))
        if self.program.layout == "shared":
            raise InputError(
                "Executor: expected a plan whose ranks have GPUs of their own, found a shared one: "
                "dflop.plan(..., no_shared=True) leaves such plans out"
            )
        if self.program.ranks != dist.get_world_size():
            raise InputError(
                f"Executor: expected as many ranks as the plan has, {self.program.ranks}, found a process group of "
                f"{dist.get_world_size()}"
            )
        self._group = self.program.group_of(self._rank)
        self.stages = self.program.groups[self._group].stages
        self.modules = {}
        self.optimizers = {}
        self._together(lambda: self._make(stages, optimizer, bucket_bytes))

    def _make(self, stages, optimizer, bucket_bytes):
        """Makes modules, communication and optimizers of this rank's stages."""
        self._at = "making the modules"
        for stage in self.stages:
            self.modules[stage] = self._module(stages, stage)
        # A group is made by all ranks, which would wait for one whose module failed until their time is up.
        self._wait_for_all()
        self._messenger = _Messenger(self.program, self._group, self._device)
        self._reductions = self._make_reductions(bucket_bytes)
        self._at = "making the optimizers"
        for stage in self.stages:
            if optimizer is not None and self._trained(stage):
                self.optimizers[stage] = optimizer(self._trained(stage))
        self._wait_for_all()

    def _wait_for_all(self):
        with lost_peers():
            dist.barrier(group=self._control)

    def batches(self, sampler):
        """Gives the batches of the first rank's PlanSampler on all ranks, so that one process schedules for all.

        The samplers of other ranks are not asked, and may be None. Errors of the first one are raised on all ranks.
        """
        iterator = iter(sampler) if self._rank == 0 else None
        while True:
            self._at = f"the batch of step {self._steps}"
            drawn = self._together(lambda: self._of_first_rank(lambda: next(iterator, None)))
            if drawn is None:
                return
            yield drawn

    def step(self, program, batch):
        """Runs one iteration, and returns its Result. `batch` is what inputs() and loss() get.

        Raises InputError where the program is of another plan, and RankFailed where any rank failed.
        """
        if not isinstance(program, Program):
            program = Program(program)
        self._require_own_plan(program)
        result = self._together(lambda: _Step(self, program, batch).run())
        self._steps += 1
        return result

    def close(self):
        """Ends the communication of this executor; torch.distributed stays. All ranks call it, after a whole step."""
        if self._control is None:
            return
        self._messenger.close()
        for reduction in self._reductions.values():
            reduction.close()
        dist.destroy_process_group(self._control)
        self._messenger = self._control = None
        self._reductions = {}

    def _together(self, run):
        """Returns what run() returns; raises RankFailed where this rank fails or learns that another one did."""
        if self._control is None:
            raise InputError("Executor: it was closed, or a rank failed; expected a new executor")
        try:
            return run()
        except _OnAllRanks as error:
            raise error.error
        except Exception as error:
            failure = self._board.report(error, self._at)
            self._leave(error)
            raise failure from error

    def _leave(self, error):
        """Ends this rank's communication, by which other ranks that wait for it learn that they wait in vain.

        Connections close when nobody holds their group any more, frames of the error's traceback included.
        """
        traceback.clear_frames(error.__traceback__)
        self._messenger = self._control = None
        self._reductions = {}
        # A group with sums under way waits for them, and so for other ranks; this rank need not.
        leaving = threading.Thread(target=dist.destroy_process_group, daemon=True)
        leaving.start()
        atexit.register(_end, leaving, self._board)

    def _of_first_rank(self, make):
        """Returns what make() returns on the first rank; raises its DflopError on all."""
        answer = [None]
        if self._rank == 0:
            try:
                answer = [(True, make())]
            except DflopError as error:
                answer = [(False, error)]
        with lost_peers(0):
            dist.broadcast_object_list(answer, src=0, group=self._control)
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
        """Makes the dp groups of all stages, on all ranks in the same order, and copies weights to all dp ranks."""
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
                            dist.broadcast(tensor, src=ranks[0], group=group)
                reductions[stage] = StageReduction(list(module.parameters()), group, bucket_bytes)
        return reductions

    def _trained(self, stage):
        return [p for p in self.modules[stage].parameters() if p.requires_grad]

    def _require_own_plan(self, program):
        own = [(group.rank, group.dp_rank, group.stages) for group in self.program.groups]
        other = [(group.rank, group.dp_rank, group.stages) for group in program.groups]
        if own != other or self.program.stages != program.stages:
            raise InputError("program: expected one of the executor's plan, found other ranks or stages")


def _end(leaving, board):
    """Keeps the end of the process from cutting short what ends a failed rank's communication."""
    leaving.join(_LEAVING_S)
    board.linger()


def _default_device():
    # Without a backend's name torch takes NCCL for GPUs and gloo for the rest.
    if "cuda:nccl" in dist.get_backend_config() and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _layout(plan):
    """Returns a program that has the ranks and stages of a plan."""
    if isinstance(plan, dict) and "groups" in plan:
        return plan
    plan = plan if isinstance(plan, dict) else os.fspath(plan)
    opened = default_server().request("open", {"plan": plan, "program": True}, 60)
    default_server().request("close", {"session": opened["session"]}, 60)
    _note_whole_states(plan, opened["program"])
    return opened["program"]


def _note_whole_states(plan, program):
    """Warns of a plan that counts on parts of optimizer states on each dp rank, where each has them whole."""
    if not isinstance(plan, dict):
        with open(plan, encoding="utf-8") as file:
            plan = json.load(file)
    if plan["zero1"] and any(len(collective["groups"]) > 1 for collective in program["collectives"]):
        warnings.warn(
            "plan: zero1 splits optimizer states over dp ranks, which the Executor does not: it needs more memory than "
            "was planned (dflop.plan(..., no_zero1=True) plans for whole states)",
            RuntimeWarning,
            stacklevel=2,
        )


class _Messenger:
    """Sends and receives rows.

    NCCL matches messages of two ranks by their order, so that receives are posted in the order of sends, and each
    direction of two ranks has a communicator of its own. gloo matches them by their tags.
    """

    def __init__(self, program, group, device):
        self._group = group
        self._device = device
        self._ranks = [g.rank for g in program.groups]
        self._route_groups = {}
        if device.type != "cpu":
            self._open_routes(program)
        self._rows = {}  # by (group, stage) that has made it: type and sizes of a row of its output
        self._told = set()  # (stage, group): who knows the rows of this rank's stage
        self._sends = deque()  # (work, destination, tensor), which is kept until it is sent
        self._posted = {}

    def _open_routes(self, program):
        """Makes a communicator for each route, and uses it once.

        NCCL connects two ranks when they first exchange something, and both wait for each other then: in one order on
        all ranks, no two wait crosswise.
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
        """Sends the rows of a message, and goes on at once."""
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
        """Refuses rows that are not as those before, of which others know: they would be read as something else."""
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
        """Posts the receive of what the sender of a message sends after it, which may then come beside compute."""
        self._post_next(self._routes[self._program.messages[index].source])

    def _post_next(self, route):
        # Before the first rows from a stage there is a header to wait for.
        if route and self._key_of_rows(self._program.messages[route[0]]) in self._rows:
            self._post(route.popleft())

    def finish(self):
        """Waits until all that this rank has sent has left it."""
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
        """Returns type and sizes of a row. Before the first activations from a stage comes a header."""
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
        with lost_peers(self._ranks[group]):
            work.wait()


def _header(tensor, device):
    """Returns what tells a receiver the type and sizes of rows."""
    sizes = tensor.shape[1:]
    if tensor.dtype not in _TYPES or len(sizes) > _HEADER - 2:
        raise InputError(
            f"stages: expected an output of f32, bf16, f16 or f64 with at most {_HEADER - 1} dimensions, found "
            f"{tensor.dtype} of shape {tuple(tensor.shape)}"
        )
    numbers = [_TYPES.index(tensor.dtype), len(sizes), *sizes]
    return torch.tensor(numbers + [0] * (_HEADER - len(numbers)), dtype=torch.int64, device=device)


class _Unit:
    """What a rank keeps of one microbatch at one stage, from its forward to its backward."""

    __slots__ = ("x", "edge", "output", "y_grad", "x_grad", "split")

    def __init__(self):
        self.x = None  # the input, a leaf
        self.edge = None  # where the backward begins: of the output, or the loss; None where nothing was computed
        self.output = None  # the output's values, until all that need them have them
        self.y_grad = None
        self.x_grad = None
        self.split = None  # what the weight part needs of the input part


class _Step:
    """One iteration on one rank."""

    def __init__(self, executor, program, batch):
        self._executor = executor
        self._program = program
        self._batch = batch
        self._own = program.groups[executor._group]
        self._messenger = executor._messenger
        self._units = {}
        self._last_stage = len(program.stages) - 1
        self._loss = torch.zeros((), dtype=torch.float64, device=executor._device)
        self._tokens = 0
        self._losses_left = sum(i.op == "forward" and i.stage == self._last_stage for i in self._own.instructions)
        self._rows = {}  # (stage, microbatch): rows that a stage's output needs, where others get them
        for i in self._own.instructions:
            if i.op in SENDS and program.messages[i.index].activations:
                message = program.messages[i.index]
                needed = message.source_row + message.rows
                self._rows[i.stage, i.microbatch] = max(needed, self._rows.get((i.stage, i.microbatch), 0))
        self._sends_left = Counter(
            (i.stage, i.microbatch, program.messages[i.index].activations)
            for i in self._own.instructions
            if i.op in SENDS
        )

    def run(self):
        executor = self._executor
        executor._at = f"the begin of step {executor._steps}"
        for module in executor.modules.values():
            module.zero_grad(set_to_none=True)
        if not executor._board.agree(executor._steps, self._program.fingerprint):
            raise InputError("program: expected that of the other ranks, found one of other samples or microbatches")
        self._messenger.begin(self._program)
        for instruction in self._own.instructions:
            self._run(instruction)
        executor._at = f"the end of step {executor._steps}"
        self._messenger.finish()
        tokens = self._counted()
        loss = self._loss.cpu()
        with lost_peers():
            dist.all_reduce(loss, group=executor._control)
        return Result(loss.item() / tokens, tokens)

    def _run(self, i):
        self._executor._at = _describe(i, self._executor._steps)
        if i.op in SENDS:
            with self._range(i):
                self._send(i)
        elif i.op in RECEIVES:
            with self._range(i):
                self._receive(i)
            self._messenger.post_ahead(i.index)  # out of the range, which is of this message alone
        elif i.op == "forward":
            self._forward(i)
        elif i.op in BACKWARDS:
            self._backward(i)
        elif i.op == "optimizer_step":
            self._optimizer_step(i)
        else:
            with self._range(i):
                self._reduce(i)

    def _range(self, i):
        """Returns a context that names what runs inside it to a profiler, if there is one."""
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
        return name if i.microbatch < 0 else f"{name} mb={i.microbatch}"

    def _unit(self, stage, microbatch):
        return self._units.setdefault((stage, microbatch), _Unit())

    # Messages.

    def _send(self, i):
        message = self._program.messages[i.index]
        unit = self._unit(i.stage, i.microbatch)
        rows = unit.output if message.activations else unit.x_grad
        self._messenger.send(i.index, rows[message.source_row : message.source_row + message.rows])
        key = (i.stage, i.microbatch, message.activations)
        self._sends_left[key] -= 1
        if self._sends_left[key] == 0:
            if message.activations:
                unit.output = None
            else:
                unit.x_grad = None

    def _receive(self, i):
        message = self._program.messages[i.index]
        rows = self._messenger.receive(i.index)
        unit = self._unit(i.stage, i.microbatch)
        if message.rows == message.of:
            whole = rows
        else:
            whole = unit.x if message.activations else unit.y_grad
            if whole is None:
                whole = rows.new_zeros((message.of, *rows.shape[1:]))
            whole[message.destination_row : message.destination_row + message.rows] = rows
        if message.activations:
            unit.x = whole
        else:
            unit.y_grad = whole

    # Compute.

    def _forward(self, i):
        unit = self._unit(i.stage, i.microbatch)
        before = self._units.get((i.stage - 1, i.microbatch))
        if before is not None:  # the stage before is on this rank, too
            unit.x, before.output = before.output, None
        if unit.x is not None:
            unit.x.requires_grad_()
        part = self._program.part(i.stage, i.microbatch, self._own.dp_rank)
        has_work = bool(part.samples or part.pieces)
        arguments = self._executor._inputs(part, self._batch) if has_work else None
        with self._range(i):
            if has_work:
                self._compute(unit, part, arguments)
        if i.stage == self._last_stage:
            self._losses_left -= 1
            if self._losses_left == 0:
                self._add_tokens()

    def _compute(self, unit, part, arguments):
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
            # The edge keeps what the backward reads, which the output need not be part of.
            unit.edge = torch.autograd.graph.get_gradient_edge(y)

    def _require_rows(self, output, part):
        rows = self._rows.get((part.stage, part.microbatch))
        if rows is not None and (output.dim() == 0 or len(output) != rows):
            raise InputError(
                f"stages: expected {rows} rows from the module of stage {part.stage}, as the program has, found shape "
                f"{tuple(output.shape)}"
            )

    def _add_loss(self, output, part):
        total, tokens = self._executor._loss(output, part, self._batch)
        if total.dim() != 0:
            raise InputError(f"loss: expected a sum, a scalar tensor, found shape {tuple(total.shape)}")
        self._loss += total.detach()
        if int(tokens) != tokens or tokens < 0:
            raise InputError(f"loss: expected a whole number of tokens, found {tokens}")
        self._tokens += int(tokens)
        return total

    def _backward(self, i):
        unit = self._unit(i.stage, i.microbatch)
        after = self._units.get((i.stage + 1, i.microbatch))
        if after is not None and after.x_grad is not None:  # the stage after is on this rank, too
            unit.y_grad, after.x_grad = after.x_grad, None
        if i.op == "backward_input":
            with self._range(i):
                self._backward_input(unit, i.stage)
            return
        reduction = self._executor._reductions.get(i.stage)
        with self._range(i):
            if reduction is not None and unit.split is None:
                reduction.arm()
            self._backward_rest(unit, i.stage)
        if reduction is not None:
            reduction.end_backward()
        unit.edge = unit.y_grad = unit.split = None

    def _backward_input(self, unit, stage):
        # Without an input there is nothing to send, and the weight part does all.
        if unit.edge is not None and unit.y_grad is not None and unit.x is not None:
            weights = self._executor._trained(stage)
            _, unit.split = stage_backward_input([unit.edge], [unit.y_grad], [unit.x], iter(weights))
        self._take_x_grad(unit)

    def _backward_rest(self, unit, stage):
        """Runs a whole backward, or its weight part where the input part was run."""
        if unit.split is not None:
            stage_backward_weight(iter(self._executor._trained(stage)), unit.split)
            return
        if unit.edge is not None and unit.y_grad is not None:
            torch.autograd.backward([unit.edge], [unit.y_grad])
        self._take_x_grad(unit)

    @staticmethod
    def _take_x_grad(unit):
        if unit.x is not None:
            unit.x_grad = unit.x.grad if unit.x.grad is not None else torch.zeros_like(unit.x)
            unit.x = None

    # The end of the step.

    def _reduce(self, i):
        reduction = self._executor._reductions[i.stage]
        if i.op == "all_reduce":
            reduction.reduce()
        elif i.op == "all_reduce_start":
            reduction.start(self._buckets(i.stage))
        else:
            reduction.wait()

    def _buckets(self, stage):
        return sum(i.op == "all_reduce_start" and i.stage == stage for i in self._own.instructions)

    def _optimizer_step(self, i):
        tokens = self._counted()
        with self._range(i):
            gradients = [p.grad for p in self._executor.modules[i.stage].parameters() if p.grad is not None]
            if gradients:
                torch._foreach_div_(gradients, tokens)
            optimizer = self._executor.optimizers.get(i.stage)
            if optimizer is not None:
                optimizer.step()

    def _add_tokens(self):
        last = self._last_stage
        ranks = sum(last in group.stages for group in self._program.groups)
        self._executor._board.add(self._executor._steps, self._tokens, ranks)

    def _counted(self):
        """Returns the trained tokens of the whole batch, which are known long before the optimizer steps."""
        tokens = self._executor._board.sum(self._executor._steps)
        if tokens <= 0:
            raise InputError("loss: expected at least one token in the batch, found none")
        return tokens


def _describe(i, step):
    what = f"{i.op} of stage {i.stage}"
    return f"step {step}, {what}" if i.microbatch < 0 else f"step {step}, {what}, microbatch {i.microbatch}"
