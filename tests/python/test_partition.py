import itertools
import random

import pytest

import dflop
from dflop import _spread


def loads(costs, lists):
    return [sum(costs[i] for i in items) for items in lists]


def largest_by_brute_force(costs, bins):
    return min(
        max(sum(c for c, b in zip(costs, assignment) if b == k) for k in range(bins))
        for assignment in itertools.product(range(bins), repeat=len(costs))
        if len(set(assignment)) == bins
    )


def test_small_cases_are_optimal(server):
    for seed in range(20):
        rng = random.Random(seed)
        costs = [rng.randint(1, 30) for _ in range(7)]
        lists = dflop.partition(costs, 3, server=server)
        assert sorted(itertools.chain(*lists)) == list(range(7))
        assert max(loads(costs, lists)) == largest_by_brute_force(costs, 3)


def test_equal_sizes_are_produced_on_request(server):
    rng = random.Random(3)
    costs = [rng.lognormvariate(6, 1) for _ in range(96)]
    lists = dflop.partition(costs, 8, equal_size=True, server=server)
    assert [len(items) for items in lists] == [12] * 8
    assert sorted(itertools.chain(*lists)) == list(range(96))
    with pytest.raises(dflop.InputError, match="divides, found 96"):
        dflop.partition(costs, 7, equal_size=True, server=server)


def test_both_encoder_and_llm_are_balanced(server):
    # For (4, 0) (0, 4) (4, 0) (0, 4), bins with one of each kind have a largest load of 4. Two of one kind
    # would have 8.
    lists = dflop.partition([(4, 0), (0, 4), (4, 0), (0, 4)], 2, server=server)
    assert all({i % 2 for i in items} == {0, 1} for items in lists)


def test_columns_and_caps(server):
    columns = {"llm": [3, 3, 1, 1], "tokens": [10, 10, 1, 1]}
    lists = dflop.partition(columns, 2, token_cap=11, server=server)
    assert sorted(sum(columns["tokens"][i] for i in items) for items in lists) == [11, 11]
    with pytest.raises(dflop.Infeasible):
        dflop.partition(columns, 2, token_cap=9, server=server)


@pytest.mark.parametrize(
    "costs, options, message",
    [
        ([1, -2], {}, "item 1: expected a finite number of at least 0, found -2"),
        ([1, float("nan")], {}, "item 1"),
        ([1, "many"], {}, "item 1"),
        ([(1, 2), 3], {}, "item 1: expected a pair"),
        ({"encoder": [1, 2]}, {}, "a column 'llm'"),
        ({"llm": [1, 2], "encoder": [1]}, {}, "expected 2 items"),
        ([1, float("inf")], {}, "item 1"),
        ([1, 10**400], {}, "item 1"),
        ([1, True], {}, "item 1: .* found True"),
        ([1, "2"], {}, "item 1: .* found '2'"),
        ([1, None], {}, "item 1"),
        ([1, 2j], {}, "item 1"),
        ("12", {}, "expected numbers, found '12'"),
        (12, {}, "costs: expected one number per item, found 12"),
        ({"llm": 3}, {}, "column 'llm': expected one number per item, found 3"),
        ([], {}, "at least as many items"),
        ([1], {}, "at least as many items"),
        ([1, 2], {"dp": 3}, "dp"),
        ([1, 2], {"dp": 0}, "dp: expected a whole number from 1 up, found 0"),
        ([1, 2], {"seed": "a"}, "seed"),
        ([1, 2], {"objective": "luck"}, "luck"),
        ([1, 2], {"steps": -1}, "steps"),
        ([1, 2], {"method": "best"}, "best"),
        ([1, 2], {"token_cap": 1}, "a column 'tokens'"),
    ],
)
def test_errors_name_the_problem(server, costs, options, message):
    with pytest.raises(dflop.InputError, match=message):
        dflop.partition(costs, 2, server=server, **options)


@pytest.mark.parametrize("bins", [0, -1, 1.5, True, "2", None])
def test_bins_are_a_whole_number(server, bins):
    with pytest.raises(dflop.InputError, match="bins: expected a whole number from 1 up"):
        dflop.partition([1, 2], bins, server=server)


def test_unknown_options_are_rejected():
    with pytest.raises(TypeError, match="color"):
        dflop.partition([1, 2], 2, color=1)


@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e12, 1e300])
def test_costs_may_be_in_any_unit(server, unit):
    costs = [cost * unit for cost in (3, 2, 2, 1)]
    assert sorted(map(sorted, dflop.partition(costs, 2, server=server))) == [[0, 3], [1, 2]]
    pairs = [(cost, cost) for cost in costs]
    assert sorted(map(sorted, dflop.partition(pairs, 2, server=server))) == [[0, 3], [1, 2]]


def test_arrays_and_tables_are_accepted_unchanged(server):
    numpy = pytest.importorskip("numpy")
    expected = dflop.partition([3, 2, 2, 1], 2, server=server)
    for kind in ("int64", "float32", "uint8"):
        assert dflop.partition(numpy.array([3, 2, 2, 1], kind), numpy.int64(2), server=server) == expected
    assert dflop.partition(list(numpy.array([3, 2, 2, 1])), 2, server=server) == expected
    assert len(dflop.partition(numpy.array([[1, 2], [2, 1]]), 2, server=server)) == 2
    for wrong in (numpy.ones((2, 3)), numpy.array(3.0), numpy.array([True, False])):
        with pytest.raises(dflop.InputError, match="costs"):
            dflop.partition(wrong, 2, server=server)
    pandas = pytest.importorskip("pandas")
    assert dflop.partition(pandas.Series([3, 2, 2, 1], index=[9, 8, 7, 6]), 2, server=server) == expected
    table = pandas.DataFrame({"llm": [3, 3, 1, 1], "tokens": [10, 10, 1, 1]})
    assert dflop.partition(table, 2, token_cap=11, server=server) == dflop.partition(
        table.to_dict("list"), 2, token_cap=11, server=server
    )
    with pytest.raises(dflop.InputError, match="item 1"):
        dflop.partition(pandas.Series([3, None]), 2, server=server)


def differenced(costs, bins):
    """The largest differencing method on plain lists: for the two partitions with the largest spread, the largest bins
    of one get the smallest bins of the other."""
    partitions = [sorted([0.0] * (bins - 1) + [cost]) for cost in costs]
    while len(partitions) > 1:
        partitions.sort(key=lambda loads: loads[-1] - loads[0])
        first, second = partitions.pop(), partitions.pop()
        partitions.append(sorted(a + b for a, b in zip(first, reversed(second))))
    return partitions[0]


def test_the_spread_is_at_most_the_differencing_methods(server):
    for seed in range(60):
        rng = random.Random(seed)
        bins = rng.choice([2, 3, 5, 8, 16])
        draw = rng.choice([lambda: rng.randint(1, 20), lambda: rng.randint(1, 8192), rng.random])
        costs = [draw() for _ in range(bins * rng.randint(1, 12))]
        loads_of_all = loads(costs, dflop.partition(costs, bins, server=server))
        theirs = differenced(costs, bins)
        assert max(loads_of_all) - min(loads_of_all) <= theirs[-1] - theirs[0] + 1e-9


def test_equal_sizes_are_not_bought_with_spread(server):
    # Sorted by cost, groups of one item per bin are (1, 2) and (8, 9). The differencing method gives 2 + 8 and 1 + 9.
    assert sorted(dflop.partition([1, 2, 8, 9], 2, equal_size=True, server=server)) == [[0, 3], [1, 2]]
    for seed in range(40):
        rng = random.Random(seed)
        bins = rng.choice([2, 3, 5, 8])
        costs = [
            rng.choice([rng.randint(1, 20), rng.randint(4000, 4020)]) for _ in range(bins * rng.randint(1, 9))
        ]
        lists = dflop.partition(costs, bins, equal_size=True, server=server)
        assert {len(items) for items in lists} == {len(costs) // bins}
        assert sorted(itertools.chain(*lists)) == list(range(len(costs)))
        by_size = _spread.spread(costs, _spread.equal_sizes(costs, bins))
        assert _spread.spread(costs, lists) <= by_size


def test_equal_sizes_use_the_smallest_spread_of_several_methods(server):
    # Local search with exchanges ends at 8 here, the differencing method at 6.
    costs = [150, 4005, 132, 115, 4046, 4023, 4034, 136, 4031, 4022, 4015, 4010]
    differenced_lists = _spread.equal_sizes(costs, 4)
    assert _spread.spread(costs, differenced_lists) == 6
    assert _spread.spread(costs, dflop.partition(costs, 4, equal_size=True, server=server)) <= 6


def test_level_exchanges_and_moves():
    # 9 | 1 2: a lone item is not moved, and an exchange for 2 would leave 2 and 10. 5 4 | 3: either exchange 5 for 3,
    # or move 4, for loads of 5 and 7.
    assert _spread.level([9.0, 1.0, 2.0], [[0], [1, 2]], moves=True) == [[0], [1, 2]]
    costs = [5.0, 4.0, 3.0]
    assert sorted(loads(costs, _spread.level(costs, [[0, 1], [2]], moves=True))) == [5, 7]
    # With equal sizes, 6 5 | 1 2 can only exchange: 6 for 2, or 5 for 1, leaves 7 and 7.
    costs = [6.0, 5.0, 1.0, 2.0]
    lists = _spread.level(costs, [[0, 1], [2, 3]], moves=False)
    assert loads(costs, lists) == [7, 7] and [len(items) for items in lists] == [2, 2]


class Polars:
    """A DataFrame like polars': columns by name, no keys()."""

    columns = ["llm", "encoder"]

    def __getitem__(self, name):
        return {"llm": [3, 2, 2, 1], "encoder": [0, 0, 0, 0]}[name]


def test_tables_without_keys_and_arrays_of_one_column_are_costs(server):
    assert sorted(dflop.partition(Polars(), 2, server=server)) == [[0, 3], [1, 2]]
    assert sorted(dflop.partition([[3], [2], [2], [1]], 2, server=server)) == [[0, 3], [1, 2]]


def test_no_items_give_empty_bins(server):
    assert dflop.partition([], 2, allow_empty=True, server=server) == [[], []]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (({"llm": [1, 2], "lenght": [3, 4]}, 2), "only columns llm, encoder and tokens, found 'lenght'"),
        (([1, 2, 3], 3, 2), "bins: expected a multiple of dp = 2, found 3"),
    ],
)
def test_errors_name_arguments_of_python(arguments, message, server):
    costs, bins, *dp = arguments
    with pytest.raises(dflop.InputError, match=message):
        dflop.partition(costs, bins, dp=dp[0] if dp else 1, server=server)


def test_lpt_leaves_no_bin_empty_and_obeys_counts():
    for seed in range(50):
        rng = random.Random(seed)
        bins = rng.randint(1, 6)
        costs = [rng.choice([0, 1, 5]) for _ in range(rng.randint(bins, 20))]
        assert set(dflop.lpt(costs, bins)) == set(range(bins))
    bin_of = dflop.lpt([9, 1, 1, 1], 2, most_items=2)
    assert sorted(bin_of) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    "script, found",
    [
        ("exit 1", "exit code 1"),
        ("kill -9 $$", "signal 9"),
        ("exec sleep 60", "not answered"),
        ("exec sleep 60 >/dev/null", "closed its output"),
        ("echo '{\"protocol\": 99}'; exec sleep 60", "found 99"),
        ("echo hello; exec sleep 60", "found 'hello'"),
        ("echo '[]'; exec sleep 60", "is not dflop"),
        ("head -c 100000 /dev/zero; exec sleep 60", "is not dflop"),
        ("echo '{\"protocol\": 1}'; echo nonsense; exec sleep 60", "other than an answer .*'nonsense'"),
        ('echo \'{"protocol": 1}\'; read x; echo \'{"id": 1, "result": 7}\'; exec sleep 60', "other than an answer"),
        (
            'echo \'{"protocol": 1}\'; read x; echo \'{"id": 1, "result": {"bins": [0, 0, 0, 9]}}\'; cat',
            "no bins",
        ),
    ],
)
def test_without_a_child_lpt_takes_over_with_a_note(broken, script, found):
    broken(script)
    server = dflop.Server()
    with pytest.warns(RuntimeWarning, match=f"(?s){found}.*LPT in Python takes over"):
        lists = dflop.partition(
            [3, 2, 2, 1], 2, timeout=0.5 if found == "not answered" else 20, server=server
        )
    assert sorted(loads([3, 2, 2, 1], lists)) == [4, 4]
    with pytest.raises(dflop.ServerError):
        dflop.partition([3, 2, 2, 1], 2, timeout=0.2, server=server, fallback=False)
    server.close()
