"""Ranks agree on an answer that could differ from rank to rank: the first one that is given is taken by
all."""

import os
import sys
import tempfile


class DirectoryAgreement:
    """Ranks agree through files in a folder that all of them see."""

    def __init__(self, path):
        self._path = os.fspath(path)
        os.makedirs(path, exist_ok=True)

    def agree(self, key, value):
        """Returns the value (bytes) that a rank has given first under the key; `value` if that is this
        one."""
        place = os.path.join(self._path, key)
        if not os.path.exists(place):
            handle, temporary = tempfile.mkstemp(dir=self._path, prefix="." + key)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(value)
                os.link(temporary, place)  # fails where another was first; a link is whole or not there
            except FileExistsError:
                pass
            finally:
                os.unlink(temporary)
        with open(place, "rb") as file:
            return file.read()

    def forget(self, key):
        """Removes an answer that all ranks have."""
        try:
            os.unlink(os.path.join(self._path, key))
        except FileNotFoundError:
            pass


class StoreAgreement:
    """Ranks agree through a store of torch.distributed (TCPStore, FileStore, PrefixStore)."""

    def __init__(self, store):
        self._store = store

    def agree(self, key, value):
        """Returns the value (bytes) that a rank has given first under the key; `value` if that is this
        one."""
        return bytes(self._store.compare_set("dflop/" + key, "", value.decode()))

    def forget(self, key):
        """Removes an answer that all ranks have."""
        try:
            self._store.delete_key("dflop/" + key)
        except (RuntimeError, NotImplementedError):
            pass  # some stores keep all that they are given


def of_process_group():
    """Returns the StoreAgreement of torch.distributed where several ranks have initialised it, else None."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    if distributed.get_world_size() < 2:
        return None
    return StoreAgreement(distributed.distributed_c10d._get_default_store())
