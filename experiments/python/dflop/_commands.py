"""Thin wrappers of the dflop executable, which return its JSON output."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any, Mapping, Sequence, Union

from dflop._errors import CommandError, Infeasible, InputError, ServerError
from dflop._executable import executable

if TYPE_CHECKING:
    import pandas

PlanOrPath = Union[str, "os.PathLike[str]", Mapping[str, Any]]


def run(command: str, *arguments: object, check: bool = True, **options: Any) -> Any:
    """Runs `dflop COMMAND`, and returns its result: the output of `--format json`, as Python objects.

    Options have the names of the command line, with _ in place of -: run("plan", model="tiny-vlm", gbs=64);
    dflop.options("plan") lists them. True sets a flag. False passes the --no-... option if the command has one, as for
    zero1, and otherwise omits the flag. A list gives an option several times, and None omits it. Messages of the
    command on standard error are in the attribute `notes` of the result. Raises Infeasible for exit code 3 and
    CommandError for others, with the command's own message; with check=False exit code 3 is not an error. Raises
    InputError if True or False is given for an option that is not a flag, if another value is given for a flag, and for
    `format`, which is always json.
    """
    line = [executable(), *_words(command), *map(str, arguments)]
    given = {name.replace("-", "_"): value for name, value in options.items() if value is not None}
    if "format" in given:
        raise InputError(
            f"format: expected none, because run() reads the output of --format json, found {given['format']!r}"
        )
    line += _as_arguments(command, given) if given else []
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
            raise Infeasible(_infeasible(done.stdout) or message, done.returncode, done.stderr)
        raise CommandError(message, done.returncode, done.stderr)
    try:
        value = json.loads(done.stdout) if done.stdout.strip() else []
        if isinstance(value, dict) and value.keys() == {"schema", "version", "rows"}:
            value = value["rows"]  # the result is a single table
        result: Any = Rows(value) if isinstance(value, list) else Result(value)
    except (ValueError, TypeError):
        message = f"dflop {command}: expected a result as JSON, found {done.stdout[:60]!r}"
        raise CommandError(message, done.returncode, done.stderr) from None
    result.notes = done.stderr.splitlines()
    return result


def _infeasible(text: str) -> str:
    """Returns the reason in a document of schema dflop.infeasible; an empty string for any other text."""
    try:
        return str(json.loads(text)["infeasible"])
    except (ValueError, TypeError, KeyError):
        return ""


def options(command: str) -> dict[str, str]:
    """Returns the options of a command, as run() accepts them, and the values that they take: "" for flags.

        dflop.options("plan")["zero1"]
    """
    line = [executable(), *_words(command), "--help-all"]
    try:
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except OSError as error:
        raise ServerError(f"{line[0]} cannot be started: {error}") from None
    if done.returncode != 0:
        raise CommandError(done.stderr.strip(), done.returncode, done.stderr)
    rows = re.findall(r"^  (?:-\w \[ )?--([a-z0-9-]+)(?: \])?(?: (\S+))?", done.stdout, re.M)
    return {name.replace("-", "_"): takes for name, takes in rows}


def _words(command):
    if not isinstance(command, str):
        raise InputError(f"command: expected the name of a command, such as 'plan', found {command!r}")
    return command.split()


def _as_arguments(command, given):
    """Returns options in the form of the command line. The command itself reports unknown ones."""
    try:
        known = options(command)
    except CommandError:
        known = {}
    line = []
    for name, value in given.items():
        takes, option = known.get(name), "--" + name.replace("_", "-")
        if value is False:
            line += _without(command, name, known)
        elif value is True and takes:
            raise InputError(f"{name}: expected {takes}, or None to leave it out, found True")
        elif value is True:
            line.append(option)
        elif takes == "":
            raise InputError(f"{name}: expected True, False or None, because it is a flag, found {value!r}")
        else:
            for one in value if isinstance(value, (list, tuple)) else [value]:
                line += [option, str(one)]
    return line


def _without(command, name, known):
    """Returns the arguments that turn off a flag of a command."""
    if "no_" + name in known:
        return ["--no-" + name.replace("_", "-")]
    if name not in known:
        raise InputError(f"{name}: expected an option of 'dflop {command}' that can be False, found none")
    if known[name]:
        raise InputError(f"{name}: expected {known[name]}, or None to leave it out, found False")
    return []


class Result(dict):
    """The result of a command. `notes` has the lines of its standard error; tables in it are Rows."""

    notes: Sequence[str] = ()

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        for key, value in self.items():
            if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
                self[key] = Rows(value)


class Rows(list):
    """A table, as a list of dicts. `notes` is the same as in a Result."""

    notes: Sequence[str] = ()

    def to_pandas(self) -> pandas.DataFrame:
        """Returns a pandas DataFrame. Raises ModuleNotFoundError if pandas is not installed."""
        try:
            import pandas
        except ModuleNotFoundError as error:
            if error.name != "pandas":
                raise
            message = "to_pandas() needs pandas: pip install 'dflop[pandas]', or use the rows, a list of dicts"
            raise ModuleNotFoundError(message, name="pandas") from None

        return pandas.DataFrame(list(self))


def plan(
    *,
    model: str | os.PathLike[str] | None = None,
    cluster: str | os.PathLike[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    gbs: int | None = None,
    planner: str | None = None,
    out: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Result:
    """Runs `dflop plan`, and returns the plan, as in its file; dflop.options("plan") lists all options.

    dflop.plan(model="llava-ov-llama3-8b", cluster="a100-80g:4", data="data.csv", gbs=512,
    planner="search")
    """
    return run("plan", model=model, cluster=cluster, data=data, gbs=gbs, planner=planner, out=out, **options)


def simulate(plan: PlanOrPath, schedule: PlanOrPath | None = None, **options: Any) -> Result:
    """Runs `dflop simulate` on a plan and a schedule, each given as a path or as the contents of its file.

    Without a schedule, one is made from the options `data`, `gbs`, `iterations`, `seed` and `scheduler`.
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


def compare(
    *,
    model: str | os.PathLike[str] | None = None,
    cluster: str | os.PathLike[str] | None = None,
    data: str | os.PathLike[str] | None = None,
    gbs: int | None = None,
    systems: str | None = None,
    out: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Result:
    """Runs `dflop compare`, and returns its output; dflop.options("compare") lists all options."""
    return run("compare", model=model, cluster=cluster, data=data, gbs=gbs, systems=systems, out=out, **options)


def _path_of(value, folder, name):
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)
    return path
