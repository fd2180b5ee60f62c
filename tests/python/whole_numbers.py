"""A multimodal model of whole numbers, and a Walk's work that computes with it. Threads are ranks, and nothing is
rounded.

A row is one number. Encoder layers add the sum of a sequence, LLM layers the sum of the preceding rows. The connector
makes one row of four. The loss is the sum of squared differences between the head's outputs for a row, one number per
word, and their targets. Everything except the loss is linear, so derivatives by hand are short.
"""

import math
import threading
from fractions import Fraction

from dflop.torch._program import Piece, Program
from dflop.torch._walk import Walk

WORDS = 3
PATIENCE_S = 60.0


# Parts of a stage: forward(x) and backward(x, y_grad) -> (x_grad, gradients of its weights). `rows` describes the rows
# that they compute.


class Layer:
    """y_i = w x_i + v (sum of the rows up to i in its sequence and, if not `causal`, also of those after it)."""

    def __init__(self, name, number, causal):
        self.weights = {f"{name}.own": 1 + number % 2, f"{name}.others": (-1) ** number}
        self.own, self.others = self.weights
        self.causal = causal

    def _sums(self, x, lengths, backward=False):
        sums, begin = [], 0
        for length in lengths:
            rows = x[begin : begin + length]
            if not self.causal:
                sums += [sum(rows)] * length
            else:
                sums += [sum(rows[i:] if backward else rows[: i + 1]) for i in range(length)]
            begin += length
        return sums

    def forward(self, x, rows):
        sums = self._sums(x, rows.lengths(self.causal))
        return [self.weights[self.own] * a + self.weights[self.others] * s for a, s in zip(x, sums)]

    def backward(self, x, rows, g):
        lengths = rows.lengths(self.causal)
        back = self._sums(g, lengths, backward=True)
        gradients = {self.own: _dot(g, x), self.others: _dot(g, self._sums(x, lengths))}
        return [self.weights[self.own] * a + self.weights[self.others] * s for a, s in zip(g, back)], gradients


class Patches:
    """The start of the encoder: y_i = w patch_i."""

    weights = {"patch": 2}

    def forward(self, x, rows):
        return [self.weights["patch"] * patch for patch in rows.patches]

    def backward(self, x, rows, g):
        return None, {"patch": _dot(g, rows.patches)}


class Connector:
    """Makes one row of four."""

    weights = {f"connector.{k}": k - 1 for k in range(4)}

    def forward(self, x, rows):
        return [sum(w * x[i + k] for k, w in enumerate(self.weights.values())) for i in range(0, len(x), 4)]

    def backward(self, x, rows, g):
        x_grad = [w * one for one in g for w in self.weights.values()]
        return x_grad, {name: _dot(g, x[k::4]) for k, name in enumerate(self.weights)}


class Embedding:
    """Puts the encoder's rows before the words of each sample."""

    weights = {f"word.{t}": t + 1 for t in range(WORDS)}

    def forward(self, x, rows):
        merged, begin = [], 0
        for seen, words in zip(rows.visual, rows.words):
            merged += x[begin : begin + seen] if seen else []
            merged += [self.weights[f"word.{t}"] for t in words]
            begin += seen
        return merged

    def backward(self, x, rows, g):
        x_grad, gradients, begin = [], dict.fromkeys(self.weights, 0), 0
        for seen, words in zip(rows.visual, rows.words):
            x_grad += g[begin : begin + seen]
            for t, one in zip(words, g[begin + seen :]):
                gradients[f"word.{t}"] += one
            begin += seen + len(words)
        return (None if x is None else x_grad), gradients


class Head:
    """The loss of the rows of words: sum over words t of (h_t x - [t is the next word])^2. Its backward takes 1."""

    def __init__(self, tied):
        self.names = [f"word.{t}" if tied else f"head.{t}" for t in range(WORDS)]
        self.weights = {name: t + 1 if tied else 2 - t for t, name in enumerate(self.names)}

    def _differences(self, x, rows):
        """Yields each row of a word with the excess of each h_t over its target."""
        begin = 0
        for seen, words in zip(rows.visual, rows.words):
            for place, word in enumerate(words):
                row = begin + seen + place
                yield row, [self.weights[name] * x[row] - (t == word) for t, name in enumerate(self.names)]
            begin += seen + len(words)

    def forward(self, x, rows):
        return sum(d * d for _, differences in self._differences(x, rows) for d in differences)

    def backward(self, x, rows, g):
        x_grad, gradients = [0] * len(x), dict.fromkeys(self.names, 0)
        for row, differences in self._differences(x, rows):
            for name, d in zip(self.names, differences):
                x_grad[row] += 2 * d * self.weights[name]
                gradients[name] += 2 * d * x[row]
        return x_grad, gradients


def _dot(a, b):
    return sum(x * y for x, y in zip(a, b))


class Rows:
    """The rows of a Part: from pieces at the encoder, from samples at the LLM. `samples` is the batch."""

    def __init__(self, part, samples):
        self.sequences, self.patches = [], []
        for piece in part.pieces:
            tokens = [t for count, t, _ in samples[piece.sample]["encoder_sequences"] for _ in range(count)]
            first, last = piece.first_sequence, piece.first_sequence + piece.sequences
            self.sequences += tokens[first:last]
            self.patches += [(7 * piece.sample + k) % 5 - 2 for k in range(sum(tokens[:first]), sum(tokens[:last]))]
        own = [samples[i] for i in part.samples]
        self.visual = [s["encoder_output_tokens"] for s in own]
        texts = [s["llm_tokens"] - s["encoder_output_tokens"] for s in own]
        self.words = [[(i + k) % WORDS for k in range(count)] for i, count in zip(part.samples, texts)]

    def lengths(self, of_llm):
        return [a + len(b) for a, b in zip(self.visual, self.words)] if of_llm else self.sequences


def parts_of(stages, stage, tied):
    """Returns a stage's parts for pieces and for samples."""
    first = stage.encoder_layers and not any(s.encoder_layers for s in stages[: stage.index])
    encoders = sum(s.encoder_layers for s in stages[: stage.index])
    llms = sum(s.llm_layers for s in stages[: stage.index])
    of_pieces = [Patches()] if first else []
    of_pieces += [Layer(f"encoder.{encoders + k}", encoders + k, False) for k in range(stage.encoder_layers)]
    of_pieces += [Connector()] if stage.connector and encoders + stage.encoder_layers else []
    of_samples = [Embedding()] if stage.embedding else []
    of_samples += [Layer(f"llm.{llms + k}", llms + k, True) for k in range(stage.llm_layers)]
    of_samples += [Head(tied)] if stage.head else []
    return of_pieces, of_samples


class Module:
    """A stage's parts and their gradients."""

    def __init__(self, stages, stage, tied):
        self.of_pieces, self.of_samples = parts_of(stages, stage, tied)
        self.gradients = {name: 0 for part in self.of_pieces + self.of_samples for name in part.weights}

    def forward(self, x, part, samples):
        """Returns the output or the loss, and the tape: each of its parts with its input and rows."""
        rows, tape = Rows(part, samples), []
        parts = (self.of_pieces if rows.sequences else []) + (self.of_samples if rows.words else [])
        for each in parts:
            tape.append((each, x, rows))
            x = each.forward(x, rows)
        return x, tape

    def backward(self, tape, g):
        """Returns the gradients of the input and of the weights, a dict for each part."""
        found = []
        for part, x, rows in reversed(tape):
            g, gradients = part.backward(x, rows, g)
            found.append(gradients)
        return g, found

    def add(self, found):
        for gradients in found:
            for name, value in gradients.items():
                self.gradients[name] += value


class Meetings:
    """Messages and sums between ranks that are threads."""

    def __init__(self):
        self._changed = threading.Condition()
        self._sent = {}
        self._sums = {}

    def send(self, index, rows):
        with self._changed:
            assert index not in self._sent, f"message {index} is sent twice"
            self._sent[index] = list(rows)
            self._changed.notify_all()

    def receive(self, index):
        with self._changed:
            assert self._changed.wait_for(lambda: index in self._sent, PATIENCE_S), f"message {index} does not come"
            return self._sent.pop(index)

    def sum(self, key, ranks, rank, values):
        """Returns the sums, by name, of the values that `ranks` ranks give under a key, once each."""
        with self._changed:
            given = self._sums.setdefault(key, {})
            assert rank not in given, f"rank {rank} gives to {key} twice"
            given[rank] = dict(values)
            self._changed.notify_all()
            there = self._changed.wait_for(lambda: len(given) == ranks, PATIENCE_S)
            assert there, f"rank {rank} waits for {key} with {len(given)} of {ranks} ranks"
            names = {name for one in given.values() for name in one}
            return {name: sum(one.get(name, 0) for one in given.values()) for name in names}


class Work:
    """A Walk's Work in whole numbers. `results` holds the inputs of optimizer steps, by stage and weight."""

    def __init__(self, program, group, samples, meetings, clip_norm, tied):
        self.program, self.samples, self.meetings = program, samples, meetings
        self.own, self.rank = program.groups[group], program.groups[group].rank
        self.clip_norm = clip_norm
        self.modules = {s: Module(program.stages, program.stages[s], tied) for s in self.own.stages}
        self.loss = 0
        self.tokens = sum(s["llm_tokens"] - s["encoder_output_tokens"] for s in samples)
        self.norm_squared = None
        self.scale = 1
        self.results = {}
        self.backwards_left = {
            s: sum(i.stage == s and i.op in ("backward", "backward_weight") for i in self.own.instructions)
            for s in self.own.stages
        }
        self.started, self.waited = {}, {}
        self.losses = 0

    def begin(self, i):
        pass

    def zeros(self, count, like):
        return [0] * count

    def send(self, i, rows):
        assert len(rows) == self.program.messages[i.index].rows
        self.meetings.send(i.index, rows)

    def receive(self, i):
        return self.meetings.receive(i.index)

    def forward(self, i, unit, part):
        y, unit.tape = self.modules[i.stage].forward(unit.x, part, self.samples)
        if i.stage == len(self.program.stages) - 1:
            self.loss += y
            unit.y_grad = 1
        else:
            unit.output = y

    def forward_nothing(self, i):
        pass

    def losses_are_known(self):
        self.losses += 1

    def backward_input(self, i, unit):
        if unit.tape is not None and unit.y_grad is not None:
            x_grad, unit.split = self.modules[i.stage].backward(unit.tape, unit.y_grad)
            self._give(unit, x_grad)

    def backward(self, i, unit):
        self.backwards_left[i.stage] -= 1
        if unit.split is None and unit.tape is not None and unit.y_grad is not None:
            x_grad, unit.split = self.modules[i.stage].backward(unit.tape, unit.y_grad)
            self._give(unit, x_grad)
        self.modules[i.stage].add(unit.split or [])

    @staticmethod
    def _give(unit, x_grad):
        if unit.x is not None:
            unit.x_grad, unit.x = x_grad, None

    def _sum(self, stage, key, names):
        assert self.backwards_left[stage] == 0, f"stage {stage} is reduced before its last backward"
        gradients = self.modules[stage].gradients
        holders = sum(stage in group.stages for group in self.program.groups)
        gradients.update(self.meetings.sum(key, holders, self.rank, {name: gradients[name] for name in names}))

    def reduce(self, i):
        self._sum(i.stage, ("stage", i.stage), list(self.modules[i.stage].gradients))

    def start_reduction(self, i, buckets):
        self.started[i.stage] = self.started.get(i.stage, 0) + 1
        assert self.started[i.stage] <= buckets

    def wait_for_reduction(self, i):
        bucket = self.waited.get(i.stage, 0)
        self.waited[i.stage] = bucket + 1
        names = list(self.modules[i.stage].gradients)[bucket :: self.started[i.stage]]
        self._sum(i.stage, ("stage", i.stage, bucket), names)

    def join_ends(self, i):
        gradients = self.modules[i.stage].gradients
        words = {name: gradients[name] for name in gradients if name.startswith("word.")}
        gradients.update(self.meetings.sum(("ends", i.index), 2, self.rank, words))

    def find_norm(self, i):
        squares = 0
        for stage, module in self.modules.items():
            if self.rank != min(group.rank for group in self.program.groups if stage in group.stages):
                continue
            is_copy = self.program.stages[stage].head and not self.program.stages[stage].embedding
            squares += sum(g * g for name, g in module.gradients.items() if not (is_copy and name.startswith("word.")))
        ranks = len(self.program.collectives[i.index].groups)
        total = self.meetings.sum(("norm", i.index), ranks, self.rank, {"squares": squares})["squares"]
        self.norm_squared = Fraction(total, self.tokens**2)
        self.scale = min(1.0, self.clip_norm / math.sqrt(self.norm_squared))

    def optimizer_step(self, i):
        assert i.stage not in self.results, f"stage {i.stage} takes its step twice"
        gradients = self.modules[i.stage].gradients
        self.results[i.stage] = {name: self.scale * Fraction(g, self.tokens) for name, g in gradients.items()}


def run(program, samples, clip_norm=None, tied=False):
    """Runs all ranks of a Program and returns their Works. Raises the exception of the first rank that failed."""
    meetings = Meetings()
    works = [Work(program, g, samples, meetings, clip_norm, tied) for g in range(len(program.groups))]
    failures = []

    def run_rank(group):
        try:
            Walk(program, group, works[group]).run()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run_rank, args=(g,), daemon=True) for g in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return works


def alone(program, samples, tied=False):
    """Returns the mean loss and the gradients of all weights, computed in one pass: every sample by itself, through all
    stages."""
    modules = [Module(program.stages, stage, tied) for stage in program.stages]
    loss, tokens = 0, 0
    for i, sample in enumerate(samples):
        sequences = sum(count for count, _, _ in sample["encoder_sequences"])
        whole = program.part(len(program.stages) - 1, 0, 0)
        whole.samples = (i,)
        whole.pieces = (Piece(0, i, 0, sequences, 0, sample["encoder_output_tokens"]),) if sequences else ()
        x, tapes = None, []
        for module in modules:
            of_stage = Module.forward(module, x, whole, samples)
            x = of_stage[0]
            tapes.append(of_stage[1])
        loss += x
        tokens += sample["llm_tokens"] - sample["encoder_output_tokens"]
        g = 1
        for module, tape in zip(reversed(modules), reversed(tapes)):
            g, found = module.backward(tape, g)
            module.add(found)
    gradients = {}
    for module in modules:
        for name, value in module.gradients.items():
            gradients[name] = gradients.get(name, 0) + Fraction(value, tokens)
    return Fraction(loss, tokens), gradients
