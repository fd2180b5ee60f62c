"""Tables and a page of the head-to-head."""

import html
import json
import os

COLUMNS = (
    ("model", "kind", None),
    ("by", "who", None),
    ("run", "run", None),
    ("steps", "steps", "{}"),
    ("ready s", "ready_s", "{:.1f}"),
    ("step s", "step_s", "{:.4f}"),
    ("step to step s", "step_to_step_s", "{:.4f}"),
    ("tokens/s", "llm_tokens_per_s", "{:,.0f}"),
    ("TFLOP/s", "tflops", "{:.1f}"),
    ("of peak %", "of_peak", "{:.1%}"),
    ("counted GiB", "counted_gib", "{:.2f}"),
    ("device GiB", "device_gib", "{:.2f}"),
    ("loss apart %", "loss_difference", "{:.3%}"),
    ("note", "note", None),
)
MEANING = """Ready: from the start of the process to its first step. Step: the median of the steps that count, from first to last
instruction; step to step: from the end of one to the end of the next, pauses included. Tokens are the LLM's, and
TFLOP/s the model's FLOP without padding and recomputation, with the head of trained tokens alone, over the time from step to
step. Counted: the program's own most; device: the GPU's whole memory in use. Loss apart: the largest difference from dflop's
loss in any step."""
STYLE = """
body { font: 15px/1.5 sans-serif; color: #222; max-width: 1200px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; } td, th { padding: 4px 10px 4px 0; text-align: right; white-space: nowrap; }
td:nth-child(-n+3), th:nth-child(-n+3), td:last-child { text-align: left; } tr { border-top: 1px solid #ececec; }
.failed { color: #b02a2a; } svg { max-width: 100%; height: auto; display: block; margin: 1em 0; }
"""
OURS = "#2f6fb0"
OTHERS = ("#8a8a8a", "#c08a3e", "#7f9c4a", "#a86b9c")
WIDTH, LABEL, BAR = 900, 300, 24


def cells(row):
    """Returns the cells of a row as text."""
    values = [(row.get(key), form) for _, key, form in COLUMNS]
    return ["" if value is None else form.format(value).removesuffix("%") if form else str(value) for value, form in values]


def text_table(rows):
    lines = [[name for name, _, _ in COLUMNS], *map(cells, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
    left = [form is None for _, _, form in COLUMNS]
    aligned = [[c.ljust(w) if l else c.rjust(w) for c, w, l in zip(line, widths, left)] for line in lines]
    aligned.insert(1, ["-" * width for width in widths])
    return "\n".join("  ".join(line).rstrip() for line in aligned)


def markdown_table(rows):
    lines = [[name for name, _, _ in COLUMNS], ["---" if form is None else "---:" for _, _, form in COLUMNS], *map(cells, rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines)


def colors_of(rows):
    others = iter(OTHERS * len(rows))
    return [OURS if row["who"] == "dflop" else next(others) for row in rows]


def label_of(row):
    return "dflop" if row["who"] == "dflop" else f"torch, {row['run']}"


def bars(rows, key, form):
    """Draws a bar for each run that has the figure."""
    shown = [(row, color) for row, color in zip(rows, colors_of(rows)) if row.get(key)]
    if not shown:
        return ""
    most = max(row[key] for row, _ in shown)
    parts = []
    for i, (row, color) in enumerate(shown):
        width, y = (WIDTH - LABEL - 100) * row[key] / most, i * (BAR + 6)
        parts.append(f"<text x='{LABEL - 8}' y='{y + 17}' text-anchor='end'>{html.escape(label_of(row))}</text>")
        parts.append(f"<rect x='{LABEL}' y='{y}' width='{width:.1f}' height='{BAR}' fill='{color}'/>")
        parts.append(f"<text x='{LABEL + width + 6:.1f}' y='{y + 17}'>{form.format(row[key])}</text>")
    return svg(len(shown) * (BAR + 6), parts)


def curves(rows, height=260):
    """Draws the loss of each step of each run."""
    shown = [(row, color) for row, color in zip(rows, colors_of(rows)) if row.get("losses")]
    if not shown:
        return ""
    steps, most = max(len(row["losses"]) for row, _ in shown), max(max(row["losses"]) for row, _ in shown)
    right, bottom = WIDTH - LABEL, height - 24

    def place(step, loss):
        return f"{40 + (right - 60) * step / max(1, steps - 1):.1f},{10 + (bottom - 10) * (1 - loss / most):.1f}"

    parts = [f"<path d='M40,10 V{bottom} H{right}' fill='none' stroke='#999'/>"]
    parts.append(f"<text x='34' y='18' text-anchor='end'>{most:.1f}</text><text x='34' y='{bottom}' text-anchor='end'>0</text>")
    parts.append(f"<text x='40' y='{height - 6}'>step 1</text>")
    parts.append(f"<text x='{right}' y='{height - 6}' text-anchor='end'>step {steps}</text>")
    for i, (row, color) in enumerate(shown):
        points = " ".join(place(step, loss) for step, loss in enumerate(row["losses"]))
        # dflop's line is wider and drawn below the others, so that both are visible if they agree.
        line = "stroke-width='8' stroke-opacity='0.4'" if row["who"] == "dflop" else "stroke-width='1.5'"
        parts.append(f"<polyline points='{points}' fill='none' stroke='{color}' {line} stroke-linejoin='round'/>")
        parts.append(f"<rect x='{right + 20}' y='{20 + 22 * i}' width='12' height='12' fill='{color}'/>")
        parts.append(f"<text x='{right + 40}' y='{31 + 22 * i}'>{html.escape(label_of(row))}</text>")
    return svg(height, parts)


def svg(height, parts):
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}'"
    return f"{head} font-family='sans-serif' font-size='13'>{''.join(parts)}</svg>"


def html_table(rows):
    head = "".join(f"<th>{name}</th>" for name, _, _ in COLUMNS)
    lines = []
    for row in rows:
        style = " class='failed'" if row["state"] == "failed" else ""
        lines.append(f"<tr{style}>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells(row)) + "</tr>")
    return f"<div class='wide'><table><tr>{head}</tr>{''.join(lines)}</table></div>"


def page(results):
    sections = []
    for kind, name in (("text", "Text: Llama"), ("vlm", "Pictures: Qwen2.5-VL")):
        rows = [row for row in results["rows"] if row["kind"] == kind]
        pictures = (
            ("Seconds from step to step", bars(rows, "step_to_step_s", "{:.3f} s")),
            ("Memory in use on the GPU", bars(rows, "device_gib", "{:.1f} GiB")),
            ("Loss of each step", curves(rows)),
        )
        sections.append(f"<h2>{name}</h2>" + "".join(f"<p>{title}</p>{picture}" for title, picture in pictures if picture))
    made = ", ".join(f"{key} {value}" for key, value in results["made"].items())
    return f"""<!DOCTYPE html>
<html lang='en'><head><meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'>
<title>dflop and PyTorch</title><style>{STYLE}</style></head><body>
<h1>dflop and PyTorch, side by side</h1>
<p>{html.escape(made)}</p>
{html_table(results['rows'])}
<p>{MEANING}</p>
{''.join(sections)}
</body></html>
"""


def write(out, results):
    """Writes the tables, the page and all figures into a folder."""
    made = ", ".join(f"{key} {value}" for key, value in results["made"].items())
    outputs = {
        "table.txt": text_table(results["rows"]) + "\n\n" + made + "\n",
        "table.md": markdown_table(results["rows"]) + "\n\n" + made + "\n\n" + MEANING + "\n",
        "head-to-head.json": json.dumps(results, indent=1) + "\n",
        "report.html": page(results),
    }
    for name, text in outputs.items():
        with open(os.path.join(out, name), "w", encoding="utf-8") as file:
            file.write(text)
