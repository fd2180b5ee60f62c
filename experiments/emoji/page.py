"""The report of the emoji run: curves, and the model's answers to pictures."""

import base64
import html
import json
import os
import tarfile

STYLE = """
body { font: 15px/1.5 sans-serif; color: #222; max-width: 900px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
table { border-collapse: collapse; } td, th { padding: 4px 12px 4px 0; text-align: left; vertical-align: middle; }
td { overflow-wrap: anywhere; max-width: 22em; } tr { border-top: 1px solid #ececec; } td img { width: 48px; height: 48px; display: block; }
.equal { color: #2f7a2f; } svg { max-width: 100%; height: auto; }
"""


NAMES = {"qwen2_5_vl": "a small Qwen2.5-VL", "qwen3_vl": "a small Qwen3-VL"}


def read_rows(path):
    """Returns the table in a file with the output of `dflop generate --format json`."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)["rows"]


def read(path):
    with open(path, "rb") as file:
        return file.read()


def pictures_of(path):
    """Returns the PNG of each sample of a tar or a JSON list, by its id."""
    name = os.path.basename(path)
    if path.endswith(".jsonl"):
        with open(path, encoding="utf-8") as file:
            samples = [json.loads(line)["image"] for line in file]
        return {f"{name}/{i}": read(os.path.join(os.path.dirname(path), image)) for i, image in enumerate(samples, 1)}
    with tarfile.open(path) as tar:
        return {
            f"{name}/{member.name.removesuffix('.png')}": tar.extractfile(member).read()
            for member in tar.getmembers()
            if member.name.endswith(".png")
        }


def words(text):
    """Returns an answer without its end token."""
    return html.escape(text.removesuffix("<|im_end|>"))


def answer_rows(answers, pictures, before=None):
    rows = []
    for i, answer in enumerate(answers):
        picture = base64.b64encode(pictures[answer["sample"]]).decode()
        cells = [f"<img alt='' src='data:image/png;base64,{picture}'>", words(answer["expected"])]
        if before:
            cells.append(words(before[i]["answer"]))
        style = " class='equal'" if answer["equal"] == "yes" else ""
        rows.append("<tr>" + "".join(f"<td>{c}</td>" for c in cells) + f"<td{style}>{words(answer['answer'])}</td></tr>")
    return "\n".join(rows)


def share(answers):
    return f"{sum(a['equal'] == 'yes' for a in answers)} of {len(answers)}"


def last_mean(steps, key, count=50):
    values = [step[key] for step in steps[-count:] if step.get(key) is not None]
    return sum(values) / len(values) if values else None


def against(predicted, measured):
    return f"{predicted:.3f} s ({100 * (predicted / measured - 1):+.1f} %)"


def facts(steps, check):
    """Returns paragraphs about the steps of the log, and about the recorded steps in the output of `dflop check runs`."""
    lines = [f"{len(steps)} steps of {steps[0]['samples']} pictures; loss a token {steps[0]['loss']:.3f} in the first, "
             f"{last_mean(steps, 'loss'):.3f} in the mean of the last 50."]
    predicted = last_mean(steps, "predicted_s")
    if predicted:
        measured = last_mean(steps, "iteration_s")
        lines.append(f"A step took {measured:.3f} s in the mean of the last 50. The profile that was measured before training "
                     f"predicted {against(predicted, measured)}.")
    measured, others, idle = (check[key] for key in ("measured_s", "others_fraction", "measured_idle_fraction"))
    lines.append(f"The last {len(check['steps'])} steps took {measured:.3f} s in the median; the profile that was measured after "
                 f"training predicts {against(check['predicted_s'], measured)}. Predictions leave out that other processes took "
                 f"{100 * (others or 0):.1f} % of the machine's time, that the faster rank waited for the slower one (ranks were "
                 f"idle for {100 * idle:.1f} % of a step, {100 * check['predicted_idle_fraction']:.1f} % as predicted), and that "
                 f"the speed of a virtual machine changes: compare both profiles.")
    return "".join(f"<p>{line}</p>" for line in lines)


def write(out, model, train, held_out_samples):
    """Writes report.html from the results of a run in the folder `out`: of a model folder, and two tars or JSON lists
    with the samples of training and the held-out samples."""
    with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
        model_type = json.load(file)["model_type"]
    with open(os.path.join(out, "run.jsonl"), encoding="utf-8") as file:
        steps = [step for step in map(json.loads, file) if step.get("loss") is not None]
    with open(os.path.join(out, "run.svg"), encoding="utf-8") as file:
        curves = file.read()
    with open(os.path.join(out, "check.json"), encoding="utf-8") as file:
        (check,) = json.load(file)["plans"]
    before, after, held_out = (read_rows(os.path.join(out, f"{n}.json")) for n in ("before", "after", "held-out"))
    trained = pictures_of(train)
    unseen = pictures_of(held_out_samples)
    text = f"""<!DOCTYPE html>
<html lang='en'><head><meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'>
<title>The emoji run</title><style>{STYLE}</style></head><body>
<h1>The emoji run</h1>
<p>Model: {NAMES[model_type]}, from random weights. Data: {os.path.basename(train)}.</p>
{facts(steps, check)}
{curves}
<h2>Pictures that were trained: {share(after)} answers are right</h2>
<table><tr><th></th><th>name</th><th>before</th><th>after</th></tr>
{answer_rows(after, trained, before)}</table>
<h2>Pictures that were not: {share(held_out)}</h2>
<p>Most names are of one picture alone: these can be right in part at best.</p>
<table><tr><th></th><th>name</th><th>after</th></tr>
{answer_rows(held_out, unseen)}</table>
<p>Pictures: noto-emoji, Google, Apache license 2.0. Names: Unicode Character Database.</p>
</body></html>
"""
    path = os.path.join(out, "report.html")
    with open(path + ".partial", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".partial", path)
