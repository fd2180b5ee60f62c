"""Describes clusters of machines that no preset covers, such as CPUs."""

from __future__ import annotations

import json
import os
from typing import Any

from dflop._partition import finite_number, whole_number

# The limits of the file's reader: traces/files/specs.cpp.
_MOST_RANKS = 1024
_MOST_MEMORY = 10**15
_BYTES_PER_S = (1e6, 1e15)
_MOST_LATENCY_S = 1

def write_cluster(
    path: str | os.PathLike[str],
    ranks: int,
    memory_bytes: float,
    *,
    name: str = "this machine",
    bandwidth_bytes_per_s: float = 1e9,
    latency_s: float = 1e-4,
) -> None:
    """Writes a cluster file for `--cluster` that describes a machine: a node with this many ranks, the memory of each
    rank, and the links.

    Compute times are placeholders, based on a round 1e11 operations per second, and the file says so with its key
    "placeholder". Commands that would use these times require a profile of the modules instead, as made by
    dflop.torch.profile(). If all ranks made the profile, it also replaces the links. If you enter your own figures,
    delete the key. For a GPU that has a preset, copy the preset and change it. Raises InputError for values that the
    commands would reject.
    """
    if isinstance(memory_bytes, float) and memory_bytes.is_integer():
        memory_bytes = int(memory_bytes)  # accepts 4e9, too
    link = {
        "latency_s": finite_number("latency_s", latency_s, 0, _MOST_LATENCY_S),
        "bandwidth_bytes_per_s": finite_number("bandwidth_bytes_per_s", bandwidth_bytes_per_s, *_BYTES_PER_S),
    }
    shares = "gemm_efficiency attention_forward_efficiency attention_backward_efficiency memory_efficiency".split()
    nothing = "gemm_half_tokens gemm_half_width attention_half_tokens kernel_overhead_s layer_launch_s".split()
    nothing += "message_overhead_s node_ring_bandwidth_bytes_per_s tensor_overlap".split()
    software: dict[str, Any] = {"name": "", "source": "", **dict.fromkeys(shares, 0.5), **dict.fromkeys(nothing, 0.0)}
    cluster = {
        "schema": "dflop.cluster",
        "version": 1,
        "name": str(name),
        "source": "dflop.write_cluster(): times must come from a profile",
        "placeholder": True,
        "gpus_per_node": whole_number("ranks", ranks, 1, _MOST_RANKS),
        "gpu": {
            "name": "one rank",
            "peak_flop_per_s": 1e11,
            "memory_bandwidth_bytes_per_s": 1e10,
            "memory_bytes": whole_number("memory_bytes", memory_bytes, 1, _MOST_MEMORY),
            "reserved_memory_bytes": 0,
        },
        "intra_node": link,
        "inter_node": link,
        "software": software,
    }
    with open(f"{os.fspath(path)}.part", "w", encoding="utf-8") as file:
        json.dump(cluster, file, indent=2)
    os.replace(f"{os.fspath(path)}.part", path)
