#!/usr/bin/env python3
"""Makes the tables of docs/results.md, as Markdown: `dflop compare` over all models, or over changed clusters.

    experiments/tables/results.py models a100-80g
    experiments/tables/results.py models a100-80g-vtrain
    experiments/tables/results.py sensitivity
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DFLOP = ROOT / "build/release/dflop"
VISION = "--data traces/datasets/vision_mix.csv"
AUDIO = "--data traces/datasets/omni_mix.csv --modalities text,audio"
DEMO = "llava-ov-llama3-8b"
MODELS = {  # and the number of nodes of each
    "llava-ov-qwen2.5-7b": 4,
    "llava-ov-llama3-8b": 4,
    "llava-ov-siglip6b-qwen2.5-7b": 4,
    "llava-ov-siglip6b-llama3-8b": 4,
    "qwen2.5-vl-7b": 4,
    "llava-ov-qwen2.5-32b": 8,
    "llava-ov-siglip6b-qwen2.5-32b": 8,
    "llava-ov-llama3-70b": 8,
    "llava-ov-qwen2.5-72b": 8,
    "llava-ov-siglip6b-llama3-70b": 8,
    "llava-ov-siglip6b-qwen2.5-72b": 8,
    "internvl2.5-72b": 8,
    "qwen2-audio-7b": 4,
}
# Changes to the file of a100-80g, as keys and values: figures of a100-80g-vtrain, or half and double values.
CHANGES = {
    "unchanged": {},
    "25 -> 369 us a layer and pass": {"software.kernel_overhead_s": 369.3e-6},
    "launch floor of 1.17 ms": {"software.layer_launch_s": 1.174e-3},
    "0.05 -> 1.46 ms a message": {"software.message_overhead_s": 1.455e-3},
    "gradient rings at 12.5e9 B/s a node": {"software.node_ring_bandwidth_bytes_per_s": 12.5e9},
    "11 -> 5.7e9 B/s a GPU between nodes": {"inter_node.bandwidth_bytes_per_s": 5.744e9},
    "11 -> 22e9 B/s a GPU between nodes": {
        "inter_node.bandwidth_bytes_per_s": 22e9,
        "inter_node.line_rate_bytes_per_s": 25e9,
    },
    "NVLink at half its speed": {"intra_node.bandwidth_bytes_per_s": 114e9},
    "half of tensor communication hidden": {"software.tensor_overlap": 0.5},
}


def compare(options):
    """Returns the rows of a comparison, by name."""
    command = [DFLOP, "compare", *options.split(), "--gbs", "512", "--seed", "1", "--seeds", "1", "--format", "json"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if run.returncode not in (0, 3):
        sys.exit(run.stderr)
    return {row["system"]: row for row in json.loads(run.stdout)["systems"]}


def seconds(row):
    return row["iteration_s_mean"]


def shown_time(row):
    return "-" if seconds(row) is None else f"{seconds(row):.2f}"


def shown_plan(row):
    if seconds(row) is None:
        return "none fits"
    return row["plan_description"].replace(" | ", " / ") + " " + row["recomputation"]


def best_of(rows, names):
    fitting = [name for name in names if name in rows and seconds(rows[name]) is not None]
    return min(fitting, key=lambda name: seconds(rows[name]))


def print_row(cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def models(cluster):
    print_row(["model", "nodes", "best baseline", "s/iter", "megatron-default", "dflop plan", "dflop-optimizer",
               "dflop", "dflop-paper", "dflop-expected", "search", "s/iter", "x best other"])
    print_row(["---"] * 13)
    gains = []
    for model, nodes in MODELS.items():
        data = AUDIO if "audio" in model else VISION
        rows = compare(f"{data} --model {model} --cluster {cluster}:{nodes} --iterations 8")
        baseline = best_of(rows, ["pytorch", "megatron"])
        other = best_of(rows, [name for name in rows if name != "search"])
        gains.append(seconds(rows[other]) / seconds(rows["search"]))
        print_row([model, str(nodes), f"{baseline}: {shown_plan(rows[baseline])}", shown_time(rows[baseline]),
                   shown_time(rows["megatron-default"]), shown_plan(rows["dflop"]),
                   shown_time(rows["dflop-optimizer"]), shown_time(rows["dflop"]), shown_time(rows["dflop-paper"]),
                   shown_time(rows["dflop-expected"]), shown_plan(rows["search"]), shown_time(rows["search"]),
                   f"**{gains[-1]:.2f}** ({other})"])
    print(f"\nsearch over the best other row: mean {sum(gains) / len(gains):.3f}, least {min(gains):.3f}")


def sensitivity():
    preset = json.loads((ROOT / "experiments/presets/clusters/a100-80g.json").read_text())
    print_row(["cluster", "best baseline", "s/iter", "dflop", "dflop-expected", "search", "s/iter", "x best other"])
    print_row(["---"] * 8)
    for what, changes in CHANGES.items():
        cluster = json.loads(json.dumps(preset))
        for key, value in changes.items():
            part, name = key.split(".")
            cluster[part][name] = value
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(cluster, file)
            file.flush()
            rows = compare(f"{VISION} --model {DEMO} --cluster {file.name}:4 --iterations 8")
        baseline = best_of(rows, ["pytorch", "megatron"])
        other = best_of(rows, [name for name in rows if name != "search"])
        print_row([what, shown_plan(rows[baseline]), shown_time(rows[baseline]), shown_time(rows["dflop"]),
                   shown_time(rows["dflop-expected"]), shown_plan(rows["search"]), shown_time(rows["search"]),
                   f"**{seconds(rows[other]) / seconds(rows['search']):.2f}** ({other})"])


if len(sys.argv) == 3 and sys.argv[1] == "models":
    models(sys.argv[2])
elif sys.argv[1:] == ["sensitivity"]:
    sensitivity()
else:
    sys.exit(__doc__)
