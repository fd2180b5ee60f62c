"""A BatchSampler returns the balanced microbatches of each dp rank."""

from __future__ import annotations

import array
import collections
import hashlib
import json
import logging
import os
import sys
import warnings
from typing import Any, Iterator, Literal

from dflop import _agreement
from dflop._comparison import Comparison
from dflop._epochs import Permutations, Position, log_left_out, make_state, read_state
from dflop._errors import InputError, ServerError
from dflop._outliers import MOST_DELAY, Moves, delay_outliers as regrouped, window_of
from dflop._partition import (
    LEAST_WAIT_S,
    MOST_SEED,
    MOST_WAIT_S,
    Costs,
    as_the_child_takes_them,
    finite_number,
    lpt,
    read_costs,
    require_whole,
    truth,
    whole_number,
)
from dflop._scheduling import Scheduling

_KEPT = 64  # steps; covers how far loaders draw ahead of the loop, and how far ranks are apart


def _place(dp_rank, dp_size):
    """Returns the requested dp rank and number of dp ranks, with the values of torch.distributed for "auto"."""
    ranks = _agreement.ranks_of_process_group()
    rank, size, why = dp_rank, dp_size, "as given"
    if ranks is None:
        _require_one_process(dp_rank, dp_size)
        if "auto" in (dp_rank, dp_size):
            why = "as there is one process"
        rank, size = 0 if dp_rank == "auto" else dp_rank, 1 if dp_size == "auto" else dp_size
    elif dp_rank is None:
        if dp_size == "auto":
            raise InputError(
                "dp_size: expected the number of dp ranks of the LLM, because dp_rank is None and torch.distributed "
                f"has {ranks[1]} ranks, found none"
            )
    else:
        if dp_rank == "auto" and dp_size not in ("auto", ranks[1], 1):
            raise InputError(
                f"dp_rank: expected a value, because torch.distributed has {ranks[1]} ranks and dp_size is {dp_size}, "
                "found none"
            )
        size = ranks[1] if dp_size == "auto" else dp_size
        if dp_rank == "auto":
            rank = ranks[0] if size == ranks[1] else 0
            why = "as in torch.distributed"
    whole = f"whole microbatches of {size} dp ranks" if rank is None else f"dp_rank {rank} of {size}"
    logging.getLogger("dflop").info("BatchSampler: %s, %s", whole, why)
    return rank, size


def _require_one_process(dp_rank, dp_size):
    """Rejects arguments that would give the same samples to several ranks if torch.distributed cannot tell them
    apart."""
    way_out = (
        "torch.distributed has no group of several ranks: make the sampler after init_process_group(), or give "
        "dp_rank and dp_size (pipeline ranks, which have the same samples: dp_rank=0, dp_size=1)"
    )
    if dp_rank == "auto" and dp_size not in ("auto", 1):
        raise InputError(f"dp_rank: expected this rank's number, because dp_size is {dp_size}, found none; {way_out}")
    launched = os.environ.get("WORLD_SIZE", "")
    if dp_size == "auto" and launched.isdecimal() and int(launched) > 1:
        raise InputError(
            f"dp_size: expected a value, because the environment has WORLD_SIZE={launched}, found none; {way_out}"
        )


class BatchSampler:
    """Returns the microbatches of one dp rank, as lists of indices: `microbatches` lists for each global batch.

        sampler = dflop.BatchSampler(costs, gbs=512, microbatches=16, dp_rank=rank, dp_size=4)
        loader = torch.utils.data.DataLoader(data, batch_sampler=sampler, collate_fn=pack)

    costs         a number per item, a pair (encoder, llm) per item, or columns `llm`, `encoder` and others
    dp_rank       of the LLM. None returns whole microbatches, with the items of dp rank 0 first, as ranks of a separate
                  encoder need them. "auto": the rank in torch.distributed
    dp_size       number of dp ranks of the LLM. "auto": the number of ranks of torch.distributed. Pipeline ranks, which
                  have the same samples, use dp_rank=0 and dp_size=1. If torch.distributed is not initialized when the
                  sampler is made, there must be only one process: WORLD_SIZE > 1, or dp_size > 1 without dp_rank, is an
                  error
    encoder_dp    number of ranks of a separate encoder
    method        as `dflop partition --method`
    drop_last     leaves out items of an epoch that do not fill a global batch, as `dflop` logs. If false, these items
                  are a smaller last batch, which gets items from the epoch's beginning if it has fewer items than bins
    delay_outliers  number of global batches that are regrouped together, so that items with a cost above the mean of a
                  bin run at the same time. A smaller last batch stays unchanged. At the end of an epoch, how far items
                  have moved is added to `log`. 0: none
    live          uses the best assignment found by the time the loop requests it, which may differ between runs
    agreement     a folder that all ranks see, a DirectoryAgreement or StoreAgreement, or None: the store of
                  torch.distributed if it is initialized when the first batch is drawn
    patience      seconds that the loop waits for an assignment before it continues without the child process
    compare       raises InputError if the samplers of the ranks of torch.distributed differ; see below

    At the beginning of each pass, the sampler is compared with the corresponding sampler (the first, the second, and so
    on) of every other rank of torch.distributed that has begun the pass. All need the same arguments, epoch and
    position, and each dp rank must belong to some rank. Use compare=False for a sampler that exists only on one rank.

    Every rank draws the same permutation and schedules the same batches in a child process, each while the loop is at
    the previous batch. The loop waits only for the first batch of a pass. If the child dies, another one is started,
    which gives the same answers. If that child also dies, or one hangs, LPT in Python is used for the batch, with a
    warning. Other ranks would not know of that, and with `live` they would not have the same answers. All ranks
    therefore use the answer that was given first (agreement). Several dp ranks without a way to agree get the error
    instead, because samples would be lost and repeated. Ranks of pipeline stages with dp_size 1 that do not use
    torch.distributed need an agreement.

    `state_dict` and `load_state_dict` resume exactly, even in the middle of a global batch, and on any dp_rank of a run
    with the same shape. A torch.utils.data.DataLoader with workers draws ahead of the loop. In that case, pass the
    number of microbatches of the epoch that the loop has received, state_dict(consumed=n), or use torchdata's
    StatefulDataLoader, which knows this number. A state that was saved after an epoch continues with the next one. Each
    `iter` starts from the beginning, except for the first one after load_state_dict, which continues. Nothing is drawn
    and no process is started before the first batch is requested.
    """

    def __init__(
        self,
        costs: Costs,
        *,
        gbs: int,
        microbatches: int,
        dp_rank: int | None | Literal["auto"] = "auto",
        dp_size: int | Literal["auto"] = "auto",
        encoder_dp: int = 0,
        method: str = "local-search",
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = True,
        live: bool = False,
        agreement: str | os.PathLike[str] | _agreement.Agreement | None = None,
        patience: float = 30.0,
        delay_outliers: int = 0,
        compare: bool = True,
    ) -> None:
        self._asked_for = (dp_rank, dp_size)
        dp_rank, dp_size = _place(dp_rank, dp_size)
        self._columns = read_costs(costs)
        self._scaled = as_the_child_takes_them(self._columns)
        self._items = len(self._columns["llm"])
        self._gbs = whole_number("gbs", gbs, 1)
        self._microbatches = whole_number("microbatches", microbatches, 1)
        self._dp_size = whole_number("dp_size", dp_size, 1)
        self._dp_rank = None if dp_rank is None else whole_number("dp_rank", dp_rank, 0)
        self._encoder_dp = whole_number("encoder_dp", encoder_dp, 0)
        self._seed = whole_number("seed", seed, 0, MOST_SEED)
        self._bins = self._microbatches * self._dp_size
        if self._dp_rank is not None and self._dp_rank >= self._dp_size:
            expected = f"a number from 0 to {self._dp_size - 1}, or None"
            raise InputError(f"dp_rank: expected {expected}, found {dp_rank}")
        if self._gbs < self._bins:
            raise InputError(f"gbs: expected at least microbatches x dp_size = {self._bins}, found {gbs}")
        least = self._gbs if truth("drop_last", drop_last) else self._bins
        if self._items < least:
            raise InputError(f"costs: expected at least {least} items, found {self._items}")
        self._method = method
        self._shuffle = truth("shuffle", shuffle)
        self._drop_last = truth("drop_last", drop_last)
        self._live = truth("live", live)
        self._window = whole_number("delay_outliers", delay_outliers, 0, MOST_DELAY)
        self._regrouped = None  # ((epoch, first step), items of the window, batch by batch)
        if isinstance(agreement, (str, os.PathLike)):
            agreement = _agreement.DirectoryAgreement(agreement)
        self._given_agreement = agreement
        self._patience = finite_number("patience", patience, LEAST_WAIT_S, MOST_WAIT_S)
        self._shape = self._describe()
        self._run_key = hashlib.sha256(json.dumps(self._shape, sort_keys=True).encode()).hexdigest()[:16]
        self._permutations = Permutations(self._items, self._seed, self._shuffle)
        if self._drop_last:
            log_left_out("BatchSampler", self._items, self._gbs)
        self._comparison = Comparison() if truth("compare", compare) else None
        self._known: collections.OrderedDict[tuple[int, int], list[int]] = collections.OrderedDict()  # (epoch, step) -> bin of each item of the batch
        self._filled = None  # ((epoch, step), items of each bin)
        self._scheduling = None
        self.log: list[str] = []
        """What went wrong, and what was done, as text."""
        self._position = Position("BatchSampler", len(self), self.log)

    # The interface for a DataLoader.

    def __len__(self) -> int:
        return self.steps * self._microbatches

    def __iter__(self) -> Iterator[list[int]]:
        self._require_known_ranks()
        position = self._position
        position.begin()
        if self._comparison is not None:
            claim = {**self._shape, "epoch": position.epoch, "position": position.done}
            self._comparison.begin(claim, self._dp_rank, self._dp_size)
        while position.done < len(self):
            step, microbatch = divmod(position.done, self._microbatches)
            if self._comparison is not None and microbatch == 0:
                self._comparison.look()
            indices = self._of_rank(step, microbatch)
            position.done += 1
            yield indices
        if self._window > 1:
            self.log.append(f"epoch {self.epoch}: outliers are delayed: {self._moves()}")
        if self._comparison is not None:
            self._comparison.end()
        position.end()

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass. Each epoch has its own permutation.

        The epoch of a loaded state continues at the position of the state. If that is the end of the epoch, passes stay
        empty until another epoch is named. Any other epoch begins at its start, with a warning if this discards a
        state.
        """
        self._position.set_epoch(epoch)

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """Returns the position of the sampler in a form that JSON can store: the epoch, and the number of its completed
        microbatches. After the last one, all of them count as completed until another pass begins.

        consumed  number of microbatches of this epoch that the loop has received, if a loader draws ahead of it, such
                  as a DataLoader with workers; default: all that were drawn
        """
        if consumed is None:
            state = self._position.state(self._shape)
        else:
            state = make_state(self._shape, self.epoch, whole_number("consumed", consumed, 0, len(self)))
        epoch, done = state["epoch"], state["done"]
        # In the middle of a batch, the rest must use the same bins as the first part.
        key = (epoch, done // self._microbatches)
        if done % self._microbatches and key in self._known:
            state["bins"] = list(self._known[key])
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues at the position of the state: in its epoch, or with the next epoch if all of it is done. Raises
        InputError for an invalid state, or a state of another run."""
        epoch, done = read_state(state, self._shape, len(self))
        known = collections.OrderedDict()
        if "bins" in state:
            step = done // self._microbatches
            try:
                require_whole(state["bins"], self._size_of(step), self._bins)
            except ServerError:
                raise InputError("state: bins: expected one for each item of a batch") from None
            known[epoch, step] = list(state["bins"])
        self._position.load(epoch, done)
        self._known, self._filled = known, None
        self.close()

    # Further information for a training loop.

    @property
    def steps(self) -> int:
        """The number of global batches in an epoch."""
        full, rest = divmod(self._items, self._gbs)
        return full if self._drop_last or rest == 0 else full + 1

    @property
    def epoch(self) -> int:
        """The epoch of the current or last pass; after load_state_dict(), the epoch of the next pass."""
        return self._position.epoch

    @property
    def dp_rank(self) -> int | None:
        return self._dp_rank

    @property
    def dp_size(self) -> int:
        return self._dp_size

    @property
    def drop_last(self) -> bool:
        """Does not exist. This rejects accelerate, which would read it and distribute the batches over ranks once
        more."""
        why = (
            "this loader would be sharded a second time, because dflop.BatchSampler already gives the microbatches of "
            "one rank: do not prepare (accelerator.prepare) or wrap it"
        )
        asks = sys._getframe(1).f_globals.get("__name__", "")
        raise InputError(why) if asks.split(".")[0] == "accelerate" else AttributeError(why)

    def batch(self, step: int) -> list[int]:
        """Returns the indices of a global batch of this epoch, in the order in which they were drawn unless outliers
        are delayed."""
        if not 0 <= step < self.steps:
            raise InputError(f"step: expected a number from 0 to {self.steps - 1}, found {step}")
        return self._drawn(self.epoch, step)

    def assignment(self, step: int) -> list[int]:
        """Returns the bin of each item of batch(step): microbatch * dp_size + dp rank."""
        key = (self.epoch, step)
        if key not in self._known:
            batch = self.batch(step)
            bins = self._agreed(step, self._schedule(step))
            require_whole(bins, len(batch), self._bins)
            self._known[key] = bins
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return self._known[key]

    def shapes(self, step: int) -> list[list[dict[str, Any]]]:
        """Returns the contents of each microbatch, by microbatch and dp rank: `items`, their `indices`, and the sum of
        each column of the costs. Every rank thus knows the shapes of all messages without communication."""
        shapes = []
        for indices in self._bins_of(step):
            shape = {"items": len(indices), "indices": list(indices)}
            for name, column in self._columns.items():
                shape[name] = sum(column[i] for i in indices)
            shapes.append(shape)
        return [shapes[j * self._dp_size : (j + 1) * self._dp_size] for j in range(self._microbatches)]

    def __repr__(self) -> str:
        return (
            f"BatchSampler({self._items} items, gbs={self._gbs}, microbatches={self._microbatches}, "
            f"dp_rank={self._dp_rank}, dp_size={self._dp_size}, epoch={self.epoch}, {self._position.done} of {len(self)} drawn)"
        )

    def __enter__(self) -> BatchSampler:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the child process. If the sampler is used again, it starts another one."""
        if self._scheduling is not None:
            self._scheduling.close()
            self._scheduling = None

    # The implementation.

    def _require_known_ranks(self):
        """Rejects ranks that nothing tells apart, because they would train the same samples."""
        ranks = _agreement.ranks_of_process_group()
        if ranks is not None and self._asked_for[1] == "auto" and ranks[1] != self._dp_size:
            raise InputError(
                f"dp_size: expected a value, because torch.distributed has {ranks[1]} ranks but was not initialized "
                f"when this sampler was made: every rank would get the samples of rank {self._dp_rank} of "
                f"{self._dp_size}. Make it after init_process_group(), or give dp_rank and dp_size (pipeline ranks: 0 "
                "and 1)"
            )

    def _describe(self):
        """Returns everything in which two samplers must agree if one continues from the state of the other."""
        costs = hashlib.sha256()
        for name in sorted(self._columns):
            costs.update(name.encode() + b"\0" + array.array("d", self._columns[name]).tobytes())
        return {
            "items": self._items,
            "costs": costs.hexdigest()[:16],
            "gbs": self._gbs,
            "microbatches": self._microbatches,
            "dp_size": self._dp_size,
            "encoder_dp": self._encoder_dp,
            "method": self._method,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "drop_last": self._drop_last,
            "delay_outliers": self._window,
        }

    def _size_of(self, step):
        return max(min(self._gbs, self._items - step * self._gbs), self._bins)

    def _in_window(self, epoch, step):
        """Returns the items of a whole batch in whose window the outliers were grouped."""
        window = window_of(step, self._items // self._gbs, self._window)
        key = (epoch, window[0])
        if self._regrouped is None or self._regrouped[0] != key:
            drawn = self._permutations.of(epoch)[window[0] * self._gbs : (window[-1] + 1) * self._gbs]
            costs = [sum(column[i] for column in self._scaled.values()) for i in drawn]
            order = regrouped(costs, self._gbs, self._microbatches, self._dp_size)
            self._regrouped = (key, [drawn[position] for position in order])
        begin = (step - window[0]) * self._gbs
        return self._regrouped[1][begin : begin + self._gbs]

    def _moves(self):
        moves = Moves()
        order = self._permutations.of(self.epoch)
        drawn_in = {item: position // self._gbs for position, item in enumerate(order)}
        for step in range(self._items // self._gbs):
            for item in self._in_window(self.epoch, step):
                moves.add(drawn_in[item], step)
        return moves

    def _drawn(self, epoch, step):
        if self._window > 1 and step < self._items // self._gbs:
            return self._in_window(epoch, step)
        order = self._permutations.of(epoch)
        batch = order[step * self._gbs : (step + 1) * self._gbs]
        if len(batch) < self._bins:
            drawn = set(batch)
            batch = batch + [i for i in order[: self._bins] if i not in drawn][: self._bins - len(batch)]
        return batch

    def _costs_of(self, epoch, step):
        """Returns the costs of a global batch, in the form that the child accepts. Equal streams give equal answers."""
        items = self._drawn(epoch, step)
        costs = {name: [column[i] for i in items] for name, column in self._scaled.items()}
        return {**costs, "stream": epoch * self.steps + step}

    def _bins_of(self, step):
        """Returns the items of each bin of a step."""
        key = (self.epoch, step)
        if self._filled is None or self._filled[0] != key:
            bins = [[] for _ in range(self._bins)]
            for item, b in zip(self.batch(step), self.assignment(step)):
                bins[b].append(item)
            self._filled = (key, bins)
        return self._filled[1]

    def _of_rank(self, step, microbatch):
        bins = self._bins_of(step)
        ranks = range(self._dp_size) if self._dp_rank is None else [self._dp_rank]
        return [item for r in ranks for item in bins[microbatch * self._dp_size + r]]

    def _schedule(self, step):
        if self._scheduling is None:
            options = {"bins": self._bins, "dp": self._dp_size, "encoder_dp": self._encoder_dp}
            options.update(method=self._method, seed=self._seed, live=self._live)
            self._scheduling = Scheduling(options, self._costs_of, self._patience, self.log)
        following = (self.epoch, step + 1) if step + 1 < self.steps else None
        try:
            return self._scheduling.bins_of(self.epoch, step, following)
        except ServerError as error:
            return self._without_child(step, error)

    def _without_child(self, step, error):
        if self._find_agreement() is None and self._is_one_of_several():
            raise ServerError(
                f"{error}. LPT in Python could take over, but other ranks would not know: give the sampler "
                "an 'agreement', a folder that all ranks see, or initialize torch.distributed before the "
                "first batch"
            ) from error
        message = f"epoch {self.epoch}, step {step}: {error}; LPT in Python takes over"
        self.log.append(message)
        logging.getLogger("dflop").warning(message)
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        costs = self._costs_of(self.epoch, step)
        del costs["stream"]
        return lpt(costs, self._bins, dp=self._dp_size, encoder_dp=self._encoder_dp)

    def _is_one_of_several(self):
        return self._dp_size > 1 or self._encoder_dp > 0

    def _find_agreement(self):
        return self._given_agreement or _agreement.of_process_group()

    def _agreed(self, step, bins):
        """Returns the bins that all ranks use for a step."""
        agreement = self._find_agreement()
        if agreement is None:
            if self._live and self._is_one_of_several():
                raise InputError(
                    "live: expected an agreement, because answers differ from rank to rank: a folder that all ranks "
                    "see, or torch.distributed initialized before the first batch"
                )
            return bins
        value = agreement.agree(self._key(step), json.dumps(bins, separators=(",", ":")).encode())
        if step >= _KEPT:  # no rank is this many steps behind
            agreement.forget(self._key(step - _KEPT))
        return json.loads(value)

    def _key(self, step):
        return f"{self._run_key}.{self.epoch}.{step}"

    def __getstate__(self):
        state = dict(self.__dict__)
        state["_scheduling"] = None  # a copy in another process has its own child
        return state
