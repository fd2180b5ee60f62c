"""Each epoch has its own permutation of the items, and a state stores the position of a sampler in it."""

import logging
import random
import sys
import warnings

from dflop._errors import InputError
from dflop._partition import whole_number

_STATE_VERSION = 1
MOST_EPOCH = 2**32 - 1  # an epoch has fewer than 2^32 batches, so that batch numbers fit into 64 bits
_BEFORE = {"delay_outliers": 0}  # for states that were made before these keys existed


class Permutations:
    """Caches the permutation of the last requested epoch. It depends only on seed and epoch."""

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


class Position:
    """The position of a sampler: its epoch, the number of completed batches, and whether the next pass continues there.

    sampler  the sampler's name, for messages
    whole    number of batches in an epoch
    log      a list to which warnings are added
    """

    def __init__(self, sampler, whole, log):
        self.done = 0  # number of completed batches in the current or last pass
        self._sampler = sampler
        self._whole = whole
        self._log = log
        self._epoch = 0
        self._over = False  # whether the last pass has ended
        self._named = False  # whether set_epoch() was called since the last pass began
        self._resumes = False  # whether the next pass continues from a loaded state
        self._stays = False  # whether it stays in the state's epoch although that is over, because set_epoch() named it

    @property
    def epoch(self):
        """The epoch of the current or last pass; after load() and set_epoch(), the epoch of the next pass."""
        return self._epoch + 1 if self._begins_the_next() else self._epoch

    def _begins_the_next(self):
        return self._resumes and self.done == self._whole and not self._named and not self._stays

    def begin(self):
        """Begins a pass, at the beginning of the epoch or at the position of a loaded state."""
        if self._begins_the_next():
            self._epoch = whole_number("epoch", self._epoch + 1, 0, MOST_EPOCH)
            self.done, self._resumes = 0, False
        elif self._resumes:
            # A StatefulDataLoader may begin two passes if a pass has nothing left: both stay empty.
            self._stays = self._resumes = self.done == self._whole
        else:
            self.done = 0
        self._named = self._over = False

    def end(self):
        """Ends a pass. From now on, a state says that the epoch is over."""
        self._over = True

    def set_epoch(self, epoch):
        """Sets the epoch of the next pass. If it is the epoch of a loaded state, the pass continues from there. Any
        other epoch discards the state, with a warning if the state contains more than the end of the previous epoch."""
        epoch = whole_number("epoch", epoch, 0, MOST_EPOCH)
        if epoch != self._epoch or (self._over and not self._resumes):
            if self._resumes and not self._named:
                self._warn_of_dropped(epoch)
            self._epoch, self.done = epoch, 0
            self._over = self._resumes = self._stays = False
        self._named = True

    def _warn_of_dropped(self, epoch):
        if self.done == 0 or self._stays or (self.done == self._whole and epoch == self._epoch + 1):
            return
        message = (
            f"{self._sampler}: the loaded state of epoch {self._epoch} ({self.done} of {self._whole} done) is dropped, "
            f"because set_epoch({epoch}) names another epoch, which begins at its start"
        )
        self._log.append(message)
        logging.getLogger("dflop").warning(message)
        warnings.warn(message, RuntimeWarning, stacklevel=4)

    def load(self, epoch, done):
        """Makes the next pass continue from a state. If the state's epoch is over, it is the next epoch.

        A StatefulDataLoader stores a state until it is iterated. If set_epoch() has named an epoch since the last pass
        began, it was called after the state was loaded there, so its epoch is used.
        """
        named = self._epoch if self._named and _is_asked_by("torchdata.stateful_dataloader") else None
        self._epoch, self.done, self._resumes = epoch, done, True
        self._named = self._over = self._stays = False
        if named is not None:
            self.set_epoch(named)

    def follow(self, epoch, done):
        """Moves to the position of another rank's sampler, in the middle of a pass."""
        self._epoch, self.done = epoch, done
        self._named = self._over = self._resumes = self._stays = False

    def state(self, shape):
        """Returns the state in a form that JSON can store."""
        return make_state(shape, self._epoch, self.done)


def _is_asked_by(package):
    """Returns whether the call came from a function of a package, directly or indirectly."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name == package or name.startswith(package + "."):
            return True
        frame = frame.f_back
    return False


def log_left_out(sampler, items, gbs):
    """Logs how many items an epoch leaves out because they do not fill a global batch."""
    if items % gbs:
        logging.getLogger("dflop").info(
            "%s: each epoch leaves out %d of %d items, because they do not fill a global batch of %d",
            sampler,
            items % gbs,
            items,
            gbs,
        )


def make_state(shape, epoch, done):
    """Returns a state in a form that JSON can store. Any sampler with the same `shape` can continue from it."""
    return {"version": _STATE_VERSION, "shape": dict(shape), "epoch": epoch, "done": done}


def read_state(state, shape, most_done):
    """Returns the epoch of a state and how much of it was done. Raises InputError for an invalid state, or one of
    another run."""
    if not isinstance(state, dict) or state.get("version") != _STATE_VERSION:
        found = state.get("version") if isinstance(state, dict) else state
        raise InputError(f"state: expected version {_STATE_VERSION}, found {found}")
    for key, value in shape.items():
        found = state.get("shape", {}).get(key, _BEFORE.get(key))
        if found != value:
            raise InputError(f"state: expected {key} {value}, as in the sampler, found {found}")
    epoch = whole_number("state: epoch", state.get("epoch"), 0, MOST_EPOCH)
    done = whole_number("state: done", state.get("done"), 0)
    if done > most_done:
        raise InputError(f"state: done: expected at most {most_done}, the length of an epoch, found {done}")
    return epoch, done
