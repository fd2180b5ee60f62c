"""Ranks agree on an answer that could differ between ranks: all use the answer that was given first."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any, Protocol

from dflop._errors import InputError


class Agreement(Protocol):
    """The interface through which ranks agree."""

    def agree(self, key: str, value: bytes) -> bytes: ...

    def forget(self, key: str) -> None: ...


class DirectoryAgreement:
    """Lets ranks agree through files in a folder that all of them see."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        try:
            os.mkdir(path)  # without parents: a path whose parent is missing is more likely wrong than new
        except OSError as error:
            if not os.path.isdir(path):
                raise InputError(
                    "agreement: expected a folder that all ranks see, or a new name in an existing folder, found "
                    f"{self._path}: {error.strerror}"
                ) from None

    def agree(self, key: str, value: bytes) -> bytes:
        """Returns the value (bytes) that a rank gave first under the key; `value` if this rank is the first."""
        place = os.path.join(self._path, key)
        if not os.path.exists(place):
            handle, temporary = tempfile.mkstemp(dir=self._path, prefix="." + key)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(value)
                os.link(temporary, place)  # fails if another rank was first; a link is either complete or absent
            except FileExistsError:
                pass
            finally:
                os.unlink(temporary)
        with open(place, "rb") as file:
            return file.read()

    def forget(self, key: str) -> None:
        """Removes an answer that all ranks have read."""
        try:
            os.unlink(os.path.join(self._path, key))
        except FileNotFoundError:
            pass


class StoreAgreement:
    """Lets ranks agree through a store of torch.distributed (TCPStore, FileStore, PrefixStore)."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def agree(self, key: str, value: bytes) -> bytes:
        """Returns the value (bytes) that a rank gave first under the key; `value` if this rank is the first."""
        return bytes(self._store.compare_set("dflop/" + key, "", value.decode()))

    def forget(self, key: str) -> None:
        """Removes an answer that all ranks have read."""
        try:
            self._store.delete_key("dflop/" + key)
        except (RuntimeError, NotImplementedError):
            pass  # some stores cannot delete keys


def _process_group() -> Any:
    """Returns torch.distributed if it is initialized with several ranks, else None. Does not import anything."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed if distributed.get_world_size() > 1 else None


def ranks_of_process_group() -> tuple[int, int] | None:
    """Returns this rank and the number of ranks if torch.distributed is initialized with several ranks, else None."""
    distributed = _process_group()
    return None if distributed is None else (distributed.get_rank(), distributed.get_world_size())


def store_of_process_group() -> Any:
    """Returns the store of torch.distributed if it is initialized with several ranks, else None."""
    distributed = _process_group()
    return None if distributed is None else distributed.distributed_c10d._get_default_store()


def of_process_group() -> StoreAgreement | None:
    """Returns a StoreAgreement if torch.distributed is initialized with several ranks, else None."""
    store = store_of_process_group()
    return None if store is None else StoreAgreement(store)
