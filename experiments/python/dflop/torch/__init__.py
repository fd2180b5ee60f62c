"""What PyTorch users need of dflop: plans that run on modules of one's own, recordings and profiles."""

import importlib

# Each name is imported when it is asked for, as some need a newer torch than others.
_HOMES = {
    "Executor": "_executor",
    "Part": "_program",
    "Piece": "_program",
    "Program": "_program",
    "RankFailed": "_board",
    "Recorder": "_recorder",
    "Result": "_executor",
    "Schedule": "_pipelining",
    "Stage": "_pipelining",
    "StageDescription": "_program",
    "profile": "_profile",
    "span": "_recorder",
}

__all__ = sorted(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module 'dflop.torch' has no attribute '{name}'")
    return getattr(importlib.import_module(f"dflop.torch.{_HOMES[name]}"), name)
