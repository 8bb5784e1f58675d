"""Tests of a session with a daemon that hangs, and of interrupts at bad moments."""

import os
import socket
import threading
import time

import pytest

import hmcfs
from hmcfs import _frames, _session


@pytest.fixture
def hung(tmp_path):
    """A socket whose daemon begins a session, and then says nothing more."""
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def serve():
            s, _ = server.accept()
            connections.append(s)
            asked = b""
            while b"\r\n\r\n" not in asked:
                asked += s.recv(4096)
            hello = b"\x01\x00\x00\x00name"
            s.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + _frames.HEADER.pack(len(hello), _frames.HELLO, 0, 0, 0) + hello)

        connections = []
        thread = threading.Thread(target=serve)
        thread.start()
        yield path, connections
        thread.join()
        for s in connections:
            s.close()


def test_close_beside_a_reader(hung, monkeypatch):
    monkeypatch.setattr(_session, "_STOP", 0.1)
    path, _ = hung
    session = _session.Session(path)
    number, outcome = session._socket.fileno(), []

    def waits():
        try:
            session.call("exist", ["k"])
        except hmcfs.HmcfsError as e:
            outcome.append((type(e), session._socket.fileno()))

    threads = [threading.Thread(target=waits) for _ in range(3)]
    for t in threads:
        t.start()
    while session._read_by is None or len(session._answers) < 3:
        time.sleep(0.001)
    session.close()
    # The number of the socket was given away when no thread read it any more.
    with pytest.raises(OSError):
        os.fstat(number)
    for t in threads:
        t.join()
    assert {kind for kind, _ in outcome} <= {hmcfs.Closed, hmcfs.Disconnected} and len(outcome) == 3
    with pytest.raises(hmcfs.Closed):
        session.call("exist", ["k"])


def answer(number):
    return _frames.HEADER.pack(5, _frames.LAST, 0, 0, number) + b"\x00\x00\x00\x00\x00"


class Interrupted:
    """A socket that an interrupt hits as soon as it has received bytes."""

    def __init__(self, s):
        self._socket = s

    def __getattr__(self, name):
        return getattr(self._socket, name)

    def recv(self, size):
        self._socket.recv(size)
        raise KeyboardInterrupt


def test_an_interrupt_that_takes_bytes_ends_the_session(hung):
    path, connections = hung
    session = _session.Session(path)
    session._socket = Interrupted(session._socket)
    call = session.start("exist", ["k"])
    connections[0].sendall(answer(call.number))
    with pytest.raises(KeyboardInterrupt):
        call.wait(20)
    with pytest.raises(hmcfs.Disconnected, match="interrupted"):  # rather than to take one answer for another
        session.call("exist", ["k"])


def test_an_interrupt_anywhere_else_does_not(hung):
    path, connections = hung
    session = _session.Session(path)
    call = session.start("exist", ["k"])

    def interrupted():
        if session._read_by is not None:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        session.read_until(interrupted, 20)
    connections[0].sendall(answer(call.number))
    assert [line.index for line in call.wait(20)] == [0]
