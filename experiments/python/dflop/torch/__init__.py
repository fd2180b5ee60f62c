"""The part of dflop for PyTorch users: plans that run on your own modules, recordings and profiles."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dflop.torch._board import RankFailed as RankFailed
    from dflop.torch._executor import Executor as Executor, NonFiniteNorm as NonFiniteNorm, Result as Result
    from dflop.torch._pipelining import Schedule as Schedule, Stage as Stage
    from dflop.torch._profile import Profile as Profile, profile as profile
    from dflop.torch._program import Part as Part, Piece as Piece, Program as Program
    from dflop.torch._program import StageDescription as StageDescription
    from dflop.torch._recorder import Recorder as Recorder, span as span

# Each name is imported on first use, because some need a newer torch than others.
_HOMES = {
    "Executor": "_executor",
    "NonFiniteNorm": "_executor",
    "Part": "_program",
    "Piece": "_program",
    "Profile": "_profile",
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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dflop.torch' has no attribute '{name}'")
    return getattr(importlib.import_module(f"dflop.torch.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
