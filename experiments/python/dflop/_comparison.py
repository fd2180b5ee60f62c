"""Compares the samplers of ranks that train together: if they differ, items are trained twice or never."""

from __future__ import annotations

import json
import os
from typing import Any

from dflop import _agreement
from dflop._errors import InputError

_WAY_OUT = (
    "samplers of ranks are compared in the order in which each rank makes them; make a sampler that only some ranks "
    "have, or that should differ, with compare=False"
)


class Comparison:
    """Compares a sampler with the corresponding samplers of other ranks, at the beginning of each pass, through the
    store of torch.distributed.

    No rank waits, because ranks need not have the same number of samplers. A rank that arrives later finds the
    difference, and a rank that has already continued learns of it at the next batch. If torch.distributed is not
    initialized, nothing is compared.
    """

    _made = 0

    def __init__(self) -> None:
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._place = f"dflop/samplers/{restart}.{Comparison._made}"
        Comparison._made += 1
        self._passes = 0  # completed passes
        self._begun: dict[str, Any] | None = None  # the claim with which the current pass began

    def begin(self, claim: dict[str, Any], dp_rank: int | None, dp_size: int) -> None:
        """Compares the claims of a pass. Raises InputError if two ranks differ, or no rank has one of the dp ranks."""
        store, ranks = _agreement.store_of_process_group(), _agreement.ranks_of_process_group()
        if store is None or ranks is None:
            return
        rank, world = ranks
        if self._begun not in (None, claim):
            self.end()  # the previous pass was abandoned
        self._begun = claim
        place = f"{self._place}.{self._passes}"
        first, others = json.loads(store.compare_set(place, "", json.dumps([rank, claim])))
        for key, value in claim.items():
            if others[key] != value and first != rank:
                found = f"{_text(key, others[key])} on rank {first} and {_text(key, value)} on rank {rank}"
                self._refuse(store, f"{key}: expected one value on all ranks, found {found}")
        if store.add(f"{place}/asked{rank}", 1) > 1:
            return  # this rank restarts the pass
        store.set(f"{place}/rank{rank}", json.dumps(dp_rank))
        if dp_rank is not None and store.add(f"{place}/dp{dp_rank}", 1) == 1:
            store.add(f"{place}/dp_ranks", 1)
        left = world - store.add(f"{place}/ranks", 1)
        if dp_size - store.add(f"{place}/dp_ranks", 0) > left:
            self._refuse(store, _not_taken(store, place, world, dp_size))

    def look(self) -> None:
        """Raises InputError if another rank has found a difference."""
        store = _agreement.store_of_process_group()
        if store is not None and store.check([self._place + "/differs"]):
            raise InputError(store.get(self._place + "/differs").decode())

    def end(self) -> None:
        """Ends a pass, so that the next one is compared with the next pass of the other ranks."""
        self._passes += 1
        self._begun = None

    def _refuse(self, store, message):
        message += f". All ranks need the same arguments except dp_rank, and the same set_epoch() and state; {_WAY_OUT}"
        raise InputError(store.compare_set(self._place + "/differs", "", message).decode())


def _text(key, value):
    return f"some with the hash {value}" if key == "costs" else value


def _not_taken(store, place, world, dp_size):
    """Describes which dp ranks are missing, and which dp rank each rank has."""
    said = {r: json.loads(store.get(f"{place}/rank{r}")) for r in range(world) if store.check([f"{place}/rank{r}"])}
    missing = [str(dp_rank) for dp_rank in range(dp_size) if dp_rank not in said.values()]
    found = ", ".join(f"{dp_rank} on rank {rank}" for rank, dp_rank in said.items())
    return (
        f"dp_rank: expected each of 0 to {dp_size - 1} on a rank, because dp_size is {dp_size} and torch.distributed "
        f"has {world} ranks, found {found}: too few ranks are left for {', '.join(missing)}, whose items would not be "
        "trained"
    )
