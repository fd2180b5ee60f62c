"""profile() measures your own modules, and writes the file that dflop uses for predictions.

A profile has the parts of a model (patches, encoder layer, connector, embedding, LLM layer, head). The time of a layer
is a curve over tokens plus, for attention, a curve over the mean length of sequences. To separate them, layers need not
be taken apart: a layer is measured whole. Its time with the shortest sequences gives the first curve, and the
additional time of longer sequences gives the second. If longer sequences take less time, as with modules that process
sequences one by one, the difference moves from the first curve to the second, which then falls.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import time
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Sequence

import torch
import torch.distributed as dist

from dflop._errors import InputError
from dflop.torch._version import require_split_backwards

SIDES = {
    "patches": "encoder",
    "encoder": "encoder",
    "connector": "encoder",
    "embedding": "llm",
    "llm": "llm",
    "head": "llm",
}
"""Whose tokens each part of a model is measured over."""
BEFORE = {
    "patches": (),
    "encoder": ("patches",),
    "connector": ("patches", "encoder"),
    "embedding": (),
    "llm": ("patches", "encoder", "connector", "embedding"),
    "head": ("patches", "encoder", "connector", "embedding", "llm"),
}
"""Parts from which values come to a part: where one of them trains, the part's input needs a gradient."""
LAYERED = ("encoder", "llm")
ATTENTION_SHARE_OF_WEIGHTS = 0.0  # attention has no parameters
LINEAR_SHARE_OF_WEIGHTS = 0.5  # the two gradients of a matrix product take equally long
OUTLIER = 2.0  # rounds that take longer than this multiple of the median are reported
WARM_UP = 2
MOST_OPTIMIZER_PARAMETERS = 20_000_000
LINK_BYTES = (1 << 16, 1 << 22)


class Profile(dict):
    """A file of schema dflop.profile, as a dict. `notes` lists what was left out, and which rounds were outliers.
    """

    notes: Sequence[str] = ()


@dataclass
class Times:
    """The times of a layer's passes, in seconds."""

    forward: float = 0.0
    backward_input: float = 0.0
    backward_weight: float = 0.0

    def plus(self, other, times=1.0):
        return Times(
            self.forward + times * other.forward,
            self.backward_input + times * other.backward_input,
            self.backward_weight + times * other.backward_weight,
        )

    def at_least_zero(self):
        return Times(max(0.0, self.forward), max(0.0, self.backward_input), max(0.0, self.backward_weight))


def profile(
    modules: Mapping[str, torch.nn.Module | tuple[torch.nn.Module, int]],
    make_input: Callable[[str, list[int]], Any],
    samples: Mapping[str, Sequence[int]],
    model: str | os.PathLike[str] | Mapping[str, Any],
    out: str | os.PathLike[str] | None = None,
    most_tokens: int = 2048,
    repetitions: int = 7,
    split: bool = False,
    optimizer: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer] | None = torch.optim.AdamW,
) -> Profile:
    """Measures the parts of a model, and returns the profile, a dict; `out` is a file to write it to.

        dflop.torch.profile(
            {"encoder": vit.blocks[0], "connector": projector, "llm": (decoder, 4), "head": lm_head},
            lambda part, lengths: ...,                      # random input of sequences of these lengths
            {"encoder": [576] * 40, "llm": [210, 1800]},    # lengths of sequences as in the data
            model="my-model.json", out="profile.json")

    `modules` has the parts of SIDES that the model has: a module or, for encoder and llm, also a module and its number
    of layers. A tower with patches and projector inside may be one "encoder" with its number of layers. Parts that are
    not given cost nothing. make_input(part, lengths) returns the input of the module: a tensor or a tuple of positional
    arguments, or a tuple and a dict of keywords, for packed sequences of these lengths. For the encoder and the
    connector, lengths are counted before tokens are merged. Positional tensors of floats get gradients if something
    before them trains. `samples` has the lengths of sequences in the data by side, "encoder" and "llm". Parts are
    measured on the shortest one repeated up to `most_tokens`, layers also on sequences of other lengths. `model` is a
    model's file (schema dflop.model, as in experiments/presets/models) or its contents: the sizes for which plans are
    made.

    Times are medians of `repetitions` after a warm-up, by CUDA events if modules are on a GPU. With `split` the input
    and weight parts of the backward pass are measured with the functions of torch.distributed.pipelining. Without it,
    the whole pass is measured: half of it counts as the weight part, except for attention, which has none. Bytes
    count the input and the tensors kept for the backward pass, without parameters. If torch.distributed is
    initialized, all ranks call this at the same time, messages and all-reduces are measured too, and rank 0 writes the
    file. Otherwise messages and all-reduces cost nothing. `optimizer` makes the optimizer whose step is measured, on
    parameters of its own; None: no cost. Gradients of the modules are None afterwards.

    Raises InputError for parts, samples or a model that cannot be measured.
    """
    if split:
        require_split_backwards("profile: split=True measures split backwards, which needs")
    spec = _model(model)
    parts = _parts(modules, spec)
    lengths = _lengths(samples, parts, most_tokens)
    rounds = _Rounds(make_input, repetitions, split)
    units, memory = _empty_units(most_tokens), _Memory()
    for part in parts.values():
        _measure(part, lengths[SIDES[part.name]], most_tokens, rounds, units, memory)
        part.module.zero_grad(set_to_none=True)
    links = _links(next(iter(parts.values())).device, rounds)
    result = Profile(_header(spec, parts, most_tokens))
    result["tables"] = [{"tp": 1, **memory.tables(), "units": units}]
    result["optimizer"] = _optimizer(parts, optimizer, rounds)
    result.update(links)
    result.notes = tuple(rounds.notes)
    if out is not None and (not _is_distributed() or dist.get_rank() == 0):
        _write(result, os.fspath(out))
    return result


@dataclass
class _Part:
    name: str
    module: torch.nn.Module
    layers: int
    needs_gradient: bool
    """Whether its input needs one."""

    @property
    def device(self):
        return next((tensor.device for tensor in self.module.parameters()), torch.device("cpu"))


def _trains(module):
    return any(parameter.requires_grad for parameter in module.parameters())


def _model(model):
    where = "model"
    if isinstance(model, (str, os.PathLike)):
        where = os.fspath(model)
        with open(model, encoding="utf-8") as file:
            model = json.load(file)
    if model.get("schema") != "dflop.model":
        raise InputError(
            f"{where}: expected a file of schema 'dflop.model', found {model.get('schema')!r}; those in "
            "experiments/presets/models show what it has"
        )
    if "second" in model:
        raise InputError(f"{where}: key 'second': dflop.torch profiles models with one encoder")
    sizes = "name layers hidden ffn heads kv_heads head_dim gated_mlp causal vocabulary".split()
    return {
        "name": model["name"],
        "encoder": {key: model["encoder"][key] for key in sizes},
        "connector": {key: model["connector"][key] for key in ("widths", "merge")},
        "llm": {key: model["llm"][key] for key in sizes},
    }


def _parts(modules, spec):
    modules = {name: given if isinstance(given, tuple) else (given, 1) for name, given in modules.items()}
    if not modules:
        raise InputError(f"modules: expected some of {', '.join(SIDES)}, found none")
    for name, (module, layers) in modules.items():
        if name not in SIDES:
            raise InputError(f"modules: expected some of {', '.join(SIDES)}, found '{name}'")
        if layers < 1 or (layers > 1 and name not in LAYERED):
            raise InputError(
                f"modules['{name}']: expected one module or a number of layers, found {layers}"
            )
    trains = {name for name, (module, _) in modules.items() if _trains(module)}

    def part(name):
        module, layers = modules[name]
        # The first layer's input comes from the parts before it. The input of later layers comes from layers of the
        # same kind, too.
        sources = set(BEFORE[name])
        if name in LAYERED and layers < spec[name]["layers"]:
            sources.add(name)
        return _Part(name, module, layers, bool(sources & trains))

    return {name: part(name) for name in SIDES if name in modules}


def _lengths(samples, parts, most_tokens):
    """Returns the lengths to measure by side: the shortest, the quartiles and the longest that fits."""
    chosen = {}
    for side in dict.fromkeys(SIDES[name] for name in parts):
        found = sorted(int(length) for length in samples.get(side, ()))
        if not found or found[0] < 1:
            raise InputError(
                f"samples['{side}']: expected lengths of sequences of at least 1, found {found[:1] or 'none'}"
            )
        fitting = [length for length in found if length <= most_tokens]
        if not fitting:
            raise InputError(
                f"most_tokens: expected at least the shortest sequence of samples['{side}'], {found[0]}, "
                f"found {most_tokens}"
            )
        last = len(fitting) - 1
        chosen[side] = sorted({fitting[quarter * last // 4] for quarter in range(5)})
    return chosen


def _empty_units(most_tokens):
    """Returns units that take no time at any number of tokens."""

    def unit(length):
        return _points([(most_tokens, length, Times())], 1)

    units = {}
    for name in SIDES:
        if name in LAYERED:
            units[f"{name}_linear"] = unit(0)
            units[f"{name}_attention"] = unit(most_tokens)
        else:
            units[name] = unit(0)
    return units


def _measure(part, lengths, most_tokens, rounds, units, memory):
    """Adds the times of a part to `units` and its bytes to `memory`."""
    shortest = lengths[0]
    counts = [1]
    while 2 * counts[-1] * shortest <= most_tokens:
        counts.append(2 * counts[-1])
    linear = [(count * shortest, 0, rounds.times(part, [shortest] * count)) for count in counts]
    if part.name in LAYERED:
        linear, attention = _with_attention(linear, _differences(part, lengths, rounds))
        units[f"{part.name}_linear"] = _points(linear, part.layers)
        units[f"{part.name}_attention"] = _points(attention, part.layers)
    else:
        units[part.name] = _points(linear, part.layers)
    typical = lengths[len(lengths) // 2]
    memory.add(part, [typical] * max(1, most_tokens // typical), rounds)


def _differences(part, lengths, rounds):
    """Returns (tokens, length, Times minus the Times of as many tokens in the shortest sequences) by length."""
    shortest = lengths[0]
    points = [(shortest, shortest, Times())]
    for length in lengths[1:]:
        count = lengths[-1] // length
        tokens = count * length
        short = [shortest] * (tokens // shortest)
        if tokens % shortest:
            short.append(tokens % shortest)
        shorter = rounds.times(part, short, True)
        points.append((tokens, length, rounds.times(part, [length] * count, True).plus(shorter, -1)))
    return points


def _with_attention(linear, differences):
    """Returns the points of both curves, none of them negative. The time that the fastest length saves moves to the
    curve of attention.
    """
    least = Times(
        min(times.forward / tokens for tokens, _, times in differences),
        min(times.backward_input / tokens for tokens, _, times in differences),
        min(times.backward_weight / tokens for tokens, _, times in differences),
    )
    return tuple(
        [
            (tokens, length, times.plus(least, sign * tokens).at_least_zero())
            for tokens, length, times in points
        ]
        for points, sign in ((linear, 1), (differences, -1))
    )


def _points(points, layers):
    return {
        "tokens": [tokens for tokens, _, _ in points],
        "lengths": [length for _, length, _ in points],
        "forward_s": [times.forward / layers for _, _, times in points],
        "backward_input_s": [times.backward_input / layers for _, _, times in points],
        "backward_weight_s": [times.backward_weight / layers for _, _, times in points],
    }


class _Rounds:
    """Runs parts and measures them."""

    def __init__(self, make_input, repetitions, split):
        if repetitions < 1:
            raise InputError(f"repetitions: expected at least 1, found {repetitions}")
        self.make_input = make_input
        self.repetitions = repetitions
        self.split = split
        self.notes = []

    def times(self, part, lengths, of_attention=False):
        """Returns the median Times of a part. `of_attention`: the difference of sequence lengths belongs to
        attention."""
        positional, keywords = self.input(part, lengths)
        forward, backward_input, backward_weight = [], [], []
        for round_ in range(WARM_UP + self.repetitions):
            timer = _Timer(part.device)
            outputs = _outputs(part.module(*positional, **keywords))
            timer.lap()
            parts = self._backward(part, outputs, positional, timer, of_attention)
            if round_ >= WARM_UP:
                forward.append(timer.seconds(0))
                backward_input.append(parts[0]())
                backward_weight.append(parts[1]())
        where = f"{part.name}, {sum(lengths)} tokens in {len(lengths)} sequences"
        return Times(
            self.median(f"{where}, forward", forward),
            self.median(f"{where}, backward of the input", backward_input),
            self.median(f"{where}, backward of weights", backward_weight),
        )

    def _backward(self, part, outputs, positional, timer, of_attention):
        """Runs the backward pass and returns two functions: the seconds of its input part and of its weight part.
        """
        outputs = [output for output in outputs if output.requires_grad]
        if not outputs:
            return (lambda: 0.0), (lambda: 0.0)
        gradients = [torch.ones_like(output) for output in outputs]
        timer.lap()
        needed = [
            tensor for tensor in positional if isinstance(tensor, torch.Tensor) and tensor.requires_grad
        ]
        parameters = [parameter for parameter in part.module.parameters() if parameter.requires_grad]
        if self.split and needed and parameters:
            from torch.distributed.pipelining import _backward

            _, groups = _backward.stage_backward_input(outputs, gradients, needed, iter(parameters))
            timer.lap()
            _backward.stage_backward_weight(iter(parameters), groups)
            timer.lap()
            shares = (lambda: timer.seconds(2)), (lambda: timer.seconds(3))
        else:
            torch.autograd.backward(outputs, gradients)
            timer.lap()
            share = _weight_share(bool(needed), bool(parameters), of_attention)
            shares = (lambda: (1 - share) * timer.seconds(2)), (lambda: share * timer.seconds(2))
        for tensor in needed:
            tensor.grad = None
        return shares

    def input(self, part, lengths):
        """Returns positional arguments and keywords. Tensors of floats get gradients if the part needs them.
        """
        given = self.make_input(part.name, list(lengths))
        keywords = {}
        if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], dict):
            given, keywords = given
        positional = given if isinstance(given, tuple) else (given,)
        ready = [
            (
                value.detach().requires_grad_(part.needs_gradient)
                if isinstance(value, torch.Tensor) and value.is_floating_point()
                else value
            )
            for value in positional
        ]
        return ready, keywords

    def median(self, where, seconds):
        median = statistics.median(seconds)
        slow = [second for second in seconds if second > OUTLIER * median]
        if slow and median > 0:
            self.notes.append(
                f"{where}: {len(slow)} of {len(seconds)} rounds took up to {max(slow) / median:.1f} medians"
            )
        return median


def _weight_share(has_input, has_weights, of_attention):
    if not has_weights:
        return 0.0
    if not has_input:
        return 1.0
    return ATTENTION_SHARE_OF_WEIGHTS if of_attention else LINEAR_SHARE_OF_WEIGHTS


def _outputs(output):
    """Returns the tensors in the output of a module: a tensor, a tuple, or a dict as from Hugging Face's modules.
    """
    if isinstance(output, torch.Tensor):
        return [output]
    values = output.values() if isinstance(output, dict) else output
    return [value for value in values if isinstance(value, torch.Tensor)]


class _Timer:
    """Measures the times of laps, on the device if it is a GPU."""

    def __init__(self, device):
        self._gpu = device.type == "cuda"
        self._marks = []
        if self._gpu:
            torch.cuda.synchronize(device)
        self.lap()

    def lap(self):
        if self._gpu:
            mark = torch.cuda.Event(enable_timing=True)
            mark.record()
            self._marks.append(mark)
        else:
            self._marks.append(time.perf_counter())

    def seconds(self, lap):
        first, last = self._marks[lap : lap + 2]
        if self._gpu:
            last.synchronize()
            return first.elapsed_time(last) / 1e3
        return last - first


class _Memory:
    """The bytes per token of parts."""

    def __init__(self):
        self._kept = {name: 0.0 for name in SIDES}
        self._input = {name: 0.0 for name in SIDES}
        self._forward = {name: 0.0 for name in SIDES}
        self._backward = {name: 0.0 for name in SIDES}

    def add(self, part, lengths, rounds):
        tokens = sum(lengths)
        positional, keywords = rounds.input(part, lengths)
        tensors = [value for value in positional if isinstance(value, torch.Tensor)]
        kept = _Kept(part.module, tensors)
        gpu = part.device.type == "cuda"
        if gpu:
            torch.cuda.reset_peak_memory_stats(part.device)
            before = torch.cuda.memory_allocated(part.device)
        with kept:
            outputs = _outputs(part.module(*positional, **keywords))
        after = torch.cuda.memory_allocated(part.device) if gpu else 0
        made = sum(output.nbytes for output in outputs)
        forward = max(0, torch.cuda.max_memory_allocated(part.device) - max(after, before)) if gpu else made
        trained = [output for output in outputs if output.requires_grad]
        backward = sum(output.nbytes for output in trained)
        backward += sum(tensor.nbytes for tensor in tensors if tensor.requires_grad)
        if gpu and trained:
            gradients = [torch.ones_like(output) for output in trained]
            torch.cuda.reset_peak_memory_stats(part.device)
            torch.autograd.backward(trained, gradients)
            backward = max(0, torch.cuda.max_memory_allocated(part.device) - after)
        given = sum(tensor.nbytes for tensor in tensors)
        self._kept[part.name] = kept.bytes / tokens / part.layers
        self._input[part.name] = given / tokens
        self._forward[part.name] = forward / tokens
        self._backward[part.name] = backward / tokens

    def tables(self):
        """Returns the tables. What recomputing modules keep already shows their recomputation, so selective equals
        none."""

        def row(values, full):
            layers = {f"{name}_layer": [values[name], values[name], full[name]] for name in LAYERED}
            return {**layers, **{name: values[name] for name in SIDES if name not in LAYERED}}

        again = {name: self._kept[name] + self._backward[name] for name in SIDES}
        return {
            "activation_bytes_per_token": row(self._kept, self._input),
            "forward_buffer_bytes_per_token": row(self._forward, self._forward),
            "backward_buffer_bytes_per_token": row(self._backward, again),
        }


class _Kept(torch.autograd.graph.saved_tensors_hooks):
    """Counts the bytes that a module keeps for its backward pass, including its inputs but not its parameters."""

    def __init__(self, module, inputs):
        super().__init__(self._keep, lambda tensor: tensor)
        own = [*module.parameters(), *module.buffers()]
        self._own = {tensor.untyped_storage().data_ptr() for tensor in own}
        self._storages = {}
        for tensor in inputs:
            self._keep(tensor)

    def _keep(self, tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._own:
            self._storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    @property
    def bytes(self):
        return sum(self._storages.values())


def _optimizer(parts, make, rounds):
    """Returns the line over parameters for an optimizer's step, on parameters like the trained ones."""
    line = {"start_s": 0.0, "s_per_parameter": 0.0}
    trained = [p for part in parts.values() for p in part.module.parameters() if p.requires_grad]
    if make is None or not trained:
        return line
    some, count = [], 0
    for parameter in trained:
        if some and count + parameter.numel() > MOST_OPTIMIZER_PARAMETERS:
            break
        some.append(parameter)
        count += parameter.numel()
    least = _step_seconds([torch.zeros(1, dtype=trained[0].dtype, device=trained[0].device)], make, rounds)
    whole = _step_seconds(some, make, rounds)
    return {"start_s": min(least, whole), "s_per_parameter": max(0.0, whole - least) / count}


def _step_seconds(like, make, rounds):
    copies = [torch.nn.Parameter(torch.zeros_like(tensor)) for tensor in like]
    for copy in copies:
        copy.grad = torch.ones_like(copy)
    stepping = make(copies)
    seconds = []
    for round_ in range(WARM_UP + rounds.repetitions):
        timer = _Timer(copies[0].device)
        stepping.step()
        timer.lap()
        if round_ >= WARM_UP:
            seconds.append(timer.seconds(0))
    return rounds.median(f"optimizer step of {sum(copy.numel() for copy in copies)} parameters", seconds)


def _is_distributed():
    return dist.is_available() and dist.is_initialized()


def _links(device, rounds):
    """Returns the lines over bytes for a message and for an all-reduce."""
    world = dist.get_world_size() if _is_distributed() else 1
    if world == 1:
        rounds.notes.append(
            "messages and all-reduces cost nothing: call profile() on ranks of torch.distributed to "
            "measure them"
        )
        free = {"start_s": 0.0, "s_per_byte": 0.0}
        return {"message": free, "all_reduce": [{"ranks": 2, **free}]}
    rank = dist.get_rank()

    def there_and_back(values):
        if rank < 2:
            turns = [dist.send, dist.recv] if rank == 0 else [dist.recv, dist.send]
            for turn in turns:
                turn(values, 1 - rank)

    def line(run, share):
        found = []
        for size in LINK_BYTES:
            values = torch.zeros(size, dtype=torch.uint8, device=device).view(torch.float32)
            seconds = []
            for round_ in range(WARM_UP + rounds.repetitions):
                dist.barrier()
                timer = _Timer(device)
                run(values)
                timer.lap()
                if round_ >= WARM_UP:
                    seconds.append(share * timer.seconds(0))
            found.append(statistics.median(seconds))
        slope = max(0.0, (found[1] - found[0]) / (LINK_BYTES[1] - LINK_BYTES[0]))
        return {"start_s": max(0.0, found[0] - slope * LINK_BYTES[0]), "s_per_byte": slope}

    return {
        "message": line(there_and_back, 0.5),
        "all_reduce": [{"ranks": world, **line(dist.all_reduce, 1.0)}],
    }


def _header(spec, parts, most_tokens):
    first = next(iter(parts.values()))
    dtype = next((parameter.dtype for parameter in first.module.parameters()), torch.float32)
    names = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}
    gpu = first.device.type == "cuda"
    settings = {"seed": torch.initial_seed(), "budget_s": 0, "most_tokens": most_tokens}
    if _is_distributed():
        settings["busy_ranks"] = dist.get_world_size()
    return {
        "schema": "dflop.profile",
        "version": 2,
        "dflop_version": _version(),
        "device": torch.cuda.get_device_name(first.device) if gpu else "host",
        "cpu": _processor(),
        "software": f"torch {torch.__version__} (dflop.torch.profile)",
        "dtype": names.get(dtype, str(dtype)),
        "value_bytes": dtype.itemsize,
        "sum_bytes": max(4, dtype.itemsize),
        "model": spec,
        "settings": settings,
    }


def _processor():
    """Returns the model name of the host's processor, in the spelling of dflop's C++ code."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version():
    try:
        return importlib.metadata.version("dflop")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _write(result, path):
    part = path + ".part"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    os.replace(part, path)
