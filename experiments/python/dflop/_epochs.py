"""Epochs have a permutation of the items each, and a state says where in them a sampler is."""

import logging
import random
import sys
import warnings

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


class Position:
    """Where a sampler is: in which epoch, how many of its batches are done, and whether the next pass goes on there.

    sampler  the sampler's name, for messages
    whole    batches of an epoch
    log      a list to which what is warned of is added
    """

    def __init__(self, sampler, whole, log):
        self.done = 0  # batches, of the pass that is under way or was the last
        self._sampler = sampler
        self._whole = whole
        self._log = log
        self._epoch = 0
        self._over = False  # whether the last pass has ended
        self._named = False  # whether set_epoch() was called since the last pass began
        self._resumes = False  # whether the next pass goes on after a state that was loaded
        self._stays = False  # whether it is of the state's epoch although that is over, as set_epoch() named it

    @property
    def epoch(self):
        """The epoch of the pass that is under way or was the last; after load() and set_epoch() that of the next one."""
        return self._epoch + 1 if self._begins_the_next() else self._epoch

    def _begins_the_next(self):
        return self._resumes and self.done == self._whole and not self._named and not self._stays

    def begin(self):
        """Begins a pass: at the begin of the epoch, or where a loaded state is from."""
        if self._begins_the_next():
            self._epoch = whole_number("epoch", self._epoch + 1, 0, MOST_EPOCH)
            self.done, self._resumes = 0, False
        elif self._resumes:
            # A StatefulDataLoader may begin two passes in place of one that has nothing left: both stay empty.
            self._stays = self._resumes = self.done == self._whole
        else:
            self.done = 0
        self._named = self._over = False

    def end(self):
        """Ends a pass. A state says from now on that the epoch is over."""
        self._over = True

    def set_epoch(self, epoch):
        """Has the next pass be of an epoch. The one that a state was loaded of goes on where it is; any other one drops
        the state, of which a warning tells where it said more than that the epoch before is over."""
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
            f"{self._sampler}: the loaded state of epoch {self._epoch} ({self.done} of {self._whole} done) is dropped, as "
            f"set_epoch({epoch}) names another one, which begins at its start"
        )
        self._log.append(message)
        logging.getLogger("dflop").warning(message)
        warnings.warn(message, RuntimeWarning, stacklevel=4)

    def load(self, epoch, done):
        """Has the next pass go on after a state; after one that says that its epoch is over with the next epoch.

        A StatefulDataLoader keeps a state until it is iterated. There an epoch that set_epoch() has named since the
        last pass began was named later than the state was loaded, and is taken.
        """
        named = self._epoch if self._named and _is_asked_by("torchdata.stateful_dataloader") else None
        self._epoch, self.done, self._resumes = epoch, done, True
        self._named = self._over = self._stays = False
        if named is not None:
            self.set_epoch(named)

    def follow(self, epoch, done):
        """Takes over where another rank's sampler is, in a pass that is under way there."""
        self._epoch, self.done = epoch, done
        self._named = self._over = self._resumes = self._stays = False

    def state(self, shape):
        """Returns the state, as JSON can keep it."""
        return make_state(shape, self._epoch, self.done)


def _is_asked_by(package):
    """Returns whether a function of a package has called, directly or not."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name == package or name.startswith(package + "."):
            return True
        frame = frame.f_back
    return False


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
