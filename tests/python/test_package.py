"""What the package shows: names, types, and messages for events."""

import gc
import inspect
import logging
import os
import pickle
import shutil
import signal
import subprocess
import sys
import types
import warnings

import pytest
from plans import make_plan, make_samples

import dflop


def sampler(**options):
    return dflop.BatchSampler([1.0 + i % 7 for i in range(64)], **{"gbs": 16, "microbatches": 2, **options})


@pytest.fixture
def group(monkeypatch):
    """Makes this process a rank of torch.distributed: group(rank, ranks). group(None) leaves it uninitialized."""

    def make(rank, ranks=1):
        distributed = types.ModuleType("torch.distributed")
        distributed.is_available = lambda: True
        distributed.is_initialized = lambda: rank is not None
        distributed.get_rank = lambda: rank
        distributed.get_world_size = lambda: ranks
        monkeypatch.setitem(sys.modules, "torch.distributed", distributed)

    return make


# Ranks.


def place(**options):
    one = sampler(**options)
    return one.dp_rank, one.dp_size


def test_ranks_come_from_torch_distributed_by_default(group, caplog):
    group(None)
    assert place() == (0, 1)
    group(1, 2)
    assert place() == place(dp_size=2) == (1, 2)
    assert place(dp_rank=0, dp_size=1) == place(dp_size=1) == (0, 1), "pipeline ranks have the same samples"
    assert place(dp_rank=3, dp_size=4) == (3, 4)
    assert place(dp_rank=None, dp_size=1) == (None, 1)
    with pytest.raises(dflop.InputError, match="dp_rank: expected a value, because torch.distributed has 2 ranks"):
        place(dp_size=4)
    with pytest.raises(dflop.InputError, match="dp_size: expected the number of dp ranks of the LLM, because dp_rank is N"):
        place(dp_rank=None)


@pytest.mark.parametrize(
    "ranks, options, said",
    [
        ((1, 2), {}, "dp_rank 1 of 2, as in torch.distributed"),
        ((1, 2), {"dp_rank": 1, "dp_size": 4}, "dp_rank 1 of 4, as given"),
        ((None,), {}, "dp_rank 0 of 1, as there is one process"),
        ((None,), {"dp_rank": 1, "dp_size": 2}, "dp_rank 1 of 2, as given"),
        ((None,), {"dp_rank": None, "dp_size": 2}, "whole microbatches of 2 dp ranks, as given"),
    ],
)
def test_the_log_says_which_rank_a_sampler_took(ranks, options, said, group, caplog):
    group(*ranks)
    with caplog.at_level(logging.INFO, "dflop"):
        place(**options)
    assert [record.message for record in caplog.records] == [f"BatchSampler: {said}"]


def test_indistinguishable_ranks_are_rejected(group, monkeypatch):
    group(None)
    with pytest.raises(dflop.InputError, match="dp_rank: expected this rank's number, because dp_size is 2.*init_process"):
        place(dp_size=2)
    group(0, 1)  # a group of one rank no longer tells two ranks apart
    with pytest.raises(dflop.InputError, match="dp_rank: expected this rank's number"):
        place(dp_size=2)
    # As under torchrun, before init_process_group().
    group(None)
    monkeypatch.setenv("WORLD_SIZE", "2")
    for options in ({}, {"dp_rank": 0}, {"dp_rank": None}):
        with pytest.raises(dflop.InputError, match="dp_size: expected a value, because the environment has WORLD_SIZE=2"):
            place(**options)
    assert place(dp_size=1) == (0, 1)
    assert place(dp_rank=1, dp_size=2) == (1, 2)
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert place() == (0, 1)


def test_a_sampler_older_than_its_group_is_rejected(group):
    one, given = sampler(), sampler(dp_rank=0, dp_size=1, compare=False)  # a group here has no store
    group(1, 2)
    with pytest.raises(dflop.InputError, match="every rank would get the samples of rank 0 of 1. Make it after"):
        next(iter(one))
    given._given_agreement = object()  # LPT is not requested
    given._schedule = lambda step: [0] * 16
    given._agreed = lambda step, bins: [i % 2 for i in range(16)]
    assert len(next(iter(given))) == 8


# States.


def test_a_state_counts_the_batches_that_the_loop_received():
    drawn = sampler(seed=3)
    whole = list(drawn)
    ahead = iter(drawn)
    had = [next(ahead) for _ in range(3)]
    for _ in range(4):
        next(ahead)  # a loader's workers draw these
    state = drawn.state_dict(consumed=3)
    resumed = sampler(seed=3)
    resumed.load_state_dict(state)
    assert had + list(resumed) == whole
    for _ in ahead:
        pass
    assert drawn.state_dict(consumed=3) == state, "the loader has drawn all, the loop has not"
    with pytest.raises(dflop.InputError, match="consumed: expected a whole number from 0 to 8, found 9"):
        drawn.state_dict(consumed=9)


# Names.


def test_names_are_available_without_import():
    shown = "'torch' in dir(dflop), dflop.torch.__name__, *dflop.torch.__all__, dflop.__version__"
    program = f"import dflop; print({shown})"
    run = subprocess.run(
        [sys.executable, "-c", program + "; import sys; print('torch' in sys.modules)"],
        env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(dflop.__file__))},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    names, imported = run.stdout.splitlines()
    assert names.split()[:2] == ["True", "dflop.torch"] and names.split()[-1][0].isdigit()
    assert {"Executor", "Recorder", "profile"} <= set(names.split()) <= {*dir(dflop.torch), *names.split()}
    assert "Executor" in dir(dflop.torch) and imported == "False"
    with pytest.raises(AttributeError, match="no attribute 'tensor'"):
        dflop.tensor


def test_tools_may_inspect_everything():
    one = sampler()
    assert not hasattr(one, "drop_last") and getattr(one, "drop_last", None) is None
    assert "state_dict" in dict(inspect.getmembers(one))
    assert repr(one) == (
        "BatchSampler(64 items, gbs=16, microbatches=2, dp_rank=0, dp_size=1, epoch=0, 0 of 8 drawn)"
    )


def test_samplers_are_contexts_and_can_be_pickled():
    plan = make_plan("uniform", "1f1b", (1, 1), (1, 1), 2, 4)
    with dflop.PlanSampler(plan, make_samples(8, 0)) as planned:
        first = next(iter(planned))
        again = pickle.loads(pickle.dumps(planned))
        assert [batch.indices for batch in again][0] == first.indices
        again.close()
        assert repr(planned) == "PlanSampler(8 samples, gbs=4, epoch=0, 1 of 2 given)"
    with sampler() as one:
        assert len(list(one)) == 8
    with dflop.Server() as server:
        assert dflop.partition([2, 1, 1], 2, server=server)
    assert server.pid is None


# Messages.


def test_a_restarted_child_is_logged(caplog):
    one = sampler()
    batches = iter(one)
    next(batches)
    with caplog.at_level(logging.INFO, "dflop"):
        os.kill(one._scheduling._server.pid, signal.SIGKILL)
        assert len(list(batches)) == 7
    assert "dflop serve is started again: dflop serve died (signal 9)" in caplog.text
    assert ["died (signal 9)" in line and "another child" in line for line in one.log] == [True]


def test_children_leave_no_pipes_open():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        server = dflop.Server()
        dflop.partition([2, 1, 1], 2, server=server)
        os.kill(server.pid, signal.SIGKILL)
        dflop.partition([2, 1, 1], 2, server=server)
        server.close()
        del server
        gc.collect()
    assert not [str(one.message) for one in said if one.category is ResourceWarning]


# Types.

USES = """
import dflop
import dflop.torch

reveal_type(dflop.partition([1, 2], 2))
reveal_type(dflop.BatchSampler([1.0], gbs=1, microbatches=1).state_dict(consumed=0))
reveal_type(dflop.__version__)
reveal_type(dflop.make_sample(3))
dflop.partition([1, 2], 2, equal_sise=True)
dflop.BatchSampler([1.0], gbs="1", microbatches=1)
dflop.torch.Executor("plan.json", lambda stage: 3, clip=1.0)
"""


def test_types_are_checked(source, tmp_path):
    mypy = [sys.executable, "-m", "mypy"] if _has_mypy() else [shutil.which("mypy")]
    if mypy[0] is None:
        pytest.skip("there is no mypy")
    package = source / "experiments" / "python"
    # Without torch, which may be missing and takes long to read.
    common = [*mypy, "--ignore-missing-imports", "--no-site-packages", f"--cache-dir={tmp_path}/cache"]

    def checked(*arguments):
        run = subprocess.run(
            [*common, *map(str, arguments)],
            env={**os.environ, "MYPYPATH": str(package)},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            text=True,
        )
        return run.returncode, run.stdout

    code, said = checked(package / "dflop")
    assert code == 0, said
    uses = tmp_path / "uses.py"
    uses.write_text(USES)
    code, said = checked(uses)
    said = said.replace("builtins.", "").lower()
    for found in ("list[list[int]]", "dict[str, any]", "str"):
        assert f'revealed type is "{found}"' in said, said
    for wrong in ('"equal_sise" for "partition"', 'type "str"; expected "int"', '"clip" for "executor"'):
        assert wrong in said, said


def _has_mypy():
    return subprocess.run([sys.executable, "-c", "import mypy"], stderr=subprocess.DEVNULL).returncode == 0


def test_public_functions_have_type_hints():
    assert os.path.exists(os.path.join(os.path.dirname(dflop.__file__), "py.typed"))
    for name in dflop.__all__:
        value = getattr(dflop, name)
        functions = [value] if inspect.isfunction(value) else [f for n, f in vars(value).items() if n[0] != "_"]
        for function in functions:
            function = function.fget if isinstance(function, property) else function
            if inspect.isfunction(function):
                known = set(function.__annotations__)
                asked = {p for p in inspect.signature(function).parameters if p != "self"}
                assert known >= asked and "return" in known, f"{name}: {function.__qualname__}"


def test_the_log_says_how_many_items_an_epoch_leaves_out(caplog):
    plan = make_plan("uniform", "1f1b", (1, 1), (1, 1), 2, 16)
    with caplog.at_level(logging.INFO, "dflop"):
        for _ in sampler(gbs=24):  # 64 = 2 x 24 + 16
            pass
        dflop.PlanSampler(plan, make_samples(35, 0))  # 35 = 2 x 16 + 3
        sampler(gbs=24, drop_last=False)
        sampler(gbs=32)
        dflop.PlanSampler(plan, make_samples(32, 0))
    said = [record.message for record in caplog.records if "leaves" in record.message]
    assert said == [
        "BatchSampler: each epoch leaves out 16 of 64 items, because they do not fill a global batch of 24",
        "PlanSampler: each epoch leaves out 3 of 35 items, because they do not fill a global batch of 16",
    ]
