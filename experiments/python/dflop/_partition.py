"""Assigns items to bins of about equal cost."""

from __future__ import annotations

import heapq
import math
import operator
import time
import warnings
from typing import Any, Iterable, Mapping, Union

from dflop import _spread
from dflop._errors import InputError, Infeasible, ServerError
from dflop._server import Server, default_server

Costs = Union[Iterable[float], Iterable[tuple[float, float]], Mapping[str, Iterable[float]], Any]
"""A number an item, a pair (encoder, llm) an item, or columns: lists, tensors, arrays, or a DataFrame."""

_FEW = 1024  # items; with more, local search is as good as Karmarkar-Karp, which would double the time
_MOST_COST = 1e9  # the largest number that the child accepts
MOST_SEED = 2**64 - 1
LEAST_WAIT_S, MOST_WAIT_S = 0.001, 1e9  # limits for waiting for a child; threads cannot wait longer


def read_costs(costs: Any) -> dict[str, list[float]]:
    """Returns a dict of lists of floats: `llm` and, if present, `encoder`, `tokens` and further columns.

    `costs` has a number per item, a pair (encoder, llm) per item, or is a mapping of such columns (a dict, or a
    DataFrame of pandas or polars). Raises InputError naming the item for anything but a finite number >= 0.
    """
    names = _column_names(costs)
    if names is not None:
        columns = {str(name): _numbers(costs[name], f"column '{name}', ") for name in names}
        if "llm" not in columns:
            raise InputError(f"costs: expected a column 'llm', found {sorted(columns)}")
    else:
        rows = _listed(costs, "costs")
        if rows and all(isinstance(row, (list, tuple)) and len(row) == 1 for row in rows):
            rows = [row[0] for row in rows]  # an array of one column
        if rows and isinstance(rows[0], (list, tuple)):
            for i, row in enumerate(rows):
                if not isinstance(row, (list, tuple)) or len(row) != 2:
                    raise InputError(f"costs: item {i}: expected a pair (encoder, llm), found {row!r}")
            columns = {"encoder": _numbers([e for e, _ in rows]), "llm": _numbers([l for _, l in rows])}
        else:
            columns = {"llm": _numbers(rows)}
    for name, column in columns.items():
        if len(column) != len(columns["llm"]):
            count = len(columns["llm"])
            raise InputError(
                f"costs: column '{name}': expected {count} items, as in 'llm', found {len(column)}"
            )
    return columns


def _column_names(costs):
    """Returns the column names of a mapping or DataFrame; None if it has no columns."""
    if hasattr(costs, "keys"):  # a pandas Series has keys, too
        return list(costs.keys()) if getattr(costs, "ndim", 2) == 2 else None
    names = getattr(costs, "columns", None)
    return list(names) if isinstance(names, (list, tuple)) else None


def _listed(values, what):
    if isinstance(values, (str, bytes)):
        raise InputError(f"{what}: expected numbers, found {values!r}")
    try:
        return values.tolist() + [] if hasattr(values, "tolist") else list(values)
    except TypeError:
        raise InputError(f"{what}: expected one number per item, found {values!r}") from None


def _numbers(column, where=""):
    numbers = []
    for i, value in enumerate(_listed(column, f"costs: {where}".rstrip(", "))):
        try:
            # Booleans count as numbers in Python but are not costs, and float() would convert text.
            is_number = hasattr(value, "__float__") and not type(value).__name__.startswith("bool")
            number = float(value) if is_number else -1.0
        except (TypeError, ValueError, OverflowError):
            number = -1.0
        if not (number >= 0 and math.isfinite(number)):
            raise InputError(f"costs: {where}item {i}: expected a finite number of at least 0, found {value!r}")
        numbers.append(number)
    return numbers


def whole_number(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Returns the value as an int. Raises InputError unless it is a whole number >= `least`, and <= `most` if given."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least or (most is not None and number > most):
        range = f"from {least} up" if most is None else f"from {least} to {most}"
        raise InputError(f"{name}: expected a whole number {range}, found {value!r}")
    return number


def finite_number(name: str, value: Any, least: float, most: float) -> float:
    """Returns the value as a float. Raises InputError unless it is a number from `least` to `most`."""
    try:
        number = math.nan if isinstance(value, (bool, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not least <= number <= most:
        raise InputError(f"{name}: expected a number from {least:g} to {most:g}, found {value!r}")
    return number


def truth(name: str, value: Any) -> bool:
    """Returns a boolean, which may come from numpy, or be 0 or 1. Raises InputError for anything else, such as text."""
    is_one = isinstance(value, int) or type(value).__name__.startswith("bool")
    if not is_one or value not in (0, 1):
        raise InputError(f"{name}: expected True or False, found {value!r}")
    return bool(value)


def as_the_child_takes_them(columns):
    """Returns the columns `llm` and `encoder` in a unit in which no number is too large for the child.

    The unit is a power of two, so that no precision is lost.
    """
    costs = {name: columns[name] for name in ("llm", "encoder") if name in columns}
    most = max((max(column, default=0.0) for column in costs.values()), default=0.0)
    if most <= _MOST_COST:
        return costs
    power = math.frexp(most)[1] - 29  # 2^29 <= 1e9
    return {name: [math.ldexp(cost, -power) for cost in column] for name, column in costs.items()}


def require_whole(bin_of, items, bins):
    """Raises ServerError unless each of the `items` items has a bin from 0 to bins - 1."""
    if (
        not isinstance(bin_of, list)
        or len(bin_of) != items
        or not all(isinstance(b, int) and 0 <= b < bins for b in bin_of)
    ):
        raise ServerError(f"dflop serve gave no bins to {items} items")


def lpt(
    costs: Costs, bins: int, *, dp: int = 1, encoder_dp: int = 0, most_items: int | None = None
) -> list[int]:
    """Assigns items to bins in plain Python: the largest item first, each to the bin with the smallest load.

    The load of a bin is the sum of its encoder and LLM loads. Returns the bin of each item. No bin is empty, and none
    has more than `most_items` items. This is the fallback when there is no child process.
    """
    columns = read_costs(costs)
    llm = columns["llm"]
    bins = whole_number("bins", bins, 1)
    if len(llm) < bins:
        raise InputError(f"costs: expected at least as many items as the {bins} bins, found {len(llm)}")
    if most_items is not None and most_items * bins < len(llm):
        raise InputError(f"most_items: expected at least {-(-len(llm) // bins)}, found {most_items}")
    share = dp / encoder_dp if encoder_dp else 1.0
    both = [cost + share * more for cost, more in zip(llm, columns.get("encoder", [0.0] * len(llm)))]
    # Among bins with equal loads, such as bins of items without cost, the one with the fewest items is used.
    heap = [(0.0, 0, b) for b in range(bins)]
    bin_of = [0] * len(llm)
    for i in sorted(range(len(llm)), key=lambda i: (-both[i], i)):
        load, count, b = heapq.heappop(heap)
        bin_of[i] = b
        if most_items is None or count + 1 < most_items:
            heapq.heappush(heap, (load + both[i], count + 1, b))
    return bin_of


def partition(
    costs: Costs,
    bins: int,
    *,
    dp: int = 1,
    encoder_dp: int = 0,
    method: str | None = None,
    objective: str | None = None,
    seed: int = 1,
    steps: int | None = None,
    time_limit: float | None = None,
    token_cap: int | None = None,
    equal_size: bool = False,
    allow_empty: bool = False,
    timeout: float = 60.0,
    fallback: bool = True,
    server: Server | None = None,
) -> list[list[int]]:
    """Assigns items to `bins` bins so that the largest load is small, and returns a list of item indices per bin.

    costs       a number per item, a pair (encoder, llm) per item, or columns `llm`, `encoder`, `tokens`
    dp          bin b is microbatch b // dp on dp rank b % dp
    encoder_dp  ranks of a separate encoder, which share the encoder work of a microbatch
    method      as `dflop partition --method`. Default: local-search. If items have one cost each and there is no cap:
                the smallest spread among the results of several methods, leveled by exchanges
    token_cap   max `tokens` of a bin
    equal_size  all bins have the same number of items
    timeout     seconds within which the child process must answer
    fallback    if the child dies twice or does not answer, uses LPT in Python instead, with a warning. False raises
                ServerError instead. Use False if every rank makes its own partition, because all ranks have to be told

    The same arguments give the same bins, unless there is a time limit (seconds). Raises InputError for wrong
    arguments, and Infeasible if no bins obey the cap.

        dflop.partition([9, 7, 6, 5, 4, 3], 2)    # [[0, 3, 5], [1, 2, 4]]
    """
    columns = read_costs(costs)
    unknown = sorted(columns.keys() - {"llm", "encoder", "tokens"})
    if unknown:
        raise InputError(f"costs: expected only columns llm, encoder and tokens, found {', '.join(map(repr, unknown))}")
    count = len(columns["llm"])
    bins = whole_number("bins", bins, 1)
    equal_size, allow_empty = truth("equal_size", equal_size), truth("allow_empty", allow_empty)
    fallback = truth("fallback", fallback)
    timeout = finite_number("timeout", timeout, LEAST_WAIT_S, MOST_WAIT_S)
    if count < bins and not allow_empty:
        raise InputError(f"costs: expected at least as many items as the {bins} bins, found {count}")
    dp = whole_number("dp", dp, 1)
    if bins % dp:
        raise InputError(f"bins: expected a multiple of dp = {dp}, found {bins}")
    if count == 0:
        return [[] for _ in range(bins)]
    params: dict[str, Any] = {**as_the_child_takes_them(columns), "bins": bins, "dp": dp}
    params["encoder_dp"] = whole_number("encoder_dp", encoder_dp, 0)
    params["seed"] = whole_number("seed", seed, 0, MOST_SEED)
    params["allow_empty"] = allow_empty
    options = {"method": method, "objective": objective, "steps": steps, "time_limit_s": time_limit}
    params.update({key: value for key, value in options.items() if value is not None})
    if equal_size:
        if token_cap is not None:
            raise InputError("token_cap: expected none with equal_size, found one")
        if count % bins:
            raise InputError(f"equal_size: expected a number of items that {bins} divides, found {count}")
        params.update(tokens=[1] * count, token_cap=count // bins)
    elif token_cap is not None:
        if "tokens" not in columns:
            raise InputError("token_cap: expected a column 'tokens' of the costs, found none")
        params.update(tokens=columns["tokens"], token_cap=whole_number("token_cap", token_cap, 1))
    asking = _Asking(server or default_server(), timeout)
    levels = method is None and objective is None and token_cap is None and not any(params.get("encoder", ()))
    try:
        lists = asking.lists_of(params)
        if levels:
            lists = _leveled(asking, params, lists, equal_size)
    except ServerError as error:
        if not fallback or token_cap is not None:
            raise
        warnings.warn(f"{error}; LPT in Python takes over", RuntimeWarning, stacklevel=2)
        most_items = count // bins if equal_size else None
        lists = _lists(lpt(columns, bins, dp=dp, encoder_dp=encoder_dp, most_items=most_items), bins)
    return lists


def _leveled(asking, params, lists, equal_size):
    """Returns the lists with the smallest spread among the given ones and further ones for items with one cost each."""
    costs, bins = params["llm"], params["bins"]
    found = [lists]
    if equal_size:
        found.append(_spread.equal_sizes(costs, bins))
    elif len(costs) <= _FEW:
        found.append(asking.lists_of({**params, "method": "karmarkar-karp"}))
    best = min(found, key=lambda one: _spread.spread(costs, one))
    return _spread.level(costs, best, moves=not equal_size)


def _lists(bin_of, bins):
    lists = [[] for _ in range(bins)]
    for item, b in enumerate(bin_of):
        lists[b].append(item)
    return lists


class _Asking:
    """Requests partitions from a server. Repeats each request once if the child died, all within a time limit."""

    def __init__(self, server, timeout):
        self._server = server
        self._deadline = time.monotonic() + timeout

    def lists_of(self, params):
        failures = []
        while len(failures) < 2 and (not failures or time.monotonic() < self._deadline):
            try:
                return self._ask(params)
            except ServerError as error:
                failures.append(error)
        raise failures[0]

    def _ask(self, params):
        left = max(self._deadline - time.monotonic(), 0.001)
        answer = self._server.request("partition", params, left)
        if answer.get("status") == "infeasible":
            raise Infeasible(answer["reason"])
        require_whole(answer.get("bins"), len(params["llm"]), params["bins"])
        return _lists(answer["bins"], params["bins"])
