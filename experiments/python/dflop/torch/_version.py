"""Checks for features that dflop.torch needs but not all versions of torch have."""

from __future__ import annotations

import re

import torch

from dflop._errors import DflopError

OLDEST_TORCH = "2.14"
"""Its torch.distributed.pipelining takes inputs that are split already, and its split backward takes edges."""


def is_old(version: str = torch.__version__) -> bool:
    """Returns whether a version of torch is older than OLDEST_TORCH."""
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    return numbers < tuple(int(number) for number in OLDEST_TORCH.split("."))


def require_split_backwards(what: str, version: str = torch.__version__) -> None:
    """Raises DflopError, beginning with `what`, if torch cannot run the two parts of a backward pass separately."""
    if is_old(version):
        raise DflopError(
            f"{what} torch {OLDEST_TORCH} or newer, found {version}: install a newer one, or plan with an order of "
            "whole backwards, as dflop.plan(..., pipeline_schedule='1f1b'); zb-h1, zb-h2 and zb-v split them"
        )
