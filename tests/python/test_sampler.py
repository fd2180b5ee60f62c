import gc
import itertools
import json
import os
import pickle
import random
import signal
import time
import warnings

import pytest

import dflop

ITEMS = 203


def costs(seed=1, items=ITEMS):
    rng = random.Random(seed)
    return {
        "llm": [rng.lognormvariate(0, 1) for _ in range(items)],
        "encoder": [rng.choice([0.0, rng.random()]) for _ in range(items)],
        "tokens": [rng.randint(1, 900) for _ in range(items)],
    }


def sampler(**options):
    usual = {"gbs": 24, "microbatches": 3, "dp_rank": 0, "dp_size": 2, "seed": 5}
    return dflop.BatchSampler(costs(), **{**usual, **options})


def epoch_of_all(samplers):
    """Returns each rank's microbatches. Checks that all ranks got the same number and that none is empty."""
    ranks = [list(one) for one in samplers]
    assert {len(batches) for batches in ranks} == {len(samplers[0])}
    assert all(batch for batches in ranks for batch in batches)
    return ranks


def test_every_item_comes_once_and_epochs_differ_in_order():
    ranks = [sampler(dp_rank=r) for r in range(2)]
    seen = []
    for epoch in range(2):
        for one in ranks:
            one.set_epoch(epoch)
        given = epoch_of_all(ranks)
        items = sorted(itertools.chain(*given[0], *given[1]))
        assert len(items) == ITEMS // 24 * 24 and len(set(items)) == len(items)
        seen.append(given)
    assert seen[0] != seen[1]


def test_the_last_batch_is_smaller_or_padded():
    # 203 = 8 x 24 + 11: the ninth batch has 11 items for 6 bins, which are enough.
    ranks = [sampler(dp_rank=r, drop_last=False) for r in range(2)]
    given = epoch_of_all(ranks)
    assert sorted(itertools.chain(*given[0], *given[1])) == list(range(ITEMS))
    # 203 = 10 x 20 + 3: three items for six bins; three more are taken from the first batches.
    ranks = [sampler(dp_rank=r, gbs=20, drop_last=False) for r in range(2)]
    given = epoch_of_all(ranks)
    assert sorted(set(itertools.chain(*given[0], *given[1]))) == list(range(ITEMS))


def test_microbatches_are_balanced():
    one = sampler(dp_rank=0)
    llm = costs()["llm"]
    chosen = [
        max(sum(llm[i] for s in (dp,) for i in s["indices"]) for dp in one.shapes(0)[j]) for j in range(3)
    ]
    batch = one.batch(0)
    in_order = [sum(llm[i] for i in batch[4 * b : 4 * b + 4]) for b in range(6)]
    assert max(chosen) < max(in_order)


def test_rank_none_gets_whole_microbatches():
    both = [list(sampler(dp_rank=r)) for r in range(2)]
    whole = list(sampler(dp_rank=None))
    assert whole == [a + b for a, b in zip(*both)]


def test_shapes_are_sums_of_the_arguments():
    one = sampler(dp_rank=1)
    tokens = costs()["tokens"]
    shapes = one.shapes(2)
    given = list(one)[2 * 3 : 3 * 3]
    for microbatch, shape in zip(given, shapes):
        assert shape[1]["indices"] == microbatch
        assert shape[1]["tokens"] == sum(tokens[i] for i in microbatch)


@pytest.mark.parametrize("taken", [0, 1, 3, 7, 23])
def test_a_state_resumes_exactly(taken):
    first = sampler(dp_rank=0)
    whole = list(sampler(dp_rank=0))
    iterator = iter(first)
    head = list(itertools.islice(iterator, taken))
    state = json.loads(json.dumps(first.state_dict()))
    second = sampler(dp_rank=0)
    second.load_state_dict(state)
    second.set_epoch(0)  # as training loops do before each epoch
    assert head + list(second) == whole
    assert list(second) == whole, "the next pass is a whole one"


def test_a_batch_made_by_lpt_resumes(broken, monkeypatch):
    """The state holds the batch from which the first microbatches were taken. A child would have filled them
    differently."""
    good = os.environ["DFLOP_EXECUTABLE"]
    broken("exit 1")
    first = sampler(dp_size=1, dp_rank=0)
    with pytest.warns(RuntimeWarning, match="LPT in Python takes over"):
        head = [next(iter(first))]
    monkeypatch.setenv("DFLOP_EXECUTABLE", good)
    second = sampler(dp_size=1, dp_rank=0)
    second.load_state_dict(first.state_dict())
    given = head + list(second)
    assert sorted(itertools.chain(*given[:3])) == sorted(second.batch(0))
    assert head != list(sampler(dp_size=1, dp_rank=0))[:1]


def test_an_abandoned_pass_starts_over():
    one = sampler(dp_rank=0)
    whole = list(one)
    list(itertools.islice(iter(one), 7))
    assert list(one) == whole


def epochs(one, numbers):
    """Returns a sampler's microbatches in each of these epochs."""
    given = []
    for epoch in numbers:
        one.set_epoch(epoch)
        given.append(list(one))
    return given


def left_at(epoch, taken):
    """Returns the state of a sampler that has given `taken` microbatches of an epoch; 25 is one more than exist."""
    one = sampler(dp_rank=0)
    one.set_epoch(epoch)
    list(itertools.islice(iter(one), taken))
    return json.loads(json.dumps(one.state_dict()))


def resumed(state):
    one = sampler(dp_rank=0)
    one.load_state_dict(state)
    return one


@pytest.mark.parametrize("taken", [24, 25])
def test_a_state_after_the_last_microbatch_resumes_with_the_next_epoch(taken):
    # 203 items are 8 batches of 24, of 3 microbatches each: 24. The loop may or may not have ended when the state is
    # saved.
    whole = epochs(sampler(dp_rank=0), range(3))
    state = left_at(1, taken)
    assert (state["epoch"], state["done"]) == (1, 24)
    one = resumed(state)
    assert one.epoch == 2 and one.state_dict() == state
    assert one.shapes(0)[0][0]["indices"] == whole[2][0]
    assert list(one) == whole[2] and one.epoch == 2
    # Epoch 1 has nothing left, however often it is requested; then the named epoch follows.
    one = resumed(state)
    assert epochs(one, [1, 1, 2]) == [[], [], whole[2]]
    assert one.log == []


@pytest.mark.parametrize("taken", [0, 1, 3, 7, 23, 24, 25])
def test_loops_over_epochs_resume_where_they_stopped(taken):
    whole = epochs(sampler(dp_rank=0), range(4))
    rest = whole[1][taken:] + whole[2] + whole[3]
    state = left_at(1, taken)
    for begin in (resumed(state).epoch, state["epoch"]):
        one = resumed(state)
        assert sum(epochs(one, range(begin, 4)), []) == rest
        assert one.log == [], "nothing was dropped"


@pytest.mark.parametrize("taken, epoch", [(7, 0), (7, 2), (24, 0), (24, 3)])
def test_set_epoch_drops_a_state_with_a_note(taken, epoch, caplog):
    whole = epochs(sampler(dp_rank=0), range(4))
    one = resumed(left_at(1, taken))
    said = f"BatchSampler: the loaded state of epoch 1 ({taken} of 24 done) is dropped, because set_epoch({epoch}) names another"
    with pytest.warns(RuntimeWarning) as warned:
        one.set_epoch(epoch)
    assert len(warned) == 1 and str(warned[0].message).startswith(said) and warned[0].filename == __file__
    assert one.log == [str(warned[0].message)] == caplog.messages
    assert list(one) == whole[epoch]
    assert epochs(one, [1]) == [whole[1]], "the state is gone"
    assert len(one.log) == 1


def test_a_state_loaded_after_set_epoch_is_used():
    whole = epochs(sampler(dp_rank=0), range(2))
    one = sampler(dp_rank=0)
    one.set_epoch(0)
    one.load_state_dict(left_at(1, 7))
    assert list(one) == whole[1][7:]
    one.set_epoch(0)
    list(one)
    one.set_epoch(0)
    assert one.state_dict()["done"] == 0, "the epoch begins once more"


def test_all_ranks_have_the_same_state():
    first = sampler(dp_rank=0)
    list(itertools.islice(iter(first), 4))
    second = sampler(dp_rank=1)
    second.load_state_dict(first.state_dict())
    assert list(second) == list(sampler(dp_rank=1))[4:]


@pytest.mark.parametrize(
    "wrong", [{"done": -1}, {"done": 25}, {"done": "x"}, {"epoch": None}, {"bins": [0]}, {"bins": 3}]
)
def test_changed_states_are_rejected(wrong):
    one = sampler(dp_rank=0)
    list(itertools.islice(iter(one), 4))
    with pytest.raises(dflop.InputError, match="state: "):
        sampler(dp_rank=0).load_state_dict({**one.state_dict(), **wrong})
    for nothing in (None, {}, [], {"version": 1}):
        with pytest.raises(dflop.InputError, match="state: "):
            sampler(dp_rank=0).load_state_dict(nothing)


def test_states_of_other_runs_are_rejected():
    state = sampler(dp_rank=0).state_dict()
    for options in ({"gbs": 30}, {"seed": 6}, {"dp_size": 1}, {"microbatches": 2}):
        with pytest.raises(dflop.InputError, match="state: expected"):
            sampler(**{"dp_rank": 0, **options}).load_state_dict(state)
    with pytest.raises(dflop.InputError, match="version"):
        sampler(dp_rank=0).load_state_dict({"version": 7})


@pytest.mark.parametrize(
    "options, message",
    [
        ({"gbs": 5}, "gbs: expected at least microbatches x dp_size = 6"),
        ({"gbs": 300}, "at least 300 items"),
        ({"dp_rank": 2}, "dp_rank"),
        ({"microbatches": 0}, "microbatches"),
        ({"microbatches": 1.5}, "microbatches: expected a whole number from 1 up, found 1.5"),
        ({"gbs": True}, "gbs"),
        ({"dp_rank": "0"}, "dp_rank"),
        ({"seed": -1}, "seed"),
    ],
)
def test_incompatible_options_are_rejected(options, message):
    with pytest.raises(dflop.InputError, match=message):
        sampler(**options)


def test_an_unknown_method_is_rejected_at_the_first_batch():
    with pytest.raises(dflop.InputError, match="best"):
        next(iter(sampler(method="best")))


def test_the_next_batch_is_scheduled_ahead():
    one = sampler(dp_rank=0)
    iterator = iter(one)
    next(iterator)
    # The child has the second batch while the loop is at the first. Within a batch there are no requests.
    assert list(one._scheduling._pushed) == [(0, 1)]
    next(iterator)
    assert list(one._scheduling._pushed) == [(0, 1)]
    next(iterator)
    next(iterator)
    assert list(one._scheduling._pushed) == [(0, 2)]


def test_steps_may_be_requested_in_any_order():
    one, other = sampler(dp_rank=0), sampler(dp_rank=0)
    shapes = [one.shapes(step) for step in range(one.steps)]
    for step in (7, 0, 3, 2, 1):
        assert other.shapes(step) == shapes[step]
    for step in (-1, 8):
        with pytest.raises(dflop.InputError, match="step: expected a number from 0 to 7"):
            other.shapes(step)


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "when it is dead"])
def test_killing_the_child_loses_no_sample_and_repeats_none(waits):
    rng = random.Random(7)
    whole = list(sampler(dp_size=1, dp_rank=0))
    for _ in range(5):
        one = sampler(dp_size=1, dp_rank=0)
        given = []
        for microbatch in one:
            given.append(microbatch)
            pid = one._scheduling._server.pid
            if pid is not None and rng.random() < 0.2:
                os.kill(pid, signal.SIGKILL)
                while waits and one._scheduling._server.pid is not None:
                    time.sleep(0.001)
        assert given == whole, "a new child answers as the one before"
        one.close()


def test_a_hung_child_is_not_waited_for_long():
    """The child neither reads nor answers, and batches are larger than a pipe's buffer."""
    one = dflop.BatchSampler([1.0 + i / 7 for i in range(30000)], gbs=15000, microbatches=4, patience=2)
    iterator = iter(one)
    given = [next(iterator)]
    os.kill(one._scheduling._server.pid, signal.SIGSTOP)
    with pytest.warns(RuntimeWarning, match="epoch 0, step 1: .*not answered.*LPT in Python takes over"):
        given += list(iterator)
    assert sorted(itertools.chain(*given)) == list(range(30000))
    one.close()


def test_without_any_child_one_rank_continues_with_lpt(broken):
    broken("exit 1")
    one = sampler(dp_size=1, dp_rank=0)
    with pytest.warns(RuntimeWarning, match="LPT in Python takes over"):
        given = list(one)
    assert len(set(itertools.chain(*given))) == ITEMS // 24 * 24
    assert "LPT" in one.log[0]


def test_without_any_child_several_ranks_need_to_agree(broken):
    broken("exit 1")
    with pytest.raises(dflop.ServerError, match="'agreement'"):
        list(sampler(dp_rank=0))


def test_ranks_agree_if_one_has_no_child(tmp_path, broken, monkeypatch):
    good = os.environ["DFLOP_EXECUTABLE"]
    bad = str(broken("exit 1"))
    ranks = [iter(sampler(dp_rank=r, agreement=tmp_path / "agreed")) for r in range(2)]
    rng = random.Random(2)
    given = [[], []]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(8 * 3):
            for r in rng.sample(range(2), 2):
                monkeypatch.setenv("DFLOP_EXECUTABLE", rng.choice([good, bad]))
                given[r].append(next(ranks[r]))
    items = list(itertools.chain(*given[0], *given[1]))
    assert len(items) == len(set(items)) == 8 * 24


def test_live_needs_to_agree_and_covers_all(tmp_path):
    with pytest.raises(dflop.InputError, match="live: expected an agreement"):
        list(sampler(dp_rank=0, live=True))
    ranks = [sampler(dp_rank=r, live=True, agreement=tmp_path) for r in range(2)]
    given = epoch_of_all(ranks)
    items = list(itertools.chain(*given[0], *given[1]))
    assert len(items) == len(set(items)) == 8 * 24


def test_a_copy_has_a_child_of_its_own():
    one = sampler(dp_rank=0)
    next(iter(one))
    copy = pickle.loads(pickle.dumps(one))
    assert list(copy) == list(sampler(dp_rank=0))


def test_a_deleted_sampler_ends_its_child():
    one = sampler(dp_rank=0)
    next(iter(one))
    pid = one._scheduling._server.pid
    del one
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize("patience", [float("nan"), -1, 0, float("inf"), "30", True])
def test_a_patience_that_no_child_can_meet_is_rejected(patience, source):
    said = "patience: expected a number from 0.001 to 1e\\+09, found "
    with pytest.raises(dflop.InputError, match=said):
        sampler(patience=patience)
    plan = str(source / "traces" / "plans" / "tiny-vlm-pp2.json")
    with pytest.raises(dflop.InputError, match=said):
        dflop.PlanSampler(plan, [dflop.make_sample(9)] * 32, patience=patience)
    with pytest.raises(dflop.InputError, match="timeout: expected a number from 0.001 to 1e\\+09, found "):
        dflop.partition([3, 2, 1], 2, timeout=patience)


def test_flags_that_are_not_boolean_are_rejected(source):
    plan = str(source / "traces" / "plans" / "tiny-vlm-pp2.json")
    for make, names in (
        (sampler, ("shuffle", "drop_last", "live", "compare")),
        (lambda **options: dflop.PlanSampler(plan, [dflop.make_sample(9)] * 32, **options), ("shuffle", "keep")),
        (lambda **options: dflop.partition([2, 1], 2, **options), ("equal_size", "allow_empty", "fallback")),
    ):
        for name in names:
            for wrong in ("no", None, 2, 0.0):
                with pytest.raises(dflop.InputError, match=f"{name}: expected True or False, found {wrong!r}"):
                    make(**{name: wrong})
            make(**{name: 1})


def test_invalid_epochs_and_seeds_are_rejected_at_the_call(source):
    plan = dflop.PlanSampler(str(source / "traces" / "plans" / "tiny-vlm-pp2.json"), [dflop.make_sample(9)] * 32)
    for one in (sampler(), plan):
        one.set_epoch(2**32 - 1)
        next(iter(one))
        with pytest.raises(dflop.InputError, match=f"epoch: expected a whole number from 0 to {2**32 - 1}, found {2**64}"):
            one.set_epoch(2**64)
        with pytest.raises(dflop.InputError, match=f"state: epoch: expected a whole number from 0 to {2**32 - 1}, found 1"):
            one.load_state_dict({**one.state_dict(), "epoch": 10**30})
        one.close()
    next(iter(sampler(seed=2**64 - 1)))
    for make in (sampler, lambda seed: dflop.partition([2, 1], 2, seed=seed)):
        with pytest.raises(dflop.InputError, match="seed: expected a whole number from 0 to 18446744073709551615"):
            make(seed=2**64)


def test_parents_of_the_agreement_folder_are_not_created(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "missing" / "agreed", tmp_path / "file"):
        with pytest.raises(dflop.InputError, match="agreement: expected a folder that all ranks see"):
            sampler(agreement=path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    for _ in range(2):
        sampler(agreement=tmp_path / "agreed")
