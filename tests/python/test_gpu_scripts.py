"""The scripts that show dflop's features on a GPU: their dry runs and their judgments."""

import importlib
import json
import math
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

GPU = Path(__file__).resolve().parents[2] / "experiments/gpu"
sys.path[:0] = [str(GPU), str(GPU / "h2h")]
data, models, report, head_to_head = (importlib.import_module(name) for name in ("data", "models", "report", "head_to_head"))


@pytest.fixture
def dflop(source):
    return Path(os.environ.get("DFLOP_EXECUTABLE", source / "build/release/dflop"))


# PyTorch takes part if ./dev test torch runs this test.
@pytest.mark.parametrize("half, steps", [("first", 5), ("second", 18)])
def test_dry_run_of_a_half(dflop, tmp_path, half, steps):
    command = [GPU / "run_all.sh", half, "--out", tmp_path, "--dry-run", "--build", dflop.parent]
    done = subprocess.run(command, env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True, timeout=700)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    table = (tmp_path / half / "log.txt").read_text().rpartition("exit status  seconds\n")[2].splitlines()
    rows = [line.split() for line in table]
    assert len(rows) == steps
    assert {status for _, status, _ in rows} <= {"0", "skipped"}
    assert len([name for name, status, _ in rows if status == "skipped"]) <= 1  # a program that only CUDA builds have


def test_a_failed_step_is_in_the_table_and_does_not_stop_others(tmp_path):
    """No program exists, so each step that needs one fails."""
    (tmp_path / "build").mkdir()
    command = [GPU / "run_all.sh", "second", "--out", tmp_path, "--dry-run", "--build", tmp_path / "build"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    rows = dict(line.split()[:2] for line in done.stdout.splitlines()[-18:])
    assert rows["shares"] == "127"  # no such command
    assert rows["data"] == "0"
    assert rows["benches"] == "skipped"


def test_parameters_equal_the_count_of_transformers():
    """The counts are for its models with these configurations, with tied embeddings counted once."""
    counts = {kind: sum(math.prod(shape) for _, shape in models.tensors(config)) for kind, config in models.MODELS.items()}
    assert counts["text"] == 1_235_814_400
    assert counts["vlm"] == 1_904_775_168


def test_flop_of_a_text_sample():
    """A layer has 2048 x (2048 + 2 x 512 + 2048) + 3 x 2048 x 8192 = 60,817,408 weights, 16 layers 973,078,528, the
    head 2048 x 128,256 = 262,668,288. Six FLOP per weight and token; causal attention 6 x 2048 per layer and pair of
    tokens."""
    tokens = 4096
    expected = 6 * (973_078_528 + 262_668_288) * tokens + 16 * 6 * 2048 * tokens**2
    assert models.flop(models.TEXT, models.Sample(tokens, tokens)) == expected


def test_flop_of_windows():
    """A picture of 9 x 8 patches has windows of 8 x 8 and 1 x 8: 64^2 + 8^2 pairs. Layers with full attention have
    72^2. The FLOP of the LLM and of all products do not depend on the number of full-attention layers."""
    sample = models.Sample(30, 5, (9, 8))
    one, two = (
        models.flop(models.changed(models.VLM, vision={"fullatt_block_indexes": whole}), sample) for whole in ([7], [7, 15])
    )
    assert two - one == 12 * 1280 * (72**2 - 64**2 - 8**2)


def test_token_ids_are_bytes_and_special_tokens():
    ids, trained = data.tokens_of("<image>\nWhy?", "So.", 2)
    frame = len("system\nYou are a helpful assistant.") + len("\nuser\n")
    assert len(ids) == 3 + frame + 4 + len("\nWhy?") + 2 + len("\nassistant\n") + len("So.") + 2
    assert [id for id, is_trained in zip(ids, trained) if is_trained] == [*b"So.", models.ID_OF["<|im_end|>"]]
    assert ids.count(models.ID_OF["<|image_pad|>"]) == 2


def test_data_are_the_same_each_time_and_samples_differ(tmp_path):
    for name in ("a", "b"):
        data.make(tmp_path / name, ("text", "vlm"), small=True)
    for file in ("text.bin", "text.idx", "vlm.tar", "vlm/model.safetensors", "samples.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file
    with tarfile.open(tmp_path / "a/vlm.tar") as tar:
        pictures = [tar.extractfile(member).read() for member in tar if member.name.endswith(".png")]
    assert len(set(pictures)) == data.SMALL.samples
    assert data.Sizes().samples >= 256


def step(number, loss, tokens=10):
    return {"step": number, "loss": loss, "llm_tokens": tokens, "encoder_tokens": 0}


def test_losses_are_compared():
    ours = [step(1, 12.0), step(2, 10.0)]
    most, problem = head_to_head.difference(ours, [step(1, 12.0), step(2, 9.9)])
    assert problem == "" and most == pytest.approx(10 / 9.9 - 1)
    assert "step 1" in head_to_head.difference(ours, [step(1, 12.1), step(2, 10.0)])[1]
    assert "step 2" in head_to_head.difference(ours, [step(1, 12.0), step(2, 9.0)])[1]
    assert "step 2" in head_to_head.difference(ours, [step(1, 12.0), step(2, float("nan"))])[1]
    assert "other samples" in head_to_head.difference(ours, [step(1, 12.0, 11)])[1]


def test_figures_exclude_warm_up_steps():
    """The first of three steps does not count. The others end 2 s and 4 s later, with 30 tokens, and take 1 s and
    3 s."""
    sides = importlib.import_module("sides")
    lines = [
        {"step": i + 1, "iteration_s": s, "llm_tokens": 10 * i, "peak_memory_bytes": 2**30} for i, s in enumerate((9.0, 1.0, 3.0))
    ]
    found = sides.figures([10.0, 12.0, 16.0], lines, [1e12, 6e12, 12e12], 1, 6)
    assert found["ready_s"] == 1
    assert (found["step_s"], found["step_to_step_s"]) == (2, 3)
    assert found["llm_tokens_per_s"] == 5
    assert (found["tflops"], found["of_peak"]) == (3, 0.5)
    assert found["counted_gib"] == 1


def test_page_refers_to_nothing_outside_and_marks_failures(tmp_path):
    row = {"kind": "text", "who": "torch", "run": "a <b>", "steps": 2, "state": "failed", "note": "apart", "losses": [3.0, 2.0]}
    report.write(tmp_path, {"made": {"gpu": "none"}, "rows": [row]})
    page = (tmp_path / "report.html").read_text()
    assert "a &lt;b&gt;" in page and "class='failed'" in page
    assert "src=" not in page and "href=" not in page
    assert "| text | torch | a <b> | 2 |" in (tmp_path / "table.md").read_text()
    assert json.loads((tmp_path / "head-to-head.json").read_text())["rows"] == [row]


# A rank that logs steps as the last argument says, until rank 1 is gone.
RANK = """
log=${{!#}}
if [ "$RANK" = 1 ]; then echo $$ >"$MARK"; sleep 20; fi
for i in 1 2 3 4; do
  if [ "$RANK" = 0 ]; then echo '{{"step": '$i', "loss": 2.0, "iteration_s": 0.02}}' >>"$log"; fi
  sleep 0.02
done
while [ ! -s "$MARK" ] || kill -0 "$(cat "$MARK")" 2>/dev/null; do sleep 0.02; done
{last}
"""


def run_ranks(tmp_path, last, *options):
    rank = tmp_path / "rank.sh"
    rank.write_text("#!/bin/bash\n" + RANK.format(last=last))
    rank.chmod(0o755)
    command = [sys.executable, GPU / "ranks.py", "3", "--out", tmp_path / "out", *options, "--", rank]
    environment = {**os.environ, "MARK": str(tmp_path / "mark")}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_ranks_end_with_a_line_when_one_is_killed(tmp_path):
    done = run_ranks(tmp_path, "echo 'dflop: error: rank 1 is gone'; exit 1", "--kill", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "rank 0: dflop: error: rank 1 is gone\nrank 2: dflop: error: rank 1 is gone\n"


@pytest.mark.parametrize("last", ["exit 1", "echo 'dflop: error: a'; exit 0", "echo 'dflop: error: a'; echo 'dflop: error: b'; exit 1"])
def test_ranks_that_end_unexpectedly_fail(tmp_path, last):
    done = run_ranks(tmp_path, last, "--kill", "1")
    assert done.returncode == 1
    assert "expected a failure with one line" in done.stderr


def test_bundle_is_checked_against_its_limit(tmp_path):
    """Small existing programs take the place of dflop's."""
    build = tmp_path / "build"
    (build / "tests").mkdir(parents=True)
    for name in ("dflop", "dflop_bench", "tests/test_cuda"):
        (build / name).write_bytes(Path("/bin/true").read_bytes())
        (build / name).chmod(0o755)
    bundle = [GPU / "bundle.sh", tmp_path / "b.tar.xz", build]
    done = subprocess.run(bundle, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "of 64 at most" in done.stdout
    with tarfile.open(tmp_path / "b.tar.xz") as tar:
        names = set(tar.getnames())
    expected = ("build/cuda/dflop", "experiments/gpu/run_all.sh", "experiments/gpu/h2h/peer.py", "traces/datasets/vision_mix.csv")
    assert {"dflop-gpu/" + name for name in (*expected, "traces/grids/small-vlm-gpu.json")} <= names

    done = subprocess.run([*bundle, "0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "more than 0 MiB" in done.stderr
    (build / "dflop_bench").unlink()
    done = subprocess.run(bundle, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "./dev build cuda" in done.stderr
