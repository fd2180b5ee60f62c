"""Plans, samples and programs for tests of code that runs a Program. No torch."""

import itertools
import json
import random
from pathlib import Path

import dflop

SOURCE = Path(__file__).resolve().parents[2]
ENCODER_LAYERS, LLM_LAYERS = 4, 6  # of small-vlm
ORDERS = ["gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-h2"]
TIED_MODEL = str(SOURCE / "tests" / "golden" / "models" / "qwen2-tied")  # a text model with 2 layers


def make_samples(count, seed):
    """Returns samples in the form that schedules have. Every fourth is text only."""
    rng = random.Random(seed)
    samples = []
    for i in range(count):
        sequences = [4 * rng.randint(1, 3) for _ in range(0 if i % 4 == 0 else rng.randint(1, 5))]
        out = sum(sequences) // 4
        samples.append(
            {
                "id": f"sample {i}",
                "modality": "multi_image" if sequences else "text",
                "encoder_sequences": [[1, tokens, tokens * tokens] for tokens in sequences],
                "encoder_output_tokens": out,
                "llm_tokens": out + rng.randint(1, 7),
            }
        )
    return samples


def split(layers, stages):
    return [layers // stages + (s < layers % stages) for s in range(stages)]


def make_plan(layout, order, encoder, llm, microbatches, gbs, bucket=0, chunks=1):
    """Returns a plan; `encoder` and `llm` are (pp, dp)."""
    plan = {
        "schema": "dflop.plan",
        "version": 1,
        "planner": "test",
        "model": "small-vlm",
        "cluster": "a100-80g:1",
        "gbs": gbs,
        "layout": layout,
        "microbatches": microbatches,
        "schedule": order,
        "recomputation": "none",
        "zero1": False,
        "sequence_parallel": False,
    }
    if bucket:
        plan["gradient_bucket_bytes"] = bucket
    if chunks > 1:
        plan["chunks"] = chunks
    stages = llm[0] * chunks
    if layout == "uniform":
        layers = split(ENCODER_LAYERS + LLM_LAYERS, stages)
        ends = [sum(layers[: s + 1]) for s in range(stages)]
        encoder_layers = [max(0, min(e, ENCODER_LAYERS) - min(e - n, ENCODER_LAYERS)) for e, n in zip(ends, layers)]
        llm_layers = [n - e for n, e in zip(layers, encoder_layers)]
    else:
        encoder_layers, llm_layers = split(ENCODER_LAYERS, encoder[0]), split(LLM_LAYERS, stages)
    plan["encoder"] = {"tp": 1, "pp": encoder[0], "dp": encoder[1], "layers": encoder_layers}
    plan["llm"] = {"tp": 1, "pp": llm[0], "dp": llm[1], "layers": llm_layers}
    return plan


def random_plan(rng):
    layout = rng.choice(["uniform", "disaggregated", "disaggregated", "colocated"])
    microbatches = rng.randint(2, 5)
    bucket = rng.choice([0, 2000, 100_000])
    if layout == "colocated":
        pp, dp = rng.choice([(2, 1), (2, 2)])
        encoder, order, llm = (1, pp * dp), "encoder-in-bubbles", (pp, dp)
    elif layout == "uniform":
        llm = rng.choice([(2, 2), (1, 3), (3, 1), (2, 1)])
        encoder, order = llm, rng.choice(ORDERS)
    else:
        encoder = rng.choice([(1, 1), (1, 2), (1, 3), (2, 1)])
        llm = rng.choice([(1, 1), (1, 2), (2, 1)])
        order = rng.choice(ORDERS)
    gbs = microbatches * llm[1] + rng.randint(0, 6)
    return make_plan(layout, order, encoder, llm, microbatches, gbs, bucket)


def ranks_of(plan):
    ranks = plan["llm"]["pp"] * plan["llm"]["dp"]
    return ranks + (plan["encoder"]["pp"] * plan["encoder"]["dp"] if plan["layout"] == "disaggregated" else 0)


def make_program(plan, samples, server):
    session = server.request("open", {"plan": plan, "method": "lpt", "program": True}, 30)["session"]
    server.request("push", {"session": session, "batch": {"samples": samples}}, 30)
    program = server.request("next", {"session": session}, 30)["program"]
    server.request("close", {"session": session}, 30)
    return program


def held(group):
    """Returns the stages held by a rank of a program's JSON."""
    return {stage for _, stage, _, _ in group["instructions"]}


def write_cluster(folder, gpus):
    """Writes a node with `gpus` A100 GPUs and returns its path."""
    preset = SOURCE / "experiments" / "presets" / "clusters" / "a100-80g.json"
    cluster = {**json.loads(preset.read_text()), "name": f"{gpus} gpus", "gpus_per_node": gpus}
    path = Path(folder) / f"{gpus}-gpus.json"
    path.write_text(json.dumps(cluster))
    return str(path)


def planned(folder):
    """Returns 40 plans with tp 1 from planners, with the options of each: all planners, layouts and orders, one dp rank
    and several, with and without clipping, buckets and split states."""
    samples = make_samples(48, 3)
    data = str(Path(folder) / "samples.json")
    dflop.write_samples(data, samples)
    asked = [
        {"planner": planner, "gpus": gpus, "clip_gradients": clips}
        for planner in ("dflop", "dflop-paper", "dflop-expected", "megatron", "megatron-default", "pytorch", "search")
        for gpus, clips in ((2, True), (4, False))
    ]
    pipelines = itertools.cycle([(2, 1, 2), (2, 2, 4)])  # pp, dp, GPUs
    for order in (*ORDERS, "zb-v", "interleaved"):
        for clips in (False, True):
            pp, dp, gpus = next(pipelines)
            planner = "megatron" if order == "interleaved" else "search"
            options = {"planner": planner, "gpus": gpus, "pipeline_schedule": order, "clip_gradients": clips}
            if planner == "search":
                options.update(layout="uniform", tp=1, pp=pp, dp=dp, microbatches=4)
            else:
                options["chunks"] = 2
            asked.append(options)
    for clips in (False, True):
        for bucket in (0, 100_000):
            options = {"planner": "search", "tp": 1, "gradient_bucket": bucket, "clip_gradients": clips}
            asked.append({**options, "gpus": 4, "layout": "colocated", "microbatches": 3})
            asked.append({**options, "gpus": 3, "layout": "disaggregated", "no_zero1": True})
            asked.append({**options, "gpus": 4, "layout": "disaggregated", "microbatches": 2, "pp": 2, "dp": 1})
    plans = []
    for options in asked:
        passed = {key: value for key, value in options.items() if key not in ("gpus", "clip_gradients")}
        passed["clip_gradients"] = options["clip_gradients"] or None
        cluster = write_cluster(folder, options["gpus"])
        plan = dict(dflop.plan(model="small-vlm", cluster=cluster, data=data, gbs=12, **passed))
        assert bool(plan.get("clip_gradients")) == options["clip_gradients"], options
        assert plan["encoder"]["tp"] == plan["llm"]["tp"] == 1, options
        plans.append((options, plan))
    return plans
