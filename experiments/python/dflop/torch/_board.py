"""What ranks tell each other beside their messages: which of them failed first, and how many tokens a batch has."""

import datetime
import json
import time
from contextlib import contextmanager

import torch.distributed as dist

from dflop._errors import DflopError

# A rank that fails by itself has said so in this time; then a neighbour says that it is gone.
_PATIENCE = datetime.timedelta(seconds=2)


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


class Board:
    """A place in the store of torch.distributed where all ranks of an executor write, and read what others wrote."""

    def __init__(self, name, rank):
        self._store = dist.PrefixStore(f"dflop/{name}", dist.distributed_c10d._get_default_store())
        self._rank = rank

    def add(self, step, number, ranks):
        """Adds a whole number to the sum of a step, to which so many ranks add once each."""
        with lost_peers():
            self._store.add(f"sum{step}", number)
            if self._store.add(f"added{step}", 1) == ranks:
                self._store.set(f"ready{step}", str(self._store.add(f"sum{step}", 0)))
                # Ranks end their steps together, so that nobody reads what is two steps old.
                for kind in ("sum", "added", "ready"):
                    self._store.delete_key(f"{kind}{step - 2}")

    def sum(self, step):
        """Returns the sum of a step; waits until all ranks have added theirs. Raises PeerLost where one failed."""
        with lost_peers():
            while not self._store.check([f"ready{step}"]):
                if self._store.check(["failure"]):
                    raise RuntimeError("another rank failed")
                time.sleep(0.001)
            return int(self._store.get(f"ready{step}"))

    def report(self, error, at):
        """Says that this rank failed, or has lost another one, unless somebody has said something before.

        Returns the RankFailed to raise: the first failure of all ranks.
        """
        if isinstance(error, PeerLost):
            first = self._first()
            if first is None:
                lost = self._rank if error.peer is None else error.peer
                reason = f"at {at}" if error.peer is None else f"rank {self._rank} lost it at {at}"
                first = self._claim(lost, f"{reason} ({error})")
        else:
            first = self._claim(self._rank, f"at {at}: {type(error).__name__}: {error}")
        rank, reason = first
        return RankFailed(rank, reason, None if rank == self._rank else at)

    def _claim(self, rank, reason):
        value = json.dumps([rank, reason])
        try:
            return tuple(json.loads(self._store.compare_set("failure", "", value)))
        except Exception:  # the store is gone with the process that has it
            return rank, reason

    def _first(self):
        """Returns what a rank has said of the first failure, or None where none says anything in time."""
        try:
            self._store.wait(["failure"], _PATIENCE)
            return tuple(json.loads(self._store.get("failure")))
        except Exception:
            return None
