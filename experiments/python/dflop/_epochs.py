"""Epochs have a permutation of the items each, and a state says where in them a sampler is."""

import logging
import random

from dflop._errors import InputError
from dflop._partition import whole_number

_STATE_VERSION = 1
MOST_EPOCH = 2**32 - 1  # numbers of batches, of which an epoch has fewer than 2^32, stay within 64 bits
_BEFORE = {"delay_outliers": 0}  # of states that were made before there was a key


class Permutations:
    """Keeps the permutation of the epoch that was asked for last; it depends on seed and epoch alone."""

    def __init__(self, items, seed, shuffle):
        self._items = items
        self._seed = seed
        self._shuffle = shuffle
        self._kept = None  # (epoch, permutation)

    def of(self, epoch):
        if self._kept is None or self._kept[0] != epoch:
            order = list(range(self._items))
            if self._shuffle:
                random.Random(f"{self._seed} {epoch}").shuffle(order)
            self._kept = (epoch, order)
        return self._kept[1]


def log_left_out(sampler, items, gbs):
    """Says how many items an epoch leaves out, as they fill no global batch."""
    if items % gbs:
        logging.getLogger("dflop").info(
            "%s: each epoch leaves out %d of %d items, which fill no global batch of %d", sampler, items % gbs, items, gbs
        )


def make_state(shape, epoch, done):
    """Returns a state, as JSON can keep it. A sampler goes on with the state of another one of the same `shape`."""
    return {"version": _STATE_VERSION, "shape": dict(shape), "epoch": epoch, "done": done}


def read_state(state, shape, most_done):
    """Returns the epoch of a state, and what was done of it. Raises InputError for what is none, or of another run."""
    if not isinstance(state, dict) or state.get("version") != _STATE_VERSION:
        found = state.get("version") if isinstance(state, dict) else state
        raise InputError(f"state: expected version {_STATE_VERSION}, found {found}")
    for key, value in shape.items():
        found = state.get("shape", {}).get(key, _BEFORE.get(key))
        if found != value:
            raise InputError(f"state: expected {key} {value}, as the sampler has, found {found}")
    epoch = whole_number("state: epoch", state.get("epoch"), 0, MOST_EPOCH)
    done = whole_number("state: done", state.get("done"), 0)
    if done > most_done:
        raise InputError(f"state: done: expected at most {most_done}, as an epoch has, found {done}")
    return epoch, done
