"""What ranks tell each other in addition to messages: which rank failed first, and how many tokens a batch has."""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from contextlib import contextmanager

import torch.distributed as dist

from dflop._errors import DflopError

# A rank that fails on its own reports this within this many seconds. After that, a neighbor reports that it is gone.
_PATIENCE_S = 2.0
_STUCK_S = 5.0  # how long a rank that ends waits for a call that may never return
_LOOK_S = 0.25  # how often a rank that waits for others checks whether one of them failed


def _said(error):
    """Returns the kind and the first line of an error; torch adds the place in its sources on further lines."""
    return f"{type(error).__name__}: {str(error).strip()}".split("\n")[0]


class RankFailed(DflopError):
    """A rank failed, so all ranks stop.

    `rank` is the rank that failed first, or None if it cannot be determined which of several it was. `reason` is the
    message of that rank or of its neighbor.
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
        # The rank was slow, but did not die.
        self.timed_out = any(part in str(cause).lower() for part in ("timed out", "timeout", "in time"))


@contextmanager
def lost_peers(*ranks):
    """Turns errors of communication with the given ranks, or with all ranks if none is given, into PeerLost."""
    try:
        yield
    except RuntimeError as error:
        raise PeerLost(ranks or range(dist.get_world_size()), error) from error


class Waiting:
    """Waits for other ranks in a separate thread, so that the caller can continue without an answer."""

    def __init__(self):
        self._asked = None
        self._thread = None

    def run(self, call, look):
        """Returns the result of call(), or raises its exception. Meanwhile calls look(), which may also raise."""
        if self._asked is None:
            self._asked = queue.SimpleQueue()
            # A process does not wait for its daemon threads; this thread's call may never return.
            self._thread = threading.Thread(target=_answer, args=(self._asked,), daemon=True)
            self._thread.start()
        outcome, done = [], threading.Event()
        self._asked.put((call, outcome, done))
        while not done.wait(_LOOK_S):
            look()
        value, error = outcome.pop()
        if error is not None:
            raise error
        return value

    def close(self):
        """Ends the thread after its current call has returned."""
        if self._asked is not None:
            self._asked.put(None)
            self._asked = None

    def join(self, timeout):
        """Waits up to `timeout` seconds for the thread to end."""
        if self._thread is not None:
            self._thread.join(timeout)


def _answer(asked):
    while (one := asked.get()) is not None:
        call, outcome, done = one
        try:
            outcome.append((call(), None))
        except BaseException as error:
            outcome.append((None, error.with_traceback(None)))
        # The call holds connections, and other ranks wait until these are closed.
        del one, call, outcome
        done.set()


class Board:
    """A place in the store of torch.distributed where all ranks of an executor write, and read what others wrote."""

    def __init__(self, name, rank):
        self._store = dist.PrefixStore(f"dflop/{name}", dist.distributed_c10d._get_default_store())
        self._rank = rank
        self._ranks = dist.get_world_size()
        self._waiting = Waiting()
        self._steps = 0  # completed by this rank
        self._left_since = None  # when this rank first saw that another one has left

    def wait(self, call, *ranks):
        """Returns the result of call(), which waits for the given ranks, or for all ranks if none is given.

        Raises PeerLost if the call fails, and soon after any rank has reported that it failed or left. Only for calls
        that wait on the host: work on a GPU's stream belongs to the thread that submits it.
        """
        with lost_peers(*ranks):
            return self._waiting.run(call, self._look)

    def did_step(self):
        """Counts a step of this rank."""
        self._steps += 1

    def _look(self):
        if self._store.check(["failure"]):
            raise RuntimeError("another rank failed")
        if self._left_before() is None:
            return
        # The last messages in flight may arrive after their sender has left.
        now = time.monotonic()
        self._left_since = self._left_since or now
        if now - self._left_since > _PATIENCE_S:
            raise RuntimeError("another rank left")

    def _left_before(self):
        """Returns the first rank that left and its number of steps if this rank has done at least as many, else
        None."""
        if not self._store.check(["left"]):
            return None
        rank, steps = json.loads(self._store.get("left"))
        return (rank, steps) if rank != self._rank and steps <= self._steps else None

    def leave(self):
        """Reports that this rank takes no further step of the executor."""
        self._waiting.close()
        try:
            self._store.compare_set("left", "", json.dumps([self._rank, self._steps]))
        except RuntimeError:
            pass  # the store no longer exists

    def agree(self, step, value):
        """Returns whether all ranks that have called this for a step gave the same value, a text."""
        with lost_peers():
            self._store.set(f"begun{self._rank}", str(step + 1))
            return self._store.compare_set(f"value{step}", "", value).decode() == value

    def add(self, step, number, ranks):
        """Adds a whole number to the sum of a step, to which `ranks` ranks add once each."""
        with lost_peers():
            self._store.add(f"sum{step}", number)
            if self._store.add(f"added{step}", 1) == ranks:
                self._store.set(f"ready{step}", str(self._store.add(f"sum{step}", 0)))
                # Ranks end their steps together, so no rank still reads keys that are two steps old.
                for kind in ("sum", "added", "ready", "value"):
                    self._store.delete_key(f"{kind}{step - 2}")

    def sum(self, step):
        """Returns the sum of a step. Waits until all ranks have added to it, for at most torch's timeout for a message.

        Raises PeerLost if a rank failed, or did not add in time.
        """
        deadline = time.monotonic() + dist.distributed_c10d.default_pg_timeout.total_seconds()
        with lost_peers():
            while not self._store.check([f"ready{step}"]):
                self._look()
                if time.monotonic() > deadline:
                    raise RuntimeError("the tokens of the last stage did not come in time")
                time.sleep(0.001)
            return int(self._store.get(f"ready{step}"))

    def report(self, error, at):
        """Reports that this rank failed, or has lost another one, unless a failure was reported before.

        Returns the RankFailed to raise: the first failure of all ranks.
        """
        own = (self._rank, f"at {at}: {_said(error)}")
        self._waiting.close()
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
        """Delays the first rank, whose process may own the store, until the others know the reason. The delay is
        short."""
        deadline = time.monotonic() + 2 * _PATIENCE_S
        try:
            while self._rank == 0 and self._store.add("informed", 0) < self._ranks and time.monotonic() < deadline:
                time.sleep(0.01)
        except RuntimeError:
            pass  # the store no longer exists

    def stop_waiting(self):
        """Gives an abandoned call some time to return, because torch aborts if it returns while Python ends.

        The call returns when the rank at the other end has left. Two ranks that wait for each other end at different
        times.
        """
        self._waiting.join(_STUCK_S + 0.25 * (self._rank % 16))

    def _claim(self, rank, reason):
        return tuple(json.loads(self._store.compare_set("failure", "", json.dumps([rank, reason]))))

    def _wait_for_failure(self):
        """Returns the reported first failure, or None if no rank reports one in time."""
        deadline = time.monotonic() + _PATIENCE_S
        while not self._store.check(["failure"]):
            if time.monotonic() > deadline:
                return None
            time.sleep(0.01)
        return tuple(json.loads(self._store.get("failure")))

    def _begun(self, rank):
        """Returns the number of steps that a rank has begun."""
        return int(self._store.get(f"begun{rank}")) if self._store.check([f"begun{rank}"]) else 0

    def _suspect(self, error, at):
        """Returns the suspected rank and the reason. It is the rank that left, or the only silent rank at the other
        end; None if several are silent."""
        left = self._left_before()
        if left is not None:
            rank, steps = left
            after = f"after {steps} step{'s' if steps != 1 else ''}" if steps else "before its first step"
            return rank, (
                f"it closed its executor {after}, but rank {self._rank} is at {at}: all ranks must take the same "
                "number of steps"
            )
        if error.timed_out:
            begun = [self._begun(rank) for rank in range(self._ranks)]
            least, most = min(begun), max(begun)
            if begun.count(least) == 1 and least < most:
                return begun.index(least), (
                    f"it has begun {least} step{'s' if least != 1 else ''} while rank {begun.index(most)} has begun "
                    f"{most}: all ranks must call step() for every batch (rank {self._rank} waited in vain at {at})"
                )
        others = [rank for rank in error.peers if rank != self._rank]
        others = others or [rank for rank in range(self._ranks) if rank != self._rank]
        silent = [rank for rank in others if not self._store.check([f"stopped{rank}"])] or others
        reason = f"rank {self._rank} lost it at {at} ({error})"
        if len(silent) == 1:
            return silent[0], reason
        return None, f"one of {', '.join(map(str, silent))}: {reason}"


def _owner_of_store():
    """Returns the rank whose process owns the store of torch.distributed, or None if torchrun owns it."""
    return None if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" else 0
