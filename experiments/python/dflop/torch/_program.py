"""A Program defines what every rank does in one iteration, instruction by instruction. The simulator runs it, too."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

from dflop._errors import InputError


class Instruction(NamedTuple):
    """`index` refers to messages (send, receive) or collectives (all_reduce...); otherwise it is -1."""

    op: str
    stage: int
    microbatch: int
    index: int  # type: ignore[assignment]  # hides the method of tuple, which is not needed here


class Message(NamedTuple):
    """Rows [source_row, source_row + rows) of the source's result for the microbatch: its output, or the gradient of
    its input. They are placed from destination_row on in a matrix of `of` rows. Source and destination are groups."""

    source: int
    destination: int
    microbatch: int
    activations: int
    source_row: int
    destination_row: int
    rows: int
    of: int
    source_stage: int
    destination_stage: int


class StageDescription(NamedTuple):
    """The contents of a stage, in this order: numbers of layers, and whether it has the connector after the encoder's
    last layer, the embedding before the LLM's first, and the head after its last. In the whole model, its layers are
    numbered from `first_encoder_layer` and `first_llm_layer` on."""

    index: int  # type: ignore[assignment]
    encoder_layers: int
    llm_layers: int
    connector: bool
    embedding: bool
    head: bool
    first_encoder_layer: int = 0
    first_llm_layer: int = 0


class Collective(NamedTuple):
    """What groups sum: `gradients`, the gradients of the instruction's stage; `joined_ends`, the gradients of an
    embedding and a head that are the same matrix; or `norm`, the squares of all gradients."""

    groups: list[int]
    bytes: int
    sum: str


class Piece(NamedTuple):
    """`sequences` encoder sequences of a sample (a position in the batch), starting with first_sequence. They produce
    rows [first_row, first_row + rows) of the sample's encoder output."""

    llm_dp_rank: int
    sample: int
    first_sequence: int
    sequences: int
    first_row: int
    rows: int


SUMS = ("gradients", "joined_ends", "norm")
SENDS = frozenset(("send", "reshard_send"))
RECEIVES = frozenset(("receive", "reshard_receive"))
BACKWARDS = frozenset(("backward", "backward_input", "backward_weight"))
REDUCTIONS = frozenset(("all_reduce", "all_reduce_start", "all_reduce_wait"))
OPS = SENDS | RECEIVES | BACKWARDS | REDUCTIONS | {"forward", "optimizer_step"}


class Part:
    """The work of one rank on one microbatch at one stage.

    samples  positions in the batch of the samples whose LLM tokens this rank has, in the order of its rows; () at a
             stage with only the encoder
    pieces   the Pieces that this rank encodes, in the order of its rows; () if the stage has no encoder layers
    """

    __slots__ = ("stage", "microbatch", "dp_rank", "samples", "pieces")

    def __init__(
        self, stage: int, microbatch: int, dp_rank: int, samples: tuple[int, ...], pieces: tuple[Piece, ...]
    ) -> None:
        self.stage = stage
        self.microbatch = microbatch
        self.dp_rank = dp_rank
        self.samples = samples
        self.pieces = pieces

    def __repr__(self) -> str:
        return f"Part(stage={self.stage}, microbatch={self.microbatch}, dp_rank={self.dp_rank})"


class Group:
    """One rank of the program: `rank` is the global rank, `stages` are the stages that it holds, in ascending order."""

    def __init__(self, json: dict[str, Any]) -> None:
        self.rank: int = json["rank"]
        self.dp_rank: int = json["dp_rank"]
        self.instructions = [Instruction(*row) for row in json["instructions"]]
        unknown = sorted({i.op for i in self.instructions} - OPS)
        if unknown:
            raise InputError(
                f"program: group of rank {self.rank}: expected instructions that this version knows, found "
                f"{unknown[0]!r}"
            )
        self.stages = sorted({i.stage for i in self.instructions})
        if json["ranks"] != 1:
            raise InputError(
                f"program: group of rank {self.rank}: expected tp 1, because a stage's module runs on one rank, found "
                f"tp {json['ranks']}"
            )


class Program:
    """One iteration of a plan. `json` comes from `dflop simulate --program-out` or `dflop serve`. A PlanSampler adds
    the name of the plan's `order`, which is otherwise None."""

    def __init__(self, json: dict[str, Any]) -> None:
        if not isinstance(json, dict) or "groups" not in json:
            raise InputError(
                "program: expected an iteration of a file of 'dflop simulate --program-out', or of a PlanSampler, "
                f"found {type(json).__name__}"
            )
        self.microbatches: int = json["microbatches"]
        self.stages = _stages(json["stages"])
        self.groups = [Group(group) for group in json["groups"]]
        self.messages = self._read_messages(json["messages"])
        self.collectives = [_collective(index, row) for index, row in enumerate(json["collectives"])]
        self.sums = frozenset(collective.sum for collective in self.collectives)
        self.batch_size = len(json["bins"])
        self.ranks = 1 + max(group.rank for group in self.groups)
        # Programs of the same plan differ in these keys; repr() of numbers is the same in all processes.
        self.fingerprint = f"{zlib.crc32(repr((json['bins'], json['pieces'], json['messages'])).encode()):08x}"
        self._llm_dp = json["llm_dp"]
        # A separate encoder has its own dp ranks. Otherwise every rank of the LLM encodes for itself.
        self._shares_encoder = json["layout"] in ("disaggregated", "shared")
        self.layout: str = json["layout"]
        # Missing in the output of 'dflop simulate --program-out'.
        self.order: str | None = json.get("order")
        self._samples: dict[int, list[int]] = {}
        for sample, place in enumerate(json["bins"]):
            self._samples.setdefault(place, []).append(sample)
        self._pieces: dict[tuple[int, int], list[Piece]] = {}
        for microbatch, encoder_dp_rank, *piece in json["pieces"]:
            self._pieces.setdefault((microbatch, encoder_dp_rank), []).append(Piece(*piece))

    def _read_messages(self, rows):
        ends = [[None, None] for _ in rows]
        for group in self.groups:
            for i in group.instructions:
                if i.op in SENDS:
                    ends[i.index][0] = i.stage
                elif i.op in RECEIVES:
                    ends[i.index][1] = i.stage
        return [Message(*row, *end) for row, end in zip(rows, ends)]

    def group_of(self, rank: int) -> int:
        """Returns the index of a global rank's group; raises InputError if the plan has no such rank."""
        for index, group in enumerate(self.groups):
            if group.rank == rank:
                return index
        raise InputError(f"program: expected a plan with a rank {rank}, found {self.ranks} ranks")

    def part(self, stage: int, microbatch: int, dp_rank: int) -> Part:
        """Returns the Part of a dp rank at a stage."""
        holds_llm = _holds_llm(self.stages[stage])
        encodes_here = self.stages[stage].encoder_layers > 0 or self.stages[stage].connector
        samples: tuple[int, ...] = ()
        pieces: tuple[Piece, ...] = ()
        if holds_llm:
            samples = tuple(self._samples.get(microbatch * self._llm_dp + dp_rank, ()))
        if encodes_here:
            pieces = tuple(self._pieces.get((microbatch, dp_rank), ()))
        return Part(stage, microbatch, dp_rank, samples, pieces)

    def routes_to(self, group: int) -> dict[int, list[int]]:
        """Returns the messages to a group by source group, in the order in which they are sent."""
        received = [self.messages[i.index] for i in self.groups[group].instructions if i.op in RECEIVES]
        return {
            source: [
                i.index
                for i in self.groups[source].instructions
                if i.op in SENDS and self.messages[i.index].destination == group
            ]
            for source in {message.source for message in received}
        }

    def possible_routes(self) -> list[tuple[int, int]]:
        """Returns all (source group, destination group) between which a batch of this plan may send, in ascending
        order."""
        routes = set()
        for a, group in enumerate(self.groups):
            for b, other in enumerate(self.groups):
                if a != b and any(self._may_send(group, stage, other) for stage in group.stages):
                    routes |= {(a, b), (b, a)}
        return sorted(routes)

    def _may_send(self, group, stage, other):
        if stage + 1 not in other.stages:
            return False
        reshards = self._shares_encoder and not _holds_llm(self.stages[stage]) and _holds_llm(self.stages[stage + 1])
        return reshards or group.dp_rank == other.dp_rank


def _stages(rows):
    stages, encoder_layers, llm_layers = [], 0, 0
    for index, row in enumerate(rows):
        firsts = {"first_encoder_layer": encoder_layers, "first_llm_layer": llm_layers}
        stages.append(StageDescription(index, **row, **firsts))
        encoder_layers += row["encoder_layers"]
        llm_layers += row["llm_layers"]
    return stages


def _collective(index, row):
    found = row.get("sum")
    if found not in SUMS:
        what = "none, as with an older dflop: write the program again" if found is None else repr(found)
        raise InputError(f"program: collectives: {index}: sum: expected one of {', '.join(SUMS)}, found {what}")
    return Collective(row["groups"], row["bytes"], found)


def _holds_llm(stage):
    return stage.llm_layers > 0 or stage.embedding or stage.head
