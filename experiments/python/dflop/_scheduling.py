"""A Scheduling is a session of the child process that is one global batch ahead of a sampler."""

import time

from dflop._errors import ServerError
from dflop._partition import require_whole
from dflop._server import Server

_MOST_FAILURES = 3


class Scheduling:
    """Schedules batches, each while the loop trains on the previous one.

    options    of the child's `open`
    batch_of   returns a global batch in the form of the child's `push`: batch_of(epoch, step)
    patience   seconds that bins_of() may take
    bins       number of bins, if the options do not contain it, as with a plan
    window_of  if the options delay outliers: returns the places (epoch, step), in order, of the batches that must be
               pushed together with the batch of a place. None: each batch is pushed by itself
    log        a list to which the child's messages about a batch are added
    """

    def __init__(self, options, batch_of, patience, log, bins=None, window_of=None):
        self._options = options
        self._bins = options["bins"] if bins is None else bins
        self._batch_of = batch_of
        self._window_of = window_of
        self._patience = patience
        self._log = log
        self._server = Server()
        self._failures = 0
        self._forget_session()

    def close(self):
        """Kills the child."""
        self._server.close()
        self._forget_session()

    def bins_of(self, epoch, step, following):
        """Returns the bin of each item of a batch; see `answer_of`."""
        return self.answer_of(epoch, step, following)["bins"]

    def answer_of(self, epoch, step, following):
        """Returns the child's answer for a batch; `following` is the (epoch, step) to schedule next, or None.

        If the child dies, another one is asked, as long as there is time. Raises ServerError if there is no answer, and
        immediately after several such failures; InputError for options that the child rejects.
        """
        if self._failures >= _MOST_FAILURES:
            raise ServerError(f"dflop serve failed {self._failures} times and is not started again")
        deadline = time.monotonic() + self._patience
        failures = []
        while len(failures) < 2 and (not failures or time.monotonic() < deadline):
            try:
                answer = self._ask((epoch, step), following, deadline)
                if failures:
                    self._log.append(
                        f"epoch {epoch}, step {step}: {failures[0]}; another child process gave the answer"
                    )
                return answer
            except ServerError as error:
                self._forget_session()
                failures.append(error)
        self._failures += 1
        raise failures[0]

    def _forget_session(self):
        self._session = None
        self._child = None  # the value of the server's `starts` when the session's child was started
        self._pushed = (
            {}
        )  # (epoch, step) -> (items, Future of push), in the order of the session
        self._places = []  # (epoch, step) of everything in the last push, a batch or a window
        self._first = 0  # the session's iteration of the first of these places

    def _ask(self, place, following, deadline):
        if self._session is not None and next(iter(self._pushed), place) != place:
            self._submit("close", {})
            self._forget_session()
        if self._session is None:
            opened = self._server.submit("open", self._options)
            self._child = self._server.starts
            self._session = self._wait(opened, deadline)["session"]
        if place not in self._pushed:
            self._push(place)
        for before in list(self._pushed):
            if before == place:
                break
            self._take(before, deadline)  # batches of a window in whose middle the sampler continues
        answer = self._take(place, deadline)
        if following is not None and not self._pushed:
            self._push(following)
        for event in answer["events"]:
            self._log.append(f"epoch {place[0]}, step {place[1]}: {event['kind']}: {event['message']}")
        return answer

    def _take(self, place, deadline):
        """Returns the answer for the next batch of the session. If outliers are delayed, its "drawn_at" has for each
        sample the place of the batch in which it was drawn, and its index there."""
        items, pushed = self._pushed[place]
        answered = self._submit("next", {})
        self._wait(pushed, deadline)
        answer = self._wait(answered, deadline)
        require_whole(answer.get("bins"), items, self._bins)
        if self._window_of is not None:
            answer["drawn_at"] = [
                (self._places[k - self._first], index) for k, index in answer.pop("pushed_at")
            ]
        del self._pushed[place]
        return answer

    def _push(self, place):
        """Pushes a batch together with its window, after everything pushed before has been answered."""
        window = [place] if self._window_of is None else self._window_of(place)
        self._first += len(self._places)
        self._places = window
        for each in window:
            batch = self._batch_of(*each)
            items = len(next(iter(batch.values())))
            if self._window_of is not None and each == window[-1]:
                batch["ends_window"] = True
            self._pushed[each] = (items, self._submit("push", {"batch": batch}))

    def _submit(self, method, params):
        return self._server.submit(method, {"session": self._session, **params}, only=self._child)

    def _wait(self, future, deadline):
        return self._server.wait(future, max(deadline - time.monotonic(), 0.001))
