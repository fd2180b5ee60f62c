"""Ranks learn which of them failed first."""

import json
import time
from contextlib import contextmanager

from dflop._errors import DflopError

_KEY = "dflop/failure"
_PATIENCE = 2.0  # seconds in which a rank that fails by itself has said so, before a neighbour says that it is gone


class RankFailed(DflopError):
    """A rank failed, and so all stop. `rank` is the one that was first, `reason` what it or its neighbour said."""

    def __init__(self, rank, reason, at):
        super().__init__(f"rank {rank} failed: {reason}" + (f" (this rank was at {at})" if at else ""))
        self.rank = rank
        self.reason = reason


class PeerLost(Exception):
    """Communication with other ranks failed; `peer` is the rank at the other end, None for several."""

    def __init__(self, peer, cause):
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.peer = peer


@contextmanager
def lost_peers(rank=None):
    """Turns errors of communication into PeerLost."""
    try:
        yield
    except RuntimeError as error:
        raise PeerLost(rank, error) from error


class FailureBoard:
    """A place in the process group's store where the first failure of an executor stands."""

    def __init__(self, store, rank, name):
        self._store = store
        self._rank = rank
        self._key = f"{_KEY}/{name}"

    def report(self, error, at):
        """Says that this rank failed, or has lost another one, unless somebody has said something before.

        Returns the RankFailed to raise: the first failure of all ranks.
        """
        if isinstance(error, PeerLost):
            first = self._first(_PATIENCE)
            if first is None:
                lost = self._rank if error.peer is None else error.peer
                reason = f"rank {self._rank} lost it at {at}" if error.peer is not None else f"at {at}"
                first = self._claim(lost, f"{reason} ({error})")
        else:
            first = self._claim(self._rank, f"at {at}: {type(error).__name__}: {error}")
        rank, reason = first
        return RankFailed(rank, reason, None if rank == self._rank else at)

    def _claim(self, rank, reason):
        value = json.dumps([rank, reason])
        try:
            kept = self._store.compare_set(self._key, "", value)
            return tuple(json.loads(kept))
        except Exception:  # the store is gone with the process that has it
            return rank, reason

    def _first(self, patience):
        deadline = time.monotonic() + patience
        while True:
            try:
                if self._store.check([self._key]):
                    return tuple(json.loads(self._store.get(self._key)))
            except Exception:
                return None
            if time.monotonic() > deadline:
                return None
            time.sleep(0.02)
