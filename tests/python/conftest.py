"""Tests of the Python package, which need neither torch nor numpy. DFLOP_EXECUTABLE names the built command."""

import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "experiments" / "python"))


@pytest.fixture
def source():
    return SOURCE


@pytest.fixture
def server():
    import dflop

    server = dflop.Server()
    yield server
    server.close()


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """Replaces the executable with one that fails as the test says: `broken("exit 1")`, shell text."""

    def make(script):
        path = tmp_path / "broken-dflop"
        path.write_text("#!/bin/sh\n" + script + "\n")
        path.chmod(0o755)
        monkeypatch.setenv("DFLOP_EXECUTABLE", str(path))
        return path

    return make
