"""dflop finds, explains and runs the fastest way to train multimodal LLMs.

This package is the `dflop` executable and what a training loop in Python needs of it. It imports neither
torch nor numpy; `dflop.torch` needs torch.
"""

from dflop._commands import compare, plan, run, simulate
from dflop._errors import CommandError, DflopError, Infeasible, InputError, ServerError
from dflop._executable import executable
from dflop._partition import lpt, partition
from dflop._agreement import DirectoryAgreement, StoreAgreement
from dflop._plan_sampler import PlanSampler
from dflop._sampler import BatchSampler
from dflop._samples import make_sample, write_samples
from dflop._server import Server

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
    "partition",
    "plan",
    "run",
    "simulate",
    "write_samples",
]
