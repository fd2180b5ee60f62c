"""Runs the commands that pages show, page by page, each page in its own folder.

A block of commands is in ```sh fences, or is indented and begins with a command. Blocks of a page run one after another
in bash, so a block's files exist for the next. A block that cannot run here is marked by a comment right before it with
the reason:

    <!-- not run: needs a GPU -->

A block that ends with another exit code than 0 has `<!-- exit code 3 -->` there.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2]
EXECUTABLE = Path(os.environ.get("DFLOP_EXECUTABLE", SOURCE / "build/release/dflop"))
TIMEOUT_S = 600
PAGES = sorted(
    page
    for page in [*SOURCE.glob("*.md"), *SOURCE.glob("docs/*.md"), *SOURCE.glob("*/README.md")]
    if page.name != "cli.md" and not page.parent.name.startswith(".")  # a test of the manual runs its examples
)
COMMANDS = re.compile(r"(dflop|\./dev|build/|python|pip|experiments/|tests/|torchrun|mpirun|srun|chrt|sed|for) ?")
NOT_RUN = re.compile(r"<!-- not run: (.*) -->$")
EXIT_CODE = re.compile(r"<!-- exit code (\d+) -->$")


def blocks_of(text):
    """Returns the blocks of commands of a page: (line, commands, why it is not run or None, exit code)."""
    blocks = []
    lines = text.splitlines()
    why, code = None, 0
    at = 0
    while at < len(lines):
        line = lines[at]
        if mark := NOT_RUN.match(line):
            why = mark.group(1)
        elif mark := EXIT_CODE.match(line):
            code = int(mark.group(1))
        elif line.startswith("```"):
            first = at + 1
            at = next(i for i in range(first, len(lines)) if lines[i].startswith("```"))
            if line[3:].strip() in ("sh", "bash"):
                blocks.append((first + 1, lines[first:at], why, code))
            why, code = None, 0
        elif line.startswith("    ") and at > 0 and lines[at - 1] == "":
            first = at
            while at + 1 < len(lines) and (lines[at + 1].startswith("    ") or lines[at + 1] == ""):
                at += 1
            if COMMANDS.match(line[4:]):
                blocks.append((first + 1, [shown[4:] for shown in lines[first : at + 1]], why, code))
            why, code = None, 0
        elif line != "":
            why, code = None, 0
        at += 1
    return blocks


def test_blocks_are_found():
    page = "Text\n\n    dflop models\n    dflop clusters\n\n<!-- not run: long -->\n```sh\n./dev study\n```\n\n    a drawing\n"
    page += "<!-- exit code 3 -->\n```sh\ndflop fail\n```\n"
    assert blocks_of(page) == [
        (3, ["dflop models", "dflop clusters", ""], None, 0),
        (8, ["./dev study"], "long", 0),
        (14, ["dflop fail"], None, 3),
    ]


# Runs dflop as typed, but searches for plans with a small budget: pages show commands, not their figures. The test of
# the demo's output runs it without this.
DFLOP_IN_A_HURRY = f"""#!/bin/bash
case " $* " in
  *" --budget "*) ;;
  " compare "* | " plan "*"--planner search "*) set -- "$@" --budget 20000 ;;
esac
exec {EXECUTABLE} "$@"
"""


def make_folder(folder):
    """Makes a folder look like the root of the tree to commands that read from it."""
    for name in ("traces", "experiments", "tests", "docs"):
        (folder / name).symlink_to(SOURCE / name)
    (folder / "build/release").mkdir(parents=True)
    (folder / "build/release/dflop").symlink_to(EXECUTABLE)
    (folder / "bin").mkdir()
    (folder / "bin/dflop").write_text(DFLOP_IN_A_HURRY)
    (folder / "bin/dflop").chmod(0o755)


# Pages start with a plan and its schedule, like those that the README makes.
MADE_BEFORE = """
dflop plan --data traces/datasets/vision_mix.csv --model llava-ov-llama3-8b --cluster a100-80g:4 --gbs 512 --out plan.json
dflop schedule --plan plan.json --data traces/datasets/vision_mix.csv --scheduler lpt --out schedule.json
"""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(SOURCE)))
def test_commands_of_page(page, tmp_path):
    make_folder(tmp_path)
    environment = dict(os.environ, PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")

    def run(line, script, code=0):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        place = f"{page.relative_to(SOURCE)}:{line}"
        assert done.returncode == code, f"{place}: exit code {done.returncode}\n{done.stderr[-2000:]}"

    blocks = blocks_of(page.read_text())
    if page.name != "README.md" and any(why is None for _, _, why, _ in blocks):
        run(0, MADE_BEFORE)
    for line, commands, why, code in blocks:
        if why is None:
            run(line, "\n".join(commands), code)
        else:
            assert len(why) > 5, f"{page.relative_to(SOURCE)}:{line}: say why the block is not run"


def keys_of(value):
    """Returns all keys of a JSON value, at any depth, except those in the record of a fit."""
    if isinstance(value, list):
        return {key for element in value for key in keys_of(element)}
    if not isinstance(value, dict):
        return set()
    return {key for name, inner in value.items() for key in {name} | (keys_of(inner) if name != "fit" else set())}


@pytest.mark.parametrize("kind", ["models", "clusters"])
def test_page_of_own_files_has_every_key_of_presets(kind):
    page = (SOURCE / "docs/own-files.md").read_text()
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`\n]+`", page))))
    presets = sorted((SOURCE / "experiments/presets" / kind).glob("*.json"))
    assert len(presets) > 4
    for preset in presets:
        assert keys_of(json.loads(preset.read_text())) - words == set(), preset.name


def part_of(text, start):
    """Returns the lines of a text from the first that begins with `start` up to the next empty line."""
    lines = [*text.splitlines(), ""]
    first = next((i for i, line in enumerate(lines) if line.startswith(start)), None)
    assert first is not None, f"no line begins with {start!r}"
    return lines[first : lines.index("", first)]


@pytest.mark.parametrize("start", ["system ", "The fastest plan is ", "The published method (dflop) "])
def test_readme_shows_what_the_demo_prints(start, demo_output):
    assert part_of((SOURCE / "README.md").read_text(), start) == part_of(demo_output, start)


@pytest.fixture(scope="module")
def demo_output(tmp_path_factory):
    """Returns the output of the comparison in `./dev demo`."""
    demo = re.search(r"build/release/dflop (compare .*?--out) \$out", (SOURCE / "dev").read_text(), re.DOTALL)
    arguments = demo.group(1).replace("\\\n", " ").split()
    folder = tmp_path_factory.mktemp("demo")
    make_folder(folder)
    return subprocess.run(
        [EXECUTABLE, *arguments, "out"], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    ).stdout
