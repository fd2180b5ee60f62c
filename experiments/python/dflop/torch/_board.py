"""What ranks tell each other beside their messages: which of them failed first, and how many tokens a batch has."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager

import torch.distributed as dist

from dflop._errors import DflopError

# A rank that fails by itself has said so after so many seconds; then a neighbour says that it is gone.
_PATIENCE_S = 2.0


def _said(error):
    """Returns an error's kind and message; torch adds where in its sources it came up, on further lines."""
    return f"{type(error).__name__}: {error}".split("\n")[0]


class RankFailed(DflopError):
    """A rank failed, and so all stop.

    `rank` is the one that was first, or None where nobody can tell which of several it was; `reason` is what it or its
    neighbour said.
    """

    def __init__(self, rank: int | None, reason: str, at: str | None) -> None:
        who = "a rank" if rank is None else f"rank {rank}"
        super().__init__(f"{who} failed: {reason}" + (f" (this rank was at {at})" if at else ""))
        self.rank = rank
        self.reason = reason


class PeerLost(Exception):
    """Communication with other ranks failed; `peers` are the ranks at the other end."""

    def __init__(self, peers, cause):
        super().__init__(_said(cause))
        self.peers = peers


@contextmanager
def lost_peers(*ranks):
    """Turns errors of communication with ranks, or with all where none is given, into PeerLost."""
    try:
        yield
    except RuntimeError as error:
        raise PeerLost(ranks or range(dist.get_world_size()), error) from error


class Board:
    """A place in the store of torch.distributed where all ranks of an executor write, and read what others wrote."""

    def __init__(self, name, rank):
        self._store = dist.PrefixStore(f"dflop/{name}", dist.distributed_c10d._get_default_store())
        self._rank = rank
        self._ranks = dist.get_world_size()

    def agree(self, step, value):
        """Returns whether all ranks that have asked for a step had the same value, a text."""
        with lost_peers():
            return self._store.compare_set(f"value{step}", "", value).decode() == value

    def add(self, step, number, ranks):
        """Adds a whole number to the sum of a step, to which so many ranks add once each."""
        with lost_peers():
            self._store.add(f"sum{step}", number)
            if self._store.add(f"added{step}", 1) == ranks:
                self._store.set(f"ready{step}", str(self._store.add(f"sum{step}", 0)))
                # Ranks end their steps together, so that nobody reads what is two steps old.
                for kind in ("sum", "added", "ready", "value"):
                    self._store.delete_key(f"{kind}{step - 2}")

    def sum(self, step):
        """Returns the sum of a step; waits until all ranks have added theirs, as long as torch waits for a message.

        Raises PeerLost where one failed, or did not add in time.
        """
        deadline = time.monotonic() + dist.distributed_c10d.default_pg_timeout.total_seconds()
        with lost_peers():
            while not self._store.check([f"ready{step}"]):
                if self._store.check(["failure"]):
                    raise RuntimeError("another rank failed")
                if time.monotonic() > deadline:
                    raise RuntimeError("the tokens of the last stage did not come in time")
                time.sleep(0.001)
            return int(self._store.get(f"ready{step}"))

    def report(self, error, at):
        """Says that this rank failed, or has lost another one, unless somebody has said something before.

        Returns the RankFailed to raise: the first failure of all ranks.
        """
        own = (self._rank, f"at {at}: {_said(error)}")
        try:
            self._store.set(f"stopped{self._rank}", "")
            if isinstance(error, PeerLost):
                rank, reason = self._wait_for_failure() or self._claim(*self._suspect(error, at))
            else:
                rank, reason = self._claim(*own)
            self._store.add("informed", 1)
        except Exception as lost:
            rank, reason = own
            if isinstance(error, PeerLost):
                rank, reason = _owner_of_store(), f"the store of torch.distributed is gone ({_said(lost)})"
        return RankFailed(rank, reason, None if rank == self._rank else at)

    def linger(self):
        """Keeps the first rank, whose process may have the store, until the others know why. Not for long."""
        deadline = time.monotonic() + 2 * _PATIENCE_S
        try:
            while self._rank == 0 and self._store.add("informed", 0) < self._ranks and time.monotonic() < deadline:
                time.sleep(0.01)
        except RuntimeError:
            pass  # the store is gone already

    def _claim(self, rank, reason):
        return tuple(json.loads(self._store.compare_set("failure", "", json.dumps([rank, reason]))))

    def _wait_for_failure(self):
        """Returns what a rank has said of the first failure, or None where none says anything in time."""
        deadline = time.monotonic() + _PATIENCE_S
        while not self._store.check(["failure"]):
            if time.monotonic() > deadline:
                return None
            time.sleep(0.01)
        return tuple(json.loads(self._store.get("failure")))

    def _suspect(self, error, at):
        """Returns the rank that says nothing of those at the other end, None where there are several, and why."""
        others = [rank for rank in error.peers if rank != self._rank]
        silent = [rank for rank in others if not self._store.check([f"stopped{rank}"])] or others
        reason = f"rank {self._rank} lost it at {at} ({error})"
        if len(silent) == 1:
            return silent[0], reason
        return None, f"one of {', '.join(map(str, silent))}: {reason}"


def _owner_of_store():
    """Returns the rank whose process has the store of torch.distributed, or None where it is that of torchrun."""
    return None if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" else 0
