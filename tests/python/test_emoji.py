"""The emoji run with the committed pictures and few steps."""

import json
import os
import subprocess
import sys

import pytest

from dflop._executable import executable


@pytest.mark.parametrize(
    "options, model, first_id",
    [([], "a small Qwen2.5-VL", "train.tar/1f94c"), (["--qwen3-vl"], "a small Qwen3-VL", "train.jsonl/1")],
)
def test_the_committed_pictures_are_trained(source, tmp_path, options, model, first_id):
    program = source / "experiments" / "emoji" / "run.py"
    arguments = ["--part", *options, "--steps", "3", "--profile-s", "1", "--out", "run", "--dflop", executable()]
    run = subprocess.run(
        [sys.executable, str(program), *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=900
    )
    assert run.returncode == 0, run.stderr[-3000:]
    out = tmp_path / "run"
    losses = [json.loads(line)["loss"] for line in (out / "run.jsonl").read_text().splitlines()]
    assert len(losses) == 3 and losses[2] < losses[0], losses
    after = json.loads((out / "after.json").read_text())["rows"]
    assert after[0]["sample"] == first_id
    report = (out / "report.html").read_text()
    assert f"Model: {model}, from random weights." in report
    # The first of three steps is a warm-up. Both profiles predict.
    (check,) = json.loads((out / "check.json").read_text())["plans"]
    assert len(check["steps"]) == 2
    predicted = f"{check['predicted_s']:.3f} s ({100 * check['error']:+.1f} %). Predictions leave out"
    assert f"The last 2 steps took {check['measured_s']:.3f} s in the median; " in report
    assert f"the profile that was measured after training predicts {predicted}" in report
    assert "The profile that was measured before training predicted" in report
    # 24 answers before and after training about 24 trained pictures and 7 held-out pictures.
    assert report.count("<img") == 24 + 7
    weights = os.listdir(out / "model")
    assert {"config.json", "tokenizer.json", "preprocessor_config.json", "model.safetensors"} <= set(weights), weights
