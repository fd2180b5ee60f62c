"""Samplers of ranks that belong together are compared: where they differ, items are trained twice or never."""

from __future__ import annotations

import json
import os
from typing import Any

from dflop import _agreement
from dflop._errors import InputError

_WAY_OUT = (
    "samplers of ranks are compared in the order in which each rank has made them; one that only some ranks have, or "
    "that is to differ, is made with compare=False"
)


class Comparison:
    """Compares a sampler with those that other ranks of torch.distributed have made in its place, at the begin of each
    pass, through their store.

    Nobody waits, as ranks need not have equally many samplers: who comes later finds the difference, and who has gone
    on already is told at the next batch. Where torch.distributed is not initialised nothing is compared.
    """

    _made = 0

    def __init__(self) -> None:
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._place = f"dflop/samplers/{restart}.{Comparison._made}"
        Comparison._made += 1
        self._passes = 0  # that are over
        self._begun: dict[str, Any] | None = None  # what the pass was begun with

    def begin(self, claim: dict[str, Any], dp_rank: int | None, dp_size: int) -> None:
        """Compares what a pass begins with. Raises InputError where two ranks differ, or a dp rank is nobody's."""
        store, ranks = _agreement.store_of_process_group(), _agreement.ranks_of_process_group()
        if store is None or ranks is None:
            return
        rank, world = ranks
        if self._begun not in (None, claim):
            self.end()  # a pass was left for another one
        self._begun = claim
        place = f"{self._place}.{self._passes}"
        first, others = json.loads(store.compare_set(place, "", json.dumps([rank, claim])))
        for key, value in claim.items():
            if others[key] != value and first != rank:
                found = f"{_text(key, others[key])} on rank {first} and {_text(key, value)} on rank {rank}"
                self._refuse(store, f"{key}: expected one value on all ranks, found {found}")
        if store.add(f"{place}/asked{rank}", 1) > 1:
            return  # the pass begins anew
        store.set(f"{place}/rank{rank}", json.dumps(dp_rank))
        if dp_rank is not None and store.add(f"{place}/dp{dp_rank}", 1) == 1:
            store.add(f"{place}/dp_ranks", 1)
        left = world - store.add(f"{place}/ranks", 1)
        if dp_size - store.add(f"{place}/dp_ranks", 0) > left:
            self._refuse(store, _not_taken(store, place, world, dp_size))

    def look(self) -> None:
        """Raises InputError where another rank has found a difference."""
        store = _agreement.store_of_process_group()
        if store is not None and store.check([self._place + "/differs"]):
            raise InputError(store.get(self._place + "/differs").decode())

    def end(self) -> None:
        """Counts a pass that is over: the next one is compared with the others' next one."""
        self._passes += 1
        self._begun = None

    def _refuse(self, store, message):
        message += f". All ranks need the same arguments but for dp_rank, and the same set_epoch() and state; {_WAY_OUT}"
        raise InputError(store.compare_set(self._place + "/differs", "", message).decode())


def _text(key, value):
    return f"some with the hash {value}" if key == "costs" else value


def _not_taken(store, place, world, dp_size):
    """Says which dp ranks nobody has, and what each rank that was there has."""
    said = {r: json.loads(store.get(f"{place}/rank{r}")) for r in range(world) if store.check([f"{place}/rank{r}"])}
    missing = [str(dp_rank) for dp_rank in range(dp_size) if dp_rank not in said.values()]
    found = ", ".join(f"{dp_rank} on rank {rank}" for rank, dp_rank in said.items())
    return (
        f"dp_rank: expected each of 0 to {dp_size - 1} on a rank, as dp_size is {dp_size} and torch.distributed has "
        f"{world} ranks, found {found}: too few are left for {', '.join(missing)}, whose items nobody would train"
    )
