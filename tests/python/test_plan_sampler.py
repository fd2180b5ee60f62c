import itertools
import json
import os
import random
import signal
import subprocess

import pytest

import dflop


def samples(count=100):
    return [dflop.make_sample(20 + i * i % 50, [16] * (i % 5), 4 * (i % 5)) for i in range(count)]


@pytest.fixture
def plan(source):
    return str(source / "traces" / "plans" / "tiny-vlm-pp2.json")  # 32 samples in 8 microbatches


def test_samples_are_described_like_in_schedules():
    assert dflop.make_sample(30, [16, 16, 8], 10, "x") == {
        "id": "x",
        "modality": "multi_image",
        "encoder_sequences": [[2, 16, 256], [1, 8, 64]],
        "encoder_output_tokens": 10,
        "llm_tokens": 30,
    }
    assert dflop.make_sample(7)["modality"] == "text"


class NumpyNumber:
    """A number like numpy's: it works as an index, but json cannot write it."""

    def __init__(self, value):
        self._value = value

    def __index__(self):
        return self._value


def test_samples_accept_numpy_numbers_and_no_other_types():
    sample = dflop.make_sample(NumpyNumber(30), iter([NumpyNumber(16)]), NumpyNumber(4))
    assert json.loads(json.dumps(sample)) == dflop.make_sample(30, [16], 4)
    for wrong in ((-1,), (1.5,), (3, [0], 1), (3, [2], -1)):
        with pytest.raises(dflop.InputError, match="tokens: expected a whole number"):
            dflop.make_sample(*wrong)


def test_invalid_samples_are_named(plan):
    given = samples()
    given[41] = {"a": 1}
    said = "samples: sample 41: id: expected this key, as dflop.make_sample() makes it, found ['a']"
    with pytest.raises(dflop.InputError) as error:
        list(dflop.PlanSampler(plan, given, shuffle=False))
    assert str(error.value) == said


def test_an_epoch_draws_each_sample_once_in_its_own_order(plan):
    sampler = dflop.PlanSampler(plan, samples())
    first = [batch.indices for batch in sampler]
    assert len(first) == len(sampler) == 3
    drawn = [i for indices in first for i in indices]
    assert len(set(drawn)) == 96
    sampler.set_epoch(1)
    assert [batch.indices for batch in sampler] != first


def test_programs_equal_the_commands_programs(plan, tmp_path):
    sampler = dflop.PlanSampler(plan, samples(), keep=True)
    programs = [batch.program for batch in sampler]
    sampler.write_schedule(tmp_path / "schedule.json")
    out = tmp_path / "programs.json"
    line = ["simulate", "--plan", plan, "--schedule", str(tmp_path / "schedule.json"), "--program-out", str(out)]
    subprocess.run([dflop.executable(), *line], check=True, capture_output=True)
    written = json.loads(out.read_text())["iterations"]
    assert [{**program, "order": "1f1b"} for program in written] == programs


@pytest.mark.parametrize("done", [0, 1, 2])
def test_a_run_that_is_resumed_has_the_same_batches(plan, done):
    whole = list(dflop.PlanSampler(plan, samples(), seed=4))
    first = dflop.PlanSampler(plan, samples(), seed=4)
    iterator = iter(first)
    for _ in range(done):
        next(iterator)
    state = json.loads(json.dumps(first.state_dict()))
    second = dflop.PlanSampler(plan, samples(), seed=4)
    second.load_state_dict(state)
    assert list(second) == whole[done:]


@pytest.mark.parametrize("done", range(5))
def test_a_loop_over_epochs_resumes_where_it_stopped(plan, done):
    # 100 samples are 3 batches of 32. After the third, the loop may have ended when the state is saved (4) or not.
    whole = epochs(dflop.PlanSampler(plan, samples()), range(3))
    first = dflop.PlanSampler(plan, samples())
    first.set_epoch(1)
    list(itertools.islice(iter(first), done))
    state = json.loads(json.dumps(first.state_dict()))
    assert (state["epoch"], state["done"]) == (1, min(done, 3))
    second = dflop.PlanSampler(plan, samples())
    second.load_state_dict(state)
    assert second.epoch == (1 if done < 3 else 2)
    rest = [batch for batch in whole if batch[0] > 1 or (batch[0] == 1 and batch[1] >= done)]
    assert epochs(second, range(second.epoch, 3)) == rest
    second.load_state_dict(state)
    assert epochs(second, range(state["epoch"], 3)) == rest
    assert second.log == []


def test_set_epoch_drops_a_state_with_a_note(plan):
    first = dflop.PlanSampler(plan, samples())
    first.set_epoch(1)
    next(iter(first))
    second = dflop.PlanSampler(plan, samples())
    second.load_state_dict(first.state_dict())
    with pytest.warns(RuntimeWarning, match=r"PlanSampler: the loaded state of epoch 1 \(1 of 3 done\) is dropped"):
        second.set_epoch(2)
    assert [batch.step for batch in second] == [0, 1, 2]


def epochs(sampler, numbers):
    """Returns (epoch, step, indices) of all batches in these epochs."""
    given = []
    for epoch in numbers:
        sampler.set_epoch(epoch)
        given += [(batch.epoch, batch.step, batch.indices) for batch in sampler]
    return given


def test_a_killed_child_changes_nothing(plan):
    rng = random.Random(3)
    whole = list(dflop.PlanSampler(plan, samples(1000)))
    sampler = dflop.PlanSampler(plan, samples(1000))
    given = []
    for batch in sampler:
        given.append(batch)
        if rng.random() < 0.5:
            os.kill(sampler._scheduling._server.pid, signal.SIGKILL)
    assert given == whole


def test_states_of_other_runs_and_small_data_are_rejected(plan):
    state = dflop.PlanSampler(plan, samples()).state_dict()
    with pytest.raises(dflop.InputError, match="expected seed 5, as in the sampler, found 1"):
        dflop.PlanSampler(plan, samples(), seed=5).load_state_dict(state)
    for key, value in (("done", 4), ("done", "1"), ("done", -1), ("epoch", None), ("epoch", 0.5)):
        with pytest.raises(dflop.InputError, match=f"state: {key}: expected"):
            dflop.PlanSampler(plan, samples()).load_state_dict({**state, key: value})
    with pytest.raises(dflop.InputError, match="expected items 100, as in the sampler, found None"):
        dflop.PlanSampler(plan, samples()).load_state_dict({"version": 1})
    with pytest.raises(dflop.InputError, match="at least gbs = 32, found 31"):
        dflop.PlanSampler(plan, samples(31))
    with pytest.raises(dflop.InputError, match="conftest.py"):
        dflop.PlanSampler(__file__.replace("test_plan_sampler.py", "conftest.py"), samples())
