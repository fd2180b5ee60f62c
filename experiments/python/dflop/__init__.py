"""dflop finds, explains and runs the fastest way to train multimodal LLMs.

This package is the `dflop` executable together with everything that a training loop in Python needs from it. It imports
neither torch nor numpy; only `dflop.torch` needs torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dflop._cluster import write_cluster
from dflop._commands import compare, options, plan, run, simulate
from dflop._errors import CommandError, DflopError, Infeasible, InputError, ServerError
from dflop._executable import executable
from dflop._partition import lpt, partition
from dflop._agreement import DirectoryAgreement, StoreAgreement
from dflop._plan_sampler import PlanSampler
from dflop._sampler import BatchSampler
from dflop._samples import make_sample, write_samples
from dflop._server import Server

if TYPE_CHECKING:
    from dflop import torch as torch

    __version__: str

__all__ = [
    "BatchSampler",
    "CommandError",
    "DflopError",
    "DirectoryAgreement",
    "Infeasible",
    "InputError",
    "PlanSampler",
    "Server",
    "ServerError",
    "StoreAgreement",
    "compare",
    "executable",
    "lpt",
    "make_sample",
    "options",
    "partition",
    "plan",
    "run",
    "simulate",
    "write_cluster",
    "write_samples",
]


def __getattr__(name: str) -> Any:
    if name == "torch":  # needs torch, unlike the rest of the package
        return importlib.import_module("dflop.torch")
    if name == "__version__":
        return _version()
    raise AttributeError(f"module 'dflop' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), "torch", "__version__"})


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("dflop")
    except metadata.PackageNotFoundError:
        return "0+source"  # the package is not installed
