"""The examples on two gloo ranks: other packages' loops train each sample once per epoch, and train_vlm.py runs as in
docs/tasks.md."""

import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest

import dflop


def test_accelerate_may_not_shard_a_second_time():
    torch = pytest.importorskip("torch")
    data_loader = pytest.importorskip("accelerate.data_loader")
    sampler = dflop.BatchSampler([1.0] * 64, gbs=16, microbatches=2, dp_rank=0, dp_size=2)
    loader = torch.utils.data.DataLoader(list(range(64)), batch_sampler=sampler)
    with pytest.raises(dflop.InputError, match="sharded a second time"):
        data_loader.prepare_data_loader(loader, num_processes=2, process_index=0)
    alone = data_loader.prepare_data_loader(loader, num_processes=1, process_index=0)
    assert len(list(alone)) == 8


@pytest.mark.parametrize(
    "example, package",
    [
        ("hf_trainer", "transformers"),
        ("accelerate_loop", "accelerate"),
        ("deepspeed_engine", "deepspeed"),
    ],
)
def test_ranks_share_the_samples_of_each_epoch(source, tmp_path, example, package):
    for name in ("torch", package):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    program = source / "experiments" / "examples" / "pytorch" / f"{example}.py"
    environment = {**os.environ, "PYTHONPATH": str(source / "experiments" / "python"), "OMP_NUM_THREADS": "1"}
    environment.update(ACCELERATE_USE_CPU="1", DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    logs = ["--redirects", "1", "--log-dir", str(tmp_path / "logs")]
    run = subprocess.run(
        [sys.executable, *launch, *logs, str(program)],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=400,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    given = []
    for rank in range(2):
        (log,) = (tmp_path / "logs").glob(f"*/attempt_0/{rank}/stdout.log")
        given.append([json.loads(items) for items in re.findall(r"^items (.*)$", log.read_text(), re.M)])
    # 64 samples in global batches of 16 with 2 microbatches: 8 microbatches per epoch on each rank, 2 epochs.
    assert [len(microbatches) for microbatches in given] == [16, 16]
    epochs = [sum(given[0][8 * e : 8 * e + 8] + given[1][8 * e : 8 * e + 8], []) for e in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(64))
    assert given[0][:8] != given[0][8:], "the second epoch has another order"


def test_modules_are_trained_under_plans_for_their_profile(source, tmp_path):
    if not hasattr(pytest.importorskip("torch"), "nn"):
        pytest.skip("torch is not installed")  # the name then refers to this folder's tests
    from dflop.torch._version import OLDEST_TORCH, is_old

    if is_old():
        pytest.skip(f"the plans may have orders that split backwards, which need torch {OLDEST_TORCH}")
    command = "python experiments/examples/pytorch/train_vlm.py --ranks 2 --out run"
    assert command in (source / "docs/tasks.md").read_text()
    environment = {**os.environ, "PYTHONPATH": str(source / "experiments" / "python")}
    words = command.replace("experiments/", f"{source}/experiments/").split()[1:]
    run = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900
    )
    assert run.returncode == 0, run.stderr[-3000:]
    losses = [float(loss) for loss in re.findall(r"^step +\d+  loss ([\d.]+) ", run.stdout, re.M)]
    assert len(losses) == 24
    # 64 equally likely words have a loss of ln 64 = 4.2. The captions' counting and visible colors can be learned.
    assert 3.5 < losses[0] < 5 and losses[-1] < 1
    table = run.stdout.partition("predicted from")[2].splitlines()[1:]
    assert [row[:36].split("  ")[0] for row in table] == ["the plan"] * 2 + ["another plan"] * 2
    for row in table:
        predicted, measured, _ = map(float, row[36:].split())
        assert predicted > 0 and measured > 0
