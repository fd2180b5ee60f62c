"""A small multimodal model of packed rows for tests: any layers in any stages, and the same in one process.

A sequence of 4 n encoder tokens becomes n LLM tokens. Encoder layers mix the tokens of a sequence, and LLM layers mix
a sample's tokens from left to right, so a misplaced row changes the result. Contents are generated from a sample's
number.
"""

import torch
from torch import nn
from torch.nn import functional as F

from dflop.torch._program import Piece

PATCH, ENCODER, HIDDEN, VOCABULARY = 6, 12, 16, 11


def _seed(sample, kind):
    return 1000 * int(sample["id"].split()[1]) + kind


def patches(sample, dtype):
    tokens = sum(t for _, t, _ in sample["encoder_sequences"])
    return torch.randn(tokens, PATCH, generator=torch.Generator().manual_seed(_seed(sample, 1)), dtype=dtype)


def text(sample):
    """Returns the input tokens and targets of a sample's text."""
    count = sample["llm_tokens"] - sample["encoder_output_tokens"]
    generator = torch.Generator().manual_seed(_seed(sample, 2))
    return torch.randint(0, VOCABULARY, (2, count), generator=generator)


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = nn.Linear(ENCODER, ENCODER)
        self.others = nn.Linear(ENCODER, ENCODER)

    def forward(self, x, lengths):
        mean = torch.cat([part.mean(0, keepdim=True).expand_as(part) for part in x.split(lengths)])
        return x + torch.tanh(self.own(x) + self.others(mean))


class LlmLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = nn.Linear(HIDDEN, HIDDEN)
        self.before = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x, lengths):
        parts = [part.cumsum(0) / torch.arange(1, len(part) + 1, dtype=x.dtype)[:, None] for part in x.split(lengths)]
        return x + torch.tanh(self.own(x) + self.before(torch.cat(parts)))


class StageModule(nn.Module):
    """The parts of one stage of a program, according to its description."""

    def __init__(self, stages, stage, dtype, seed, tied=False):
        super().__init__()
        first = all(s.encoder_layers == 0 for s in stages[: stage.index])
        torch.manual_seed(100 * seed + stage.index)
        self.patch = nn.Linear(PATCH, ENCODER) if stage.encoder_layers and first else None
        self.encoder = nn.ModuleList(EncoderLayer() for _ in range(stage.encoder_layers))
        self.connector = nn.Linear(4 * ENCODER, HIDDEN) if stage.connector else None
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN) if stage.embedding else None
        self.llm = nn.ModuleList(LlmLayer() for _ in range(stage.llm_layers))
        self.head = nn.Linear(HIDDEN, VOCABULARY) if stage.head else None
        if tied and stage.head and stage.embedding:
            self.head.weight = self.embedding.weight
        self.to(dtype)

    def forward(self, x, *, patches, sequences, tokens, visual, lengths):
        if self.encoder or self.connector:
            if len(sequences) == 0:
                x = None
            else:
                x = self.patch(patches) if self.patch else x
                for layer in self.encoder:
                    x = layer(x, sequences)
                x = self.connector(x.reshape(-1, 4 * ENCODER)) if self.connector else x
        if self.embedding:
            x = self._merged(x, tokens, visual, lengths)
        for layer in self.llm:
            x = layer(x, lengths)
        return self.head(x) if self.head else x

    def _merged(self, x, tokens, visual, lengths):
        words, rows, parts = self.embedding(tokens), 0, []
        offset = 0
        for length, seen in zip(lengths, visual):
            if seen:
                parts.append(x[rows : rows + seen])
            parts.append(words[offset : offset + length - seen])
            rows, offset = rows + seen, offset + length - seen
        return torch.cat(parts)


def inputs(part, batch):
    """Makes the arguments for a stage's module. `batch` is (samples, type)."""
    samples, dtype = batch
    pieces, sequences = [], []
    for piece in part.pieces:
        sample = samples[piece.sample]
        tokens = [t for _, t, _ in sample["encoder_sequences"]]
        first, last = piece.first_sequence, piece.first_sequence + piece.sequences
        pieces.append(patches(sample, dtype)[sum(tokens[:first]) : sum(tokens[:last])])
        sequences += tokens[first:last]
    own = [samples[i] for i in part.samples]
    return {
        "patches": torch.cat(pieces) if pieces else None,
        "sequences": sequences,
        "tokens": torch.cat([text(s)[0] for s in own]) if own else None,
        "visual": [s["encoder_output_tokens"] for s in own],
        "lengths": [s["llm_tokens"] for s in own],
    }


def loss(output, part, batch):
    """Returns the summed loss of all text tokens, and their number."""
    own = [batch[0][i] for i in part.samples]
    ends = [part[s["encoder_output_tokens"] :] for s, part in zip(own, output.split([s["llm_tokens"] for s in own]))]
    targets = torch.cat([text(s)[1] for s in own])
    return F.cross_entropy(torch.cat(ends), targets, reduction="sum"), len(targets)


def end_of(module, stage):
    """Returns the matrix shared by embedding and head of a model that ties them."""
    return module.embedding.weight if stage.embedding else module.head.weight


def one_process(program, batch, seeds, tied=False):
    """Runs all microbatches of an iteration in one process, with a seed per stage.

    Returns the mean loss, and modules with their gradients.
    """
    stages = program.stages
    modules = [StageModule(stages, stage, batch[1], seeds[stage.index], tied) for stage in stages]
    if tied and not stages[-1].embedding:
        embedding = next(module.embedding for module in modules if module.embedding)
        modules[-1].head.weight = embedding.weight
    llm_dp = max(g.dp_rank for g in program.groups if len(stages) - 1 in g.stages) + 1
    loss_sum, tokens = 0.0, 0
    for microbatch in range(program.microbatches):
        for dp_rank in range(llm_dp):
            part = program.part(len(stages) - 1, microbatch, dp_rank)
            part.pieces = [_all_of(batch[0], i) for i in part.samples if batch[0][i]["encoder_sequences"]]
            x = None
            for module in modules:
                x = module(x, **inputs(part, batch))
            total, count = loss(x, part, batch)
            total.backward()
            loss_sum, tokens = loss_sum + total.item(), tokens + count
    for parameter in {parameter for module in modules for parameter in module.parameters()}:
        if parameter.grad is not None:
            parameter.grad /= tokens
    return loss_sum / tokens, modules


def _all_of(samples, i):
    sample = samples[i]
    return Piece(0, i, 0, len(sample["encoder_sequences"]), 0, sample["encoder_output_tokens"])
