#!/usr/bin/env python3
"""Draws the two pictures of README.md next to this script.

    python3 docs/images/make_pictures.py [DFLOP]      # default: build/release/dflop

two_plans.svg shows one batch of `./dev demo` under the best uniform plan and under the plan that the search finds, as
`dflop compare` and `dflop simulate` give them. way.svg shows the way from records to a Timeline.
"""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COMPARE = ["compare", "--data", "traces/datasets/vision_mix.csv", "--model", "llava-ov-llama3-8b", "--cluster", "a100-80g:4",
           "--gbs", "512", "--iterations", "8", "--seed", "1"]  # as ./dev demo
STYLE = """<style>
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-weight: 600; font-size: 14px }
  .small { font-size: 12px; fill: #59636e }
  .gain { font-weight: 600; font-size: 15px; fill: #1a7f37 }
  .idle { fill: #d1d9e0 } .forward { fill: #54aeff } .backward { fill: #0969da } .saved { stroke: #1a7f37 }
  .box { fill: #f6f8fa; stroke: #59636e } .arrow { stroke: #59636e; fill: none; marker-end: url(#tip) } .tip { fill: #59636e }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .small { fill: #9198a1 } .gain { fill: #3fb950 }
    .idle { fill: #3d444d } .forward { fill: #79c0ff } .backward { fill: #1f6feb } .saved { stroke: #3fb950 }
    .box { fill: #151b23; stroke: #9198a1 } .arrow { stroke: #9198a1 } .tip { fill: #9198a1 }
  }
</style>"""


def svg(width, height, label, parts):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" aria-label="{label}">\n{STYLE}\n' + "\n".join(parts) + "\n</svg>\n")


def text(x, y, words, style="", anchor="start"):
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">{words}</text>'


# -- two_plans.svg -----------------------------------------------------------------------------------------------------

LEFT, WIDTH, ROW, GAP = 10, 880, 8, 2


def run(dflop, *arguments):
    return subprocess.run([dflop, *map(str, arguments)], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def first_timeline(dflop, folder, system):
    """Returns the recording of a system of compare, its first iteration, and the plan in words."""
    out = folder / f"{system}.timeline.json"
    run(dflop, "simulate", "--plan", folder / f"{system}.plan.json", "--schedule", folder / f"{system}.schedule.json",
        "--out", out)
    recording = json.loads(out.read_text())
    with open(folder / "compare.csv", encoding="utf-8") as rows:
        plan = next(row["plan"] for row in csv.DictReader(rows) if row["system"] == system)
    return recording, recording["iterations"][0], plan


def busy_paths(recording, iteration, top, scale):
    """Returns a path of all forwards and one of all backwards; spans that follow each other closely become one."""
    rows = {rank: top + i * (ROW + GAP) for i, rank in enumerate(iteration["groups"]["first_rank"])}
    spans = iteration["spans"]
    runs = {}  # (row, style) -> [begin, end] of each run, in order
    order = sorted(range(len(spans["rank"])), key=lambda i: spans["start_ns"][i])
    for i in order:
        name = recording["ops"][spans["op"][i]]
        if recording["streams"][spans["stream"][i]] != "compute" or name == "optimizer_step":
            continue
        style = "forward" if name == "forward" else "backward"
        begin = LEFT + spans["start_ns"][i] * scale
        end = begin + spans["duration_ns"][i] * scale
        row = runs.setdefault((rows[spans["rank"][i]], style), [])
        if row and begin - row[-1][1] < 0.05:
            row[-1][1] = end
        else:
            row.append([begin, end])
    paths = {"forward": "", "backward": ""}
    for (y, style), all_runs in runs.items():
        paths[style] += "".join(f"M{b:.1f} {y}h{e - b:.1f}v{ROW}h{b - e:.1f}z" for b, e in all_runs)
    idle = "".join(f'<rect class="idle" x="{LEFT}" y="{y}" width="{iteration["makespan_ns"] * scale:.1f}" height="{ROW}"/>'
                   for y in rows.values())
    return [idle] + [f'<path class="{style}" d="{path}"/>' for style, path in paths.items()], len(rows) * (ROW + GAP)


def two_plans(dflop):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run(dflop, *COMPARE, "--out", folder)
        uniform, found = (first_timeline(dflop, folder, system) for system in ("megatron", "search"))
    longest = uniform[1]["makespan_ns"]
    scale = WIDTH / longest
    parts, y = [], 24
    for title, (recording, iteration, plan) in (("Best uniform plan", uniform), ("Plan that dflop finds", found)):
        seconds = iteration["makespan_ns"] / 1e9
        parts.append(text(LEFT, y, f"{title}: {plan}", "title"))
        parts.append(text(LEFT + WIDTH, y, f"{seconds:.1f} s", "title", "end"))
        drawn, height = busy_paths(recording, iteration, y + 10, scale)
        parts += drawn
        if iteration is found[1]:
            end, middle = LEFT + iteration["makespan_ns"] * scale, y + 10 + height / 2
            parts.append(f'<path class="saved" stroke-width="2" d="M{end + 4:.1f} {middle + 12:.1f}H{LEFT + WIDTH}"/>')
            parts.append(text((end + LEFT + WIDTH) / 2, middle, f"{longest / iteration['makespan_ns']:.2f}x faster", "gain", "middle"))
        y += height + 44
    y -= 8
    x = LEFT
    for style, words in (("forward", "forward"), ("backward", "backward"), ("idle", "idle or waiting")):
        parts.append(f'<rect class="{style}" x="{x}" y="{y - 10}" width="12" height="12"/>')
        parts.append(text(x + 18, y, words, "small"))
        x += 100
    parts.append(text(LEFT + WIDTH, y, "a row is a tensor-parallel group; both have the same batch and time scale", "small", "end"))
    return svg(LEFT * 2 + WIDTH, y + 14, "One batch under the best uniform plan and under the plan that dflop finds", parts)


# -- way.svg -----------------------------------------------------------------------------------------------------------

def box(x, y, width, title, lines):
    height = 30 + 16 * len(lines)
    parts = [f'<rect class="box" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>',
             text(x + width / 2, y + 20, title, "title", "middle")]
    return parts + [text(x + width / 2, y + 38 + 16 * i, line, "small", "middle") for i, line in enumerate(lines)]


def arrow(*points):
    return [f'<path class="arrow" d="M{"L".join(f"{x} {y}" for x, y in points)}"/>']


def way():
    parts = ['<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
             '<path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>']
    parts += box(10, 70, 130, "Samples", ["traces/", "from records of your", "data, as CSV or tars"])
    parts += box(180, 70, 140, "Plan", ["solver/planners", "tp, pp, dp, order of", "encoder and LLM"])
    parts += box(360, 70, 150, "Assignment", ["solver/schedulers", "each sample's", "microbatch"])
    parts += box(550, 70, 140, "Program", ["core/", "instructions of", "each group of GPUs"])
    parts += box(730, 10, 150, "Simulator", ["sim/", "discrete events"])
    parts += box(730, 150, 150, "Live run", ["backend/, kernels/", "CPU, CUDA, NCCL"])
    parts += box(370, 190, 310, "Costs", ["costmodel/: analytic, profiled or recorded", "seconds and bytes of each instruction"])
    parts += box(920, 70, 150, "Timeline", ["experiments/", "explain, compare,", "replay, Perfetto"])
    parts += arrow((140, 110), (178, 110)) + arrow((320, 110), (358, 110)) + arrow((510, 110), (548, 110))
    parts += arrow((690, 95), (728, 50)) + arrow((690, 125), (728, 175))
    parts += arrow((880, 50), (918, 95)) + arrow((880, 175), (918, 125))
    parts += arrow((620, 190), (620, 150)) + arrow((430, 190), (430, 150)) + arrow((370, 220), (250, 220), (250, 150))
    return svg(1080, 262, "The way from records of a data set to a Timeline, through the rooms of the code", parts)


if __name__ == "__main__":
    dflop = str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/dflop").resolve())
    (HERE / "two_plans.svg").write_text(two_plans(dflop))
    (HERE / "way.svg").write_text(way())
