import os
import signal
import threading
import time

import pytest

import dflop


def test_answers_find_their_requests_from_many_threads(server):
    found = {}

    def ask(number):
        costs = [number, 1, 1, 1]
        found[number] = server.request("partition", {"llm": costs, "bins": 2}, 30)["value"]

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(4, 24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: float(n) for n in range(4, 24)}  # n by itself, or with no larger number
    assert server.starts == 1


def test_a_killed_child_is_noticed_and_another_one_answers(server):
    server.request("ping", {}, 30)
    os.kill(server.pid, signal.SIGSTOP)
    waiting = server.submit("ping", {})
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(dflop.ServerError, match="signal 9"):
        server.wait(waiting, 30)
    assert server.request("ping", {}, 30) == {}
    assert server.starts == 2


def test_a_hung_child_is_killed(server):
    server.request("ping", {}, 30)
    pid = server.pid
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(dflop.ServerError, match="has not answered in 0.3 s"):
        server.request("ping", {}, 0.3)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert server.request("ping", {}, 30) == {}


def test_a_child_that_reads_nothing_blocks_no_one(server):
    server.request("ping", {}, 30)
    os.kill(server.pid, signal.SIGSTOP)
    costs = [0.123456789] * 20_000  # 240 KB; a pipe holds 64 KB
    waiting = [server.submit("partition", {"llm": costs, "bins": 2, "method": "lpt"}) for _ in range(3)]
    os.kill(server.pid, signal.SIGCONT)
    for future in waiting:
        assert len(server.wait(future, 60)["bins"]) == 20_000


def test_an_answer_that_is_no_json_is_an_error_of_its_request(server):
    waiting = server.submit("ping", {"what": object()})
    with pytest.raises(dflop.InputError, match="ping"):
        server.wait(waiting, 30)
    assert server.request("ping", {}, 30) == {}


def test_a_request_for_an_ended_child_starts_no_other(server):
    server.request("ping", {}, 30)
    first = server.starts
    assert server.wait(server.submit("ping", {}, only=first), 30) == {}
    server.close()
    with pytest.raises(dflop.ServerError, match="has ended"):
        server.wait(server.submit("ping", {}, only=first), 30)
    assert server.starts == first and server.pid is None
    server.request("ping", {}, 30)
    with pytest.raises(dflop.ServerError, match="has ended"):
        server.wait(server.submit("ping", {}, only=first), 30)


def test_a_forked_process_has_a_child_of_its_own(server):
    server.request("ping", {}, 30)
    mine = server.pid
    read, write = os.pipe()
    fork = os.fork()
    if fork == 0:
        server.request("ping", {}, 30)
        os.write(write, str(server.pid).encode())
        server.close()
        os._exit(0)
    os.waitpid(fork, 0)
    assert int(os.read(read, 100)) != mine
    assert server.request("ping", {}, 30) == {} and server.pid == mine


def test_the_child_ends_with_its_parent():
    """A worker that the parent forked, as a loader does, lives on and does not keep the child alive."""
    read, write = os.pipe()
    fork = os.fork()
    if fork == 0:
        server = dflop.Server()
        server.request("ping", {}, 30)
        worker = os.fork()
        if worker == 0:
            time.sleep(120)
            os._exit(0)
        os.write(write, f"{server.pid} {worker}".encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(fork, 0)
    child, worker = map(int, os.read(read, 100).split())
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and os.path.exists(f"/proc/{child}") and not _is_zombie(child):
        time.sleep(0.02)
    ended = not os.path.exists(f"/proc/{child}") or _is_zombie(child)
    os.kill(worker, signal.SIGKILL)
    assert ended


def _is_zombie(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def test_a_file_that_cannot_be_executed_is_an_error(tmp_path, monkeypatch):
    path = tmp_path / "dflop"
    path.write_bytes(b"\0\1\2")
    path.chmod(0o755)
    monkeypatch.setenv("DFLOP_EXECUTABLE", str(path))
    with pytest.raises(dflop.ServerError, match="cannot be started"):
        dflop.Server().request("ping", {}, 5)


def test_a_missing_executable_is_an_error_with_a_remedy(monkeypatch):
    monkeypatch.setenv("DFLOP_EXECUTABLE", "/none/dflop")
    with pytest.raises(dflop.ServerError, match="DFLOP_EXECUTABLE"):
        dflop.Server().request("ping", {}, 5)
