"""Thin calls of the dflop executable, which return what it prints as JSON."""

import json
import os
import subprocess
import tempfile

from dflop._errors import CommandError, Infeasible, ServerError
from dflop._executable import executable


def run(command, *arguments, check=True, **options):
    """Runs `dflop COMMAND`, and returns its result: what `--format json` prints, as Python objects.

    Options are named as those of the command line, with _ for -: run("plan", model="tiny-vlm", gbs=64). True
    is a flag, a list gives an option several times, and None leaves one out. What the command says on
    standard error is the attribute `notes` of the result. Raises Infeasible for exit code 3 and CommandError
    for others, with the command's own message; with check=False exit code 3 is no error.
    """
    line = [executable(), *command.split(), *map(str, arguments)]
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            line.append(option)
        elif isinstance(value, (list, tuple)):
            for one in value:
                line += [option, str(one)]
        else:
            line += [option, str(value)]
    line += ["--format", "json"]
    try:
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    except OSError as error:
        raise ServerError(f"{line[0]} cannot be started: {error}") from None
    if done.returncode != 0 and (check or done.returncode != 3):
        message = done.stderr.strip() or f"dflop {command} ended with exit code {done.returncode}"
        if done.returncode == 3:
            raise Infeasible(message)
        raise CommandError(message, done.returncode, done.stderr)
    try:
        value = json.loads(done.stdout) if done.stdout.strip() else []
        result = Rows(value) if isinstance(value, list) else Result(value)
    except (ValueError, TypeError):
        message = f"dflop {command}: expected a result as JSON, found {done.stdout[:60]!r}"
        raise CommandError(message, done.returncode, done.stderr) from None
    result.notes = done.stderr.splitlines()
    return result


class Result(dict):
    """A result of a command. `notes` are the lines of its standard error; tables in it are Rows."""

    notes = ()

    def __init__(self, values):
        super().__init__(values)
        for key, value in self.items():
            if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
                self[key] = Rows(value)


class Rows(list):
    """A table, as a list of dicts. `notes` are as those of a Result."""

    notes = ()

    def to_pandas(self):
        """Returns a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(list(self))


def plan(**options):
    """Runs `dflop plan`, and returns the plan, as its file has it.

    dflop.plan(model="llava-ov-llama3-8b", cluster="a100-80g:4", data="data.csv", gbs=512,
    planner="search")
    """
    return run("plan", **options)


def simulate(plan, schedule=None, **options):
    """Runs `dflop simulate` on a plan and schedule, each a path or what its file holds.

    Without a schedule options `data`, `gbs`, `iterations`, `seed` and `scheduler` make one.
    """
    with tempfile.TemporaryDirectory(prefix="dflop") as folder:
        plan_path = _path_of(plan, folder, "plan.json")
        if schedule is None:
            names = ("data", "gbs", "iterations", "seed", "scheduler")
            made = {name: options.pop(name) for name in names if name in options}
            schedule = os.path.join(folder, "schedule.json")
            run("schedule", plan=plan_path, out=schedule, **made)
        return run(
            "simulate", plan=plan_path, schedule=_path_of(schedule, folder, "schedule.json"), **options
        )


def compare(**options):
    """Runs `dflop compare`, and returns its rows; options are those of the command line."""
    return run("compare", **options)


def _path_of(value, folder, name):
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)
    return path
