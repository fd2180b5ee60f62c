"""A Server is a child process `dflop serve`, which schedules while Python trains."""

from __future__ import annotations

import io
import itertools
import json
import logging
import os
import queue
import subprocess
import threading
import weakref
from concurrent.futures import Future, InvalidStateError, TimeoutError as FutureTimeout
from typing import Any

from dflop._errors import Infeasible, InputError, ServerError
from dflop._executable import executable

PROTOCOL = 1
_KINDS = {"usage": InputError, "input": InputError, "infeasible": Infeasible, "internal": ServerError}
_LONGEST_GREETING = 4096  # bytes
_LEAVING_S = 1.0  # time that a thread may take to notice that the process to which it writes has ended
_log = logging.getLogger("dflop")


class Server:
    """A child process that answers requests. It starts with the first request, and restarts with the next one after its
    death.

    Requests may come from several threads. A process forked from this one starts its own child.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._finalizer: weakref.finalize | None = None
        self.starts = 0  # number of times that a child was started
        _servers.add(self)

    def submit(self, method: str, params: dict[str, Any], only: int | None = None) -> Future:
        """Sends a request, and immediately returns the Future of its result. It has the same exceptions as `request`.

        only    the value of `starts` when the child for this request was started. If that child has ended, the request
                fails, and no other child is started
        """
        future: Future = Future()
        try:
            self._running(only).submit(method, params, future)
        except ServerError as error:
            future.set_exception(error)
        return future

    def request(self, method: str, params: dict[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """Sends a request, and returns its result.

        Raises InputError or Infeasible as reported by the child. Raises ServerError if the child dies, prints an
        invalid answer, or does not answer within `timeout` seconds; in the last two cases it is killed.
        """
        return self.wait(self.submit(method, params), timeout)

    def wait(self, future: Future, timeout: float | None = None) -> dict[str, Any]:
        """Returns the result of a submitted request; see `request`."""
        try:
            return future.result(timeout)
        except FutureTimeout:
            message = f"dflop serve has not answered in {timeout:.3g} s and was killed"
            with self._lock:
                if self._child is not None:
                    self._child.end(message)
            raise ServerError(message) from None

    @property
    def pid(self) -> int | None:
        """The process id of the child; None if there is no child."""
        child = self._child
        return child.process.pid if child is not None and not child.ended else None

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Kills the child, which stores nothing. A later request starts another one."""
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.end("the server was closed")

    def _running(self, only):
        with self._lock:
            child = self._child
            if child is not None and child.process.poll() is None and not child.ended:
                if only is None or only == self.starts:
                    return child
            elif only is None:
                if child is not None:
                    _log.info("dflop serve is started again: %s", child.death())
                self._child = _Child()
                self.starts += 1
                # The child ends when its server is garbage-collected.
                self._finalizer = weakref.finalize(self, self._child.end, "the server is gone")
                return self._child
            raise ServerError("the child process for this request has ended")

    def _forget_child(self):
        """Removes the child from the server in a forked process. The child of the first process continues."""
        self._lock = threading.Lock()
        if self._finalizer is not None:
            self._finalizer.detach()
        if self._child is not None:
            # If this end stayed open, the child would not notice the death of the first process.
            self._child.process.stdin.close()
            self._child = None


class _Child:
    """A process, a thread that writes to it, so that no caller blocks if the process does not read, and a thread that
    reads from it."""

    def __init__(self):
        try:
            # A separate session: Ctrl-C is meant for the training process. When that ends, the input of the child ends.
            self.process = subprocess.Popen(
                [executable(), "serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise ServerError(f"{executable()} cannot be started: {error}") from None
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._pending = {}
        self._message = None  # the reason why it was ended
        self._requests = queue.SimpleQueue()
        self.ended = False
        self._writer = threading.Thread(target=self._write, name="dflop serve", daemon=True)
        self._writer.start()
        threading.Thread(target=self._read, name="dflop serve", daemon=True).start()

    def submit(self, method, params, future):
        with self._lock:
            if self.ended:
                raise ServerError(self._message or "dflop serve died")
            number = next(self._ids)
            self._pending[number] = future
        self._requests.put((number, method, params))

    def end(self, message):
        """Kills the process, and fails all pending requests with the message."""
        with self._lock:
            self._message = self._message or message
        self.process.kill()
        self.process.wait()
        self._fail_pending()
        # The writing thread ends and closes its end of the pipe; the process to which it writes is gone.
        self._requests.put(None)
        self._writer.join(_LEAVING_S)

    def death(self):
        """Returns the reason why the child ended."""
        return self._message or self._death()

    def _write(self):
        with self.process.stdin:
            self._write_requests()

    def _write_requests(self):
        while True:
            request = self._requests.get()
            if request is None:
                return
            number, method, params = request
            try:
                line = json.dumps({"id": number, "method": method, "params": params}, separators=(",", ":"))
            except (TypeError, ValueError) as error:
                _settle(self._pending.pop(number, None), InputError(f"{method}: {error}"))
                continue
            data = memoryview(line.encode() + b"\n")
            try:
                while data:
                    data = data[self.process.stdin.write(data) :]
            except (OSError, ValueError):
                return  # the reader notices the end, too, and reports it

    def _read(self):
        message = None
        try:
            with io.BufferedReader(self.process.stdout) as answers:
                _require_greeting(answers.readline(_LONGEST_GREETING))
                for line in answers:
                    self._take(line)
        except ServerError as error:
            message = str(error)
        except OSError:
            pass
        self.end(message or self._death())

    def _death(self):
        """Describes how a process that closed its output ended."""
        try:
            code = self.process.wait(2)
        except subprocess.TimeoutExpired:
            return "dflop serve closed its output and was killed"
        return "dflop serve died " + (f"(exit code {code})" if code >= 0 else f"(signal {-code})")

    def _take(self, line):
        try:
            answer = json.loads(line)
            number, error = answer["id"], answer.get("error")
            outcome = dict(answer["result"]) if error is None else _KINDS[error["kind"]](error["message"])
        except (ValueError, KeyError, TypeError, AttributeError):
            message = f"dflop serve printed something other than an answer and was killed: {_start_of(line)}"
            raise ServerError(message) from None
        _settle(self._pending.pop(number, None), outcome)

    def _fail_pending(self):
        with self._lock:
            self.ended = True
            pending, self._pending = self._pending, {}
        for future in pending.values():
            _settle(future, ServerError(self._message))


def _require_greeting(line):
    try:
        # A process that printed nothing has ended. Its exit code is a better message.
        protocol = json.loads(line)["protocol"] if line else PROTOCOL
    except (ValueError, KeyError, TypeError):
        message = f"{executable()} is not dflop: expected the greeting of 'dflop serve', found {_start_of(line)}"
        raise ServerError(message) from None
    if protocol != PROTOCOL:
        raise ServerError(f"{executable()}: expected dflop serve of protocol {PROTOCOL}, found {protocol}")


def _start_of(line):
    text = line.decode(errors="replace").strip()
    return repr(text[:60] + "..." if len(text) > 60 else text)


def _settle(future, outcome):
    """Sets the result or exception of a future, if there is a future and it is still pending."""
    if future is None:
        return
    try:
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
    except InvalidStateError:
        pass


_servers: weakref.WeakSet[Server] = weakref.WeakSet()


def _forget_children():
    for server in list(_servers):
        server._forget_child()


os.register_at_fork(after_in_child=_forget_children)

_default = None
_default_lock = threading.Lock()


def default_server() -> Server:
    """Returns the server that the functions of the package share."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Server()
        return _default
