"""Delaying outliers: Python agrees with C++, each item comes once, and a resumed run equals an uninterrupted one."""

import collections
import itertools
import json
import os
import random
import signal

import pytest

import dflop
from dflop._outliers import delay_outliers


def heavy(count, seed=1):
    rng = random.Random(seed)
    return {
        "llm": [rng.paretovariate(0.9) for _ in range(count)],
        "encoder": [rng.choice([0.0, rng.paretovariate(1.2)]) for _ in range(count)],
    }


def sampler(count=203, **options):
    return dflop.BatchSampler(
        heavy(count), **{"gbs": 24, "microbatches": 3, "seed": 5, "delay_outliers": 3, **options}
    )


def samples(count=200, seed=2):
    rng = random.Random(seed)
    lengths = [int(min(20 * rng.paretovariate(0.9), 4000)) for _ in range(count)]
    return [dflop.make_sample(tokens + 8, [16] * (i % 3), 4 * (i % 3)) for i, tokens in enumerate(lengths)]


@pytest.fixture
def plan(source):
    return str(source / "traces" / "plans" / "tiny-vlm-pp2.json")  # 32 samples in 8 microbatches


def test_two_outliers_share_a_batch():
    """As derived in tests/solver/outlier_delay_test.cpp."""
    assert delay_outliers([1, 9, 1, 1, 1, 1, 9, 1], 4, 2, 2) == [0, 2, 1, 6, 4, 5, 7, 3]


def test_python_and_the_child_regroup_equally():
    server = dflop.Server()
    rng = random.Random(3)
    moved = 0
    for round in range(40):
        microbatches, dp, window = rng.randint(1, 4), rng.randint(1, 3), rng.randint(2, 6)
        batch = microbatches * dp + rng.randint(0, 20)
        columns = heavy(window * batch, round)
        options = {"bins": microbatches * dp, "dp": dp, "method": "lpt", "delay_outliers": window}
        session = server.request("open", options)["session"]
        for k in range(window):
            part = {name: column[k * batch : (k + 1) * batch] for name, column in columns.items()}
            server.request("push", {"session": session, "batch": part})
        given = []
        for _ in range(window):
            given += server.request("next", {"session": session})["pushed_at"]
        costs = [a + b for a, b in zip(columns["llm"], columns["encoder"])]
        order = delay_outliers(costs, batch, microbatches, dp)
        assert [k * batch + i for k, i in given] == order
        moved += sum(i // batch != place // batch for place, i in enumerate(order))
        server.request("close", {"session": session})
    assert moved > 100, "the cases show nothing"
    server.close()


def test_without_a_delay_nothing_changes():
    for window in (0, 1):
        assert list(sampler(delay_outliers=window)) == list(
            dflop.BatchSampler(heavy(203), gbs=24, microbatches=3, seed=5)
        )


@pytest.mark.parametrize("drop_last", [True, False])
def test_each_item_comes_once_and_within_its_window(drop_last):
    for epoch in range(3):
        one, plain = sampler(drop_last=drop_last), sampler(drop_last=drop_last, delay_outliers=0)
        one.set_epoch(epoch)
        plain.set_epoch(epoch)
        drawn = {item: step for step in range(plain.steps) for item in plain.batch(step)}
        given = {item: step for step in range(one.steps) for item in one.batch(step)}
        assert drawn.keys() == given.keys()
        assert [len(one.batch(step)) for step in range(one.steps)] == [
            len(plain.batch(step)) for step in range(plain.steps)
        ]
        assert all(drawn[item] // 3 == given[item] // 3 for item in drawn)
        assert drawn != given
        if not drop_last:
            assert one.batch(8) == plain.batch(8), "the smaller last batch stays unchanged"


@pytest.mark.parametrize("taken", [0, 1, 4, 8, 10, 23])
def test_a_resumed_sampler_continues_exactly(taken):
    whole = list(sampler())
    first = sampler()
    head = list(itertools.islice(iter(first), taken))
    second = sampler()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert head + list(second) == whole


def test_states_of_other_windows_are_rejected_and_older_ones_accepted():
    state = sampler().state_dict()
    with pytest.raises(dflop.InputError, match="expected delay_outliers 0, as in the sampler, found 3"):
        sampler(delay_outliers=0).load_state_dict(state)
    older = sampler(delay_outliers=0).state_dict()
    del older["shape"]["delay_outliers"]
    sampler(delay_outliers=0).load_state_dict(older)
    with pytest.raises(dflop.InputError, match="expected delay_outliers 3"):
        sampler().load_state_dict(older)


def test_the_log_says_how_far_items_have_moved():
    one = sampler()
    list(one)
    plain = sampler(delay_outliers=0)
    drawn = {item: step for step in range(plain.steps) for item in plain.batch(step)}
    far = [abs(drawn[i] - step) for step in range(one.steps) for i in one.batch(step) if drawn[i] != step]
    expected = f"{len(far)} of 192 samples have moved, by at most {max(far)} batches and {sum(far) / len(far):.1f} on"
    assert expected in one.log[-1]


def test_a_plans_batches_have_each_sample_once(plan):
    plain = [batch.indices for batch in dflop.PlanSampler(plan, samples())]
    one = dflop.PlanSampler(plan, samples(), delay_outliers=4)
    given = [batch.indices for batch in one]
    assert [len(batch) for batch in given] == [32] * 6
    assert plain != given
    for first in (0, 4):
        drawn = collections.Counter(itertools.chain(*plain[first : first + 4]))
        assert drawn == collections.Counter(itertools.chain(*given[first : first + 4]))
    moved = sum(len(set(a) - set(b)) for a, b in zip(given, plain))
    assert f"{moved} of 192 samples have moved" in one.log[-1]


@pytest.mark.parametrize("window", [0, 4])
def test_a_session_remembers_one_window(plan, window):
    one = dflop.PlanSampler(plan, samples(600), delay_outliers=window)
    for epoch in range(3):
        one.set_epoch(epoch)
        for _ in one:
            assert len(one._scheduling._places) <= max(window, 1)


def test_windows_are_of_at_most_as_many_batches_as_the_child_takes(plan):
    for make in (sampler, lambda **options: dflop.PlanSampler(plan, samples(), **options)):
        assert make(delay_outliers=1024).log == []
        for wrong in (1025, -1, 2.5):
            with pytest.raises(dflop.InputError, match="delay_outliers: expected a whole number from 0 to 1024"):
                make(delay_outliers=wrong)


@pytest.mark.parametrize("done", range(7))
def test_a_plans_sampler_resumes_in_any_window(plan, done):
    whole = list(dflop.PlanSampler(plan, samples(), seed=4, delay_outliers=4))
    first = dflop.PlanSampler(plan, samples(), seed=4, delay_outliers=4)
    list(itertools.islice(iter(first), done))
    second = dflop.PlanSampler(plan, samples(), seed=4, delay_outliers=4)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    second.set_epoch(0)  # the last state leaves nothing of it
    assert list(second) == whole[done:]


def test_a_plans_sampler_survives_its_child(plan):
    rng = random.Random(3)
    whole = list(dflop.PlanSampler(plan, samples(600), delay_outliers=4))
    one = dflop.PlanSampler(plan, samples(600), delay_outliers=4)
    given = []
    for batch in one:
        given.append(batch)
        if rng.random() < 0.5:
            os.kill(one._scheduling._server.pid, signal.SIGKILL)
    assert given == whole
