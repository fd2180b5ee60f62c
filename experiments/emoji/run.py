"""The emoji run: a small vision-language model with random weights learns to name pictures, on the cores of this machine.

    ./dev emoji                  all pictures, fetched with git
    ./dev emoji --pictures DIR   the pictures in DIR: png/72 of noto-emoji
    ./dev emoji --part           only the 67 committed pictures, to see that it works
    ./dev emoji --qwen3-vl       a Qwen3-VL, from a JSON list and a folder of pictures; default: a Qwen2.5-VL, from tars

out/emoji/report.html shows the losses, the time of each step next to its prediction, and the model's answers to
pictures before and after training, including pictures that it has never seen.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys

import captions
import page
import qwen3_vl

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
COMMITTED = os.path.join(TREE, "traces/emoji")
MODEL = os.path.join(COMMITTED, "model")
REPOSITORY = "https://github.com/googlefonts/noto-emoji"
COMMIT = "b3e3051a088047d19fd4d49b1c3ac42fb8c3aaf8"  # of 2025-06-18
MOST_RANKS = 8
PART_STEPS = 60  # enough to learn the committed pictures by heart
PROFILE_SECONDS = 20
SHOWN = 24  # number of answers


def say(text):
    print(f"==> {text}", file=sys.stderr, flush=True)


def fetch(folder):
    """Fetches only png/72 of the commit, about 10 MB. Returns its path."""
    pictures = os.path.join(folder, "png/72")
    if os.path.isdir(pictures):
        return pictures
    say(f"Fetching pictures from {REPOSITORY}")
    partial = folder + ".partial"
    shutil.rmtree(partial, ignore_errors=True)
    steps = (
        ("init", "-q"),
        ("remote", "add", "origin", REPOSITORY),
        ("config", "remote.origin.promisor", "true"),
        ("config", "remote.origin.partialclonefilter", "blob:none"),
        ("sparse-checkout", "set", "png/72"),
        ("fetch", "-q", "--depth", "1", "--filter=blob:none", "origin", COMMIT),
        ("checkout", "-q", "FETCH_HEAD"),
    )
    try:
        os.makedirs(partial)
        for step in steps:
            subprocess.run(["git", "-C", partial, *step], check=True)
    except (OSError, subprocess.CalledProcessError):
        sys.exit("emoji: the pictures cannot be fetched; --pictures DIR takes a copy, --part the committed ones")
    os.rename(partial, folder)
    return pictures


def write_tars(folder, out, every=1):
    """Writes train.tar with one in `every` training pictures, and held-out.tar with twice that fraction of the
    others."""
    try:
        pictures = captions.captioned(folder)
    except OSError as error:
        sys.exit(f"emoji: {error}")
    train, held_out = captions.split(pictures)
    if not held_out:
        sys.exit(f"emoji: {folder}: expected pictures as emoji_u1f600.png, found {len(pictures)} with a name")
    os.makedirs(out, exist_ok=True)
    captions.write_tar(train[::every], os.path.join(out, "train.tar"))
    captions.write_tar(held_out[:: (every + 1) // 2], os.path.join(out, "held-out.tar"))


class Run:
    """A run of the model in a folder, which writes all its results to one folder. kind: .tar or .jsonl, the ending of
    the files in the folder `data`."""

    def __init__(self, dflop, model, data, kind, out, steps, profile_seconds):
        self.dflop = dflop
        self.model = model
        self.data = data
        self.kind = kind
        self.out = out
        self.steps = steps
        self.profile_seconds = profile_seconds
        self.ranks = 1
        while 2 * self.ranks <= min(MOST_RANKS, len(os.sched_getaffinity(0))):
            self.ranks *= 2

    def path(self, name):
        return os.path.join(self.out, name)

    def samples(self, name):
        return os.path.join(self.data, name + self.kind)

    def command(self, *arguments, keep=None):
        """Runs dflop, and exits if it fails. keep: a file for its output."""
        result = subprocess.run([self.dflop, *arguments], stdout=subprocess.PIPE, text=True)
        if result.returncode != 0:
            sys.exit(result.returncode if result.returncode > 0 else 128 - result.returncode)
        if keep:
            with open(self.path(keep), "w", encoding="utf-8") as file:
                file.write(result.stdout)
        return result.stdout

    def answers(self, model, name, keep, *more):
        self.command(
            *("generate", "--hf", model, "--data", self.samples(name), "--samples", str(SHOWN), "--tokens", "24"),
            *("--format", "json", *more),
            keep=keep,
        )

    def profile(self, name):
        self.command(
            *("profile", "--hf", self.model, "--tp", "1", "--out", self.path(name)),
            *("--ranks", str(max(2, self.ranks)), "--busy", str(self.ranks), "--budget-s", str(self.profile_seconds)),
        )

    def remove_earlier(self):
        """Removes files to which a training run would append, or which it would refuse to overwrite."""
        shutil.rmtree(self.path("model"), ignore_errors=True)
        if os.path.exists(self.path("run.jsonl")):
            os.remove(self.path("run.jsonl"))

    def all(self):
        say("What the model says before")
        self.answers(self.model, "train", "before.json", "--random-weights")
        say("Measuring the model's parts on this machine")
        self.profile("profile.json")
        say(f"Training on {self.ranks} rank(s)")
        self.remove_earlier()
        self.command(
            *("train", os.path.join(HERE, "recipe.yaml"), "--hf", self.model, "--data", self.samples("train")),
            *("--eval-data", self.samples("held-out")),
            *("--dp", str(self.ranks), "--profile", self.path("profile.json"), "--log", self.path("run.jsonl")),
            *("--record", self.path("steps.json.gz")),
            *("--export", self.path("model"), *(("--steps", str(self.steps)) if self.steps else ())),
            keep="steps.txt",
        )
        say("Measuring the parts again, because the machine's speed may have changed")
        self.profile("profile-after.json")
        self.command(
            *("check", "runs", "--recordings", self.path("steps.json.gz"), "--profile", self.path("profile-after.json")),
            *("--format", "json"),
            keep="check.json",
        )
        say("What the model says now")
        self.answers(self.path("model"), "train", "after.json")
        self.answers(self.path("model"), "held-out", "held-out.json")
        self.command("train", "plot", "--log", self.path("run.jsonl"), "--out", self.path("run.svg"))
        page.write(self.out, self.model, self.samples("train"), self.samples("held-out"))
        say(f"Report: {self.path('report.html')}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--pictures", metavar="DIR", help="png/72 of a copy of noto-emoji")
    which.add_argument("--part", action="store_true", help="the committed pictures alone")
    parser.add_argument("--qwen3-vl", action="store_true", help="train a Qwen3-VL from a JSON list of pictures")
    parser.add_argument("--steps", type=int, metavar="N", help="training steps; default: as in recipe.yaml")
    parser.add_argument("--out", default=os.path.join(TREE, "out/emoji"), metavar="DIR")
    parser.add_argument("--dflop", default=os.path.join(TREE, "build/release/dflop"), metavar="FILE")
    parser.add_argument("--tars", action="store_true", help="write the tars, and do nothing else")
    parser.add_argument("--profile-s", type=int, default=PROFILE_SECONDS, metavar="S", help="max seconds of profiling")
    parser.add_argument("--one-in", type=int, default=1, metavar="N", help="of the pictures")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    tars = COMMITTED if options.part else options.out
    if not options.part:
        folder = options.pictures or fetch(os.path.join(options.out, "noto-emoji"))
        write_tars(folder, tars, options.one_in)
    try:
        if not options.tars:
            steps = options.steps or (PART_STEPS if options.part else None)
            model, data, kind = MODEL, tars, ".tar"
            if options.qwen3_vl:
                model, data, kind = os.path.join(options.out, "qwen3-vl"), options.out, ".jsonl"
                qwen3_vl.write_model(MODEL, model)
                for name in ("train", "held-out"):
                    qwen3_vl.write_list(os.path.join(tars, name + ".tar"), os.path.join(data, name + kind))
            Run(options.dflop, model, data, kind, options.out, steps, options.profile_s).all()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
