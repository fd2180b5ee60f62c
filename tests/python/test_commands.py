import json
import os
import pickle
import subprocess
import sys

import pytest
from plans import write_cluster

import dflop


def test_a_plan_is_simulated(source):
    data = str(source / "traces" / "datasets" / "vision_mix.csv")
    plan = dflop.plan(model="tiny-vlm", cluster="a100-80g:1", data=data, gbs=16)
    assert plan["schema"] == "dflop.plan" and plan["gbs"] == 16
    result = dflop.simulate(plan, data=data, iterations=2, scheduler="lpt")
    assert len(result["iterations_s"]) == 2
    assert result["iteration_s_mean"] == pytest.approx(sum(result["iterations_s"]) / 2)


def test_errors_equal_the_commands_errors(source):
    with pytest.raises(dflop.CommandError, match="--color"):
        dflop.plan(model="tiny-vlm", color="red")
    with pytest.raises(dflop.CommandError, match="did you mean 'tiny-vlm'") as caught:
        dflop.plan(model="tiny-vl", cluster="a100-80g:1", data="none.csv", gbs=16)
    assert caught.value.exit_code == 2
    data = str(source / "traces" / "datasets" / "vision_mix.csv")
    with pytest.raises(dflop.Infeasible):
        dflop.plan(model="internvl2.5-72b", cluster="a100-80g:1", data=data, gbs=16)


def test_python_reads_the_tables_of_the_published_planner(source, tmp_path):
    data = str(source / "traces" / "datasets" / "vision_mix.csv")
    asked = {"model": "llava-ov-llama3-8b", "cluster": "a100-80g:1", "data": data, "gbs": 16, "iterations": 1}
    dflop.plan(**asked, planner="dflop", tables_out=str(tmp_path))
    samples = pickle.loads((tmp_path / "llavaov_siglip_llama3.pkl").read_bytes())
    # vision_mix has 16,000 samples. Its largest ones have 37 tiles, and 32,768 tokens, where they are cut.
    tiles, tokens = samples["image_batch"], samples["llm_input_seq"]
    assert (len(tiles), max(tiles), len(tokens), max(tokens)) == (16000, 37, 16000, 32768)
    # tp 1, 2, 4 and 8: seven numbers of tiles, four lengths of sequences, two numbers of layers
    rows = {file.stem: len(file.read_text().splitlines()) - 1 for file in tmp_path.glob("*.csv")}
    assert rows == {
        "thr_llavaov_siglip_400m": 28,
        "thr_llavaov_llama3_8b": 16,
        "thr_llavaov_llama3_8b_skip_attn": 16,
        "mem_llavaov_siglip_400m": 8,
        "mem_llavaov_llama3_8b": 8,
    }


def test_a_search_for_interleaved_has_two_chunks(source):
    asked = {"model": "tiny-vlm", "cluster": "a100-80g:1", "gbs": 16, "order": "interleaved", "iterations": 1}
    asked["data"] = str(source / "traces" / "datasets" / "vision_mix.csv")
    for wish in ({"planner": "search", "budget": 2000}, {"pp": 2, "tp": 1, "dp": 4, "microbatches": 4}):
        plan = dflop.plan(**asked, **wish)
        assert (plan["schedule"], plan["chunks"]) == ("interleaved", 2), wish
    with pytest.raises(dflop.CommandError, match="'--chunks': required with interleaved"):
        dflop.plan(**asked, planner="pytorch")


def test_a_plan_with_missing_files_says_where_they_were_searched(source, tmp_path, monkeypatch):
    model = (source / "experiments" / "presets" / "models" / "tiny-vlm.json").read_text()
    (tmp_path / "model.json").write_text(model)
    os.rename(write_cluster(tmp_path, 2), tmp_path / "cluster.json")
    samples = [dflop.make_sample(20 + i, [16], 4) for i in range(16)]
    dflop.write_samples(tmp_path / "samples.json", samples)
    monkeypatch.chdir(tmp_path)
    plan = dflop.plan(model="model.json", cluster="cluster.json", data="samples.json", gbs=8, tp=1, iterations=1)
    assert next(iter(dflop.PlanSampler(plan, samples))).indices
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    for key, found in (("model", dict(plan)), ("cluster", {**plan, "model": str(tmp_path / "model.json")})):
        with pytest.raises(dflop.InputError) as caught:
            next(iter(dflop.PlanSampler(found, samples)))
        said = str(caught.value)
        assert f"plan: key '{key}': {key}.json: cannot be opened" in said
        assert "run in the folder where the plan was made, or plan with absolute paths" in said
        assert f"the working directory is '{other}'" in said


def test_plans_of_frozen_parts_are_not_for_ranks(source):
    data = str(source / "traces" / "datasets" / "vision_mix.csv")
    asked = {"model": "tiny-vlm", "cluster": "a100-80g:1", "data": data, "gbs": 16, "iterations": 1}
    plan = dflop.plan(**asked, freeze="encoder", layout="uniform", tp=1)
    assert any("nor an Executor of dflop.torch can run them" in note for note in plan.notes)
    samples = [dflop.make_sample(20 + i, [16], 4) for i in range(16)]
    with pytest.raises(dflop.InputError, match="plan without --freeze and --lora; parameters of your modules that do"):
        next(iter(dflop.PlanSampler(plan, samples)))


def test_compare_gives_rows(source):
    data = str(source / "traces" / "datasets" / "vision_mix.csv")
    rows = dflop.compare(
        model="tiny-vlm", cluster="a100-80g:1", data=data, gbs=16, iterations=1, systems="pytorch,dflop"
    )
    assert {row["system"] for row in rows["systems"]} == {"pytorch", "dflop"}
    pandas = pytest.importorskip("pandas")
    table = rows["systems"].to_pandas()
    assert isinstance(table, pandas.DataFrame) and set(table["system"]) == {"pytorch", "dflop"}


def test_options_are_passed_like_on_the_command_line(broken):
    broken("""shift; printf '{"arguments": "'; printf '%s ' "$@"; printf '"}'; echo 'a note' >&2""")
    result = dflop.run("data stats", "x.csv", flag=True, none=None, some_list=[1, 2], number=3)
    assert result["arguments"] == "stats x.csv --flag --some-list 1 --some-list 2 --number 3 --format json "
    assert result.notes == ["a note"]


def test_false_removes_a_flag(source):
    data = str(source / "traces" / "datasets" / "vision_mix.csv")
    asked = {"model": "tiny-vlm", "cluster": "a100-80g:1", "data": data, "gbs": 16}
    for given, clips in ((False, False), (None, False), (True, True)):
        assert dflop.plan(**asked, clip_gradients=given).get("clip_gradients", False) is clips
    # zero1 is on by default, and false turns it off.
    assert [dflop.plan(**asked, zero1=given)["zero1"] for given in (None, True, False)] == [True, True, False]
    with pytest.raises(dflop.InputError, match="gbs: expected N, or None to leave it out, found False"):
        dflop.plan(**{**asked, "gbs": False})
    with pytest.raises(dflop.InputError, match="clip_gradient: expected an option of 'dflop plan'"):
        dflop.plan(**asked, clip_gradient=False)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"gbs": True}, "gbs: expected N, or None to leave it out, found True"),
        ({"strict": "false"}, "strict: expected True, False or None, because it is a flag, found 'false'"),
        ({"zero1": 1}, "zero1: expected True, False or None, because it is a flag, found 1"),
        ({"strict": [True]}, "strict: expected True, False or None, because it is a flag, found [True]"),
        ({"format": "csv"}, "format: expected none, because run() reads the output of --format json, found 'csv'"),
    ],
)
def test_invalid_option_values_are_named(options, said):
    with pytest.raises(dflop.InputError) as caught:
        dflop.plan(model="tiny-vlm", cluster="a100-80g:1", data="data.csv", **{"gbs": 16, **options})
    assert str(caught.value) == said


def test_a_command_is_a_text():
    for call in (dflop.run, dflop.options):
        with pytest.raises(dflop.InputError, match="command: expected the name of a command, such as 'plan', found None"):
            call(None)
    with pytest.raises(dflop.CommandError, match="fly"):
        dflop.run("fly", wings=2)


def test_options_of_a_command_are_listed():
    options = dflop.options("plan")
    assert options["clip_gradients"] == options["no_zero1"] == "" and options["gbs"] == "N"
    assert {"model", "cluster", "data", "out", "format", "recompute"} <= options.keys()
    with pytest.raises(dflop.CommandError):
        dflop.options("fly")


def test_an_infeasible_command_has_its_exit_code_and_message(source):
    data = str(source / "traces" / "datasets" / "vision_mix.csv")
    with pytest.raises(dflop.Infeasible) as caught:
        dflop.plan(model="internvl2.5-72b", cluster="a100-80g:1", data=data, gbs=16)
    assert caught.value.exit_code == 3 and "infeasible" in caught.value.stderr


def test_dataframes_without_pandas_say_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)  # as if not installed
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'dflop\[pandas\]'"):
        dflop._commands.Rows([{"a": 1}]).to_pandas()


def test_a_machine_without_a_preset_is_planned_for_with_only_a_profile(tmp_path):
    cluster, profile, data = (tmp_path / f"{name}.json" for name in ("cluster", "profile", "samples"))
    dflop.write_cluster(cluster, 2, memory_bytes=4 << 30)
    samples = [dflop.make_sample(80 + i, [64], 64) for i in range(16)]
    dflop.write_samples(data, samples)
    short = {"budget_s": 0.1, "most_tokens": 64, "tp": 1, "sequence_parallel": False}
    dflop.run("profile", device="host", model="tiny-vlm", out=profile, **short)
    asked = {"model": "tiny-vlm", "cluster": cluster, "data": data, "gbs": 16}
    planning = {**asked, "planner": "search", "tp": 1, "iterations": 1}
    files = {"plan": tmp_path / "plan.json", "schedule": tmp_path / "schedule.json"}
    plan = dflop.plan(**planning, profile=profile, out=files["plan"])
    assert plan["llm"]["pp"] * plan["llm"]["dp"] <= 2
    scheduling = {"plan": files["plan"], "data": data, "iterations": 1, "scheduler": "lpt"}
    dflop.run("schedule", **scheduling, profile=profile, out=files["schedule"])

    # No command prices with the placeholders.
    said = f"{cluster}: key 'placeholder': the cluster's speeds are placeholders: expected measurements instead"
    for command, options in {
        "plan": planning,
        "schedule": scheduling,
        "simulate": files,
        "check schedule": files,
        "compare": {**asked, "iterations": 1},
    }.items():
        with pytest.raises(dflop.CommandError) as caught:
            dflop.run(command, **options)
        assert said in caught.value.stderr and "'--profile FILE'" in caught.value.stderr, command
        assert caught.value.stderr.count("\n") == 1, command
    with pytest.raises(dflop.InputError, match="the cluster's speeds are placeholders: .*in Python profile=FILE"):
        next(iter(dflop.PlanSampler(files["plan"], samples)))
    assert next(iter(dflop.PlanSampler(files["plan"], samples, profile=profile))).indices

    # If the cluster has its own speeds, a note reports a plan that was made with a profile.
    cluster.write_text(json.dumps({**json.loads(cluster.read_text()), "placeholder": False}))
    for command, options in {"schedule": {**scheduling, "out": files["schedule"]}, "simulate": files}.items():
        notes = noted(command, **options)
        assert f"{files['plan']} was made with the profile {profile} (" in notes, command
        assert "was made with the profile" not in noted(command, **options, profile=profile), command


def noted(command, **options):
    """Returns a command's standard error."""
    arguments = [part for key, value in options.items() for part in (f"--{key}", str(value))]
    return subprocess.run([os.environ["DFLOP_EXECUTABLE"], command, *arguments], capture_output=True, text=True).stderr


@pytest.mark.parametrize("output", ["echo hello", "echo 12", "printf '{'"])
def test_a_command_without_a_result_is_an_error(broken, output):
    broken(output)
    with pytest.raises(dflop.CommandError, match="expected a result as JSON, found"):
        dflop.plan(model="tiny-vlm")


def test_a_command_that_dies_is_an_error(broken):
    broken("kill -9 $$")
    with pytest.raises(dflop.CommandError, match="exit code -9"):
        dflop.plan(model="tiny-vlm")
