"""Tests of a session with a daemon that hangs, or is followed by another, and of interrupts at bad moments."""

import errno
import fcntl
import json
import os
import select
import socket
import threading
import time

import pytest

import hmcfs
from hmcfs import _frames, _session


def greet(s, more=b"Hmcfs-Continues: 60\r\n"):
    """Begin a session, with a channel for descriptors of which nobody reads the other end."""
    hello = b"\x01\x00\x00\x00name"
    answer = b"HTTP/1.1 101 Switching Protocols\r\n" + more + b"\r\n" + _frames.HEADER.pack(len(hello), _frames.HELLO, 0, 0, 0) + hello
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        socket.send_fds(s, [answer], [theirs.fileno()])


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
            greet(s, b"")

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


def test_a_slow_end_of_an_export_ends_no_other(hung, monkeypatch):
    monkeypatch.setattr(_session, "_HELD", 0.1)
    path, connections = hung
    requests = _session.Requests(path)

    def frame(kind, number, body=b""):
        return _frames.HEADER.pack(len(body), kind, 0, 0, number) + body

    daemon = connections[0]
    for number in (1, 2):
        daemon.sendall(frame(_frames.PART, number, b"{}"))
        assert requests.ask("export", {}) == (number, {}, [])
    last = frame(_frames.LAST, 1)
    daemon.sendall(last[:5])  # the daemon stops within its answer
    requests.end(1)
    daemon.sendall(last[5:] + frame(_frames.PART, 3, b"[3]"))
    assert requests.ask("export", {}) == (3, [3], [])
    daemon.sendall(frame(_frames.LAST, 2))
    requests.end(2)
    daemon.close()
    with pytest.raises(hmcfs.Disconnected):
        requests.ask("export", {})
    requests.close()


@pytest.fixture
def daemons(tmp_path, monkeypatch):
    """Serve connections to a socket, one after the other, of which a holder starts the daemon again. Return its path, and a function
    that has another one serve each."""
    monkeypatch.setattr(_session, "_revives", lambda _: True)
    path, threads = str(tmp_path / "socket"), []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def serve(each):
            for one in each:
                with server.accept()[0] as s:
                    s.recv(4096)
                    one(s)

        def start(*each):
            threads.append(threading.Thread(target=serve, args=(each,), daemon=True))
            threads[-1].start()

        yield path, start
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.parametrize("what", ["ask", "export"])
def test_a_daemon_that_dies_meanwhile_is_followed_by_another(what, daemons):
    path, start = daemons
    asked = []

    def dies(s):
        greet(s)
        asked.append(s.recv(4096))

    def lives(s):
        dies(s)
        number = _frames.HEADER.unpack_from(asked[-1])[-1]
        s.sendall(_frames.HEADER.pack(2, _frames.PART if what == "export" else _frames.REPLY, 0, 0, number) + b"{}")
        s.recv(1)

    start(lambda s: None, dies, lives)
    if what == "ask":
        assert _session.ask(path, "bind", {}, [], done=lambda: False) == {}
    else:
        assert _session.export(path, {}, [])[:2] == ({}, [])
    assert len(asked) == 2


@pytest.mark.parametrize(("done", "times"), [(True, 1), (False, 3)])
def test_a_request_of_which_daemons_die(done, times, daemons):
    path, start = daemons
    asked = []

    def dies(s):
        greet(s)
        asked.append(s.recv(4096))

    start(*[dies] * times)
    if done:
        assert _session.ask(path, "bind", {}, [], done=lambda: True) is None
    else:
        with pytest.raises(hmcfs.Disconnected):
            _session.ask(path, "bind", {}, [])
    assert len(asked) == times


@pytest.mark.parametrize("head", [b"200 OK\r\nTransfer-Encoding: chunked", b"426 Upgrade Required\r\nContent-Length: 43"])
def test_a_daemon_of_another_version(head, daemons):
    path, start = daemons

    def tells(s):
        s.sendall(b"HTTP/1.1 " + head + b"\r\n\r\n" + (b'{"error":"speaks 99","code":"unsupported"}\n' if b"426" in head else b""))
        s.recv(1)  # until the client closes it

    start(tells)
    with pytest.raises(hmcfs.Unsupported, match="speak"):
        _session.Session(path)


def test_the_socket_is_being_replaced(tmp_path, monkeypatch):
    path, revived, looks = str(tmp_path / "socket"), threading.Event(), []

    def revives(_):  # the client has found no socket, and asks the holder
        looks.append(1)
        revived.set()
        return True

    monkeypatch.setattr(_session, "_revives", revives)

    def serve():
        revived.wait()
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen()
            with server.accept()[0] as s:
                s.recv(4096)
                greet(s)
                s.recv(1)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    assert _session.asked(path, lambda _: "done") == "done"
    thread.join()
    assert looks


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


def head_of(s):
    head = b""
    while b"\r\n\r\n" not in head:
        data = s.recv(4096)
        if not data:
            break
        head += data
    return head


def refuse(s, code):
    text = json.dumps({"error": "refused", "code": code}).encode()
    s.sendall(b"HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\n\r\n" % len(text) + text)


def call_of(s):
    """Receive a call; return its number, and whether it is asked again."""
    size, _, _, again, number = _frames.HEADER.unpack(s.recv(_frames.HEADER.size, socket.MSG_WAITALL))
    if size:
        s.recv(size, socket.MSG_WAITALL)
    return number, again & 1


@pytest.fixture
def served(tmp_path):
    """A function that serves a socket: serve(n, s, head) has the connection of the n-th request until it returns."""
    path, threads, failures = str(tmp_path / "socket"), [], []
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()

    def start(serve):
        def one(n, s):
            try:
                with s:
                    serve(n, s, head_of(s))
            except OSError:
                pass  # the client has gone
            except AssertionError as e:
                failures.append(e)

        def accept():
            n = 0
            while True:
                try:
                    s, _ = server.accept()
                except OSError:
                    return
                threads.append(threading.Thread(target=one, args=(n, s)))
                threads[-1].start()
                n += 1

        threads.append(threading.Thread(target=accept))
        threads[0].start()
        return path

    yield start
    server.shutdown(socket.SHUT_RDWR)
    for t in threads:
        t.join()
    server.close()
    assert not failures


def test_a_slow_return(served, monkeypatch):
    monkeypatch.setattr(_session, "_ATTEMPT", 0.5)

    def serve(n, s, head):
        if n == 0:
            greet(s)
            call_of(s)  # and dies
        elif n == 1:
            refuse(s, "busy")
        elif n > 2:
            refuse(s, "no_session")  # the name was used
        else:
            assert b"Hmcfs-Session: name\r\n" in head
            greet(s)
            number, _ = call_of(s)
            assert not select.select([s], [], [], 1.0)[0]  # it waits longer than for a greeting
            s.sendall(_frames.HEADER.pack(0, _frames.LAST, 0, 0, number))
            number, again = call_of(s)
            assert again
            s.sendall(answer(number))
            s.recv(1)  # it ends

    session = _session.Session(served(serve))
    assert [line.index for line in session.call("exist", ["k"])] == [0]
    session.close()


def test_a_call_while_there_is_no_daemon_is_new(served):
    returns = threading.Event()
    asked = []

    def serve(n, s, head):
        greet(s)
        number, again = call_of(s)
        if n:  # continue
            s.sendall(_frames.HEADER.pack(0, _frames.LAST, 0, 0, number))
            for _ in range(2):
                number, again = call_of(s)
                asked.append((number, again))
                s.sendall(answer(number))
            s.recv(1)

    path = served(serve)
    session = _session.Session(path)
    arrive = session._arrive
    session._arrive = lambda: returns.wait(20) and arrive()
    first = session.start("exist", ["k"])
    while not session._away:
        time.sleep(0.001)
    second = session.start("exist", ["k"])
    returns.set()
    first.wait(20)
    second.wait(20)
    assert asked == [(first.number, 1), (second.number, 0)]
    session.close()


def test_a_call_that_was_cancelled_is_not_asked_again(served, monkeypatch):
    asked = []

    def serve(n, s, head):
        greet(s)
        number, _ = call_of(s)
        if not n:
            assert call_of(s) == (number, 0)  # its end; and it dies
            return
        s.sendall(_frames.HEADER.pack(0, _frames.LAST, 0, 0, number))
        asked.append(call_of(s)[0])
        s.sendall(answer(asked[0]))
        s.recv(1)

    session = _session.Session(served(serve))
    here, read_until = threading.get_ident(), session.read_until

    def late(done, limit):
        """Wait, in this thread, only once there is another daemon."""
        while threading.get_ident() == here and session._generation == 0:
            time.sleep(0.001)
        return read_until(done, limit)

    session.read_until = late
    first = session.start("wait", ["k"], timeout=20)
    session.stop(first)
    assert first.over
    second = session.start("exist", ["k"])
    second.wait(20)
    assert asked == [second.number]
    session.close()


def test_close_beside_a_slow_return(served):
    waits = threading.Event()

    def serve(n, s, head):
        greet(s)
        call_of(s)
        if n:
            waits.set()
            s.recv(1)  # until it is closed

    session = _session.Session(served(serve))
    session.start("exist", ["k"])
    assert waits.wait(20)
    session.close()


def test_register_without_descriptors(served, monkeypatch):
    heads = []

    def serve(n, s, head):
        heads.append(head)
        if not n:
            greet(s)
            s.recv(1)

    session = _session.Session(served(serve))

    def none(fd, what, *of):
        if what == fcntl.F_DUPFD_CLOEXEC:
            raise OSError(errno.EMFILE, "too many")
        return 0

    monkeypatch.setattr(_session.fcntl, "fcntl", none)
    with pytest.raises(hmcfs.Busy):
        session.register("host", {}, [0])
    session.close()
    assert not [head for head in heads if b"register" in head]


@pytest.mark.parametrize(
    "said, revives",
    [(b'{"status":{"gave_up":false}}', True), (b'{"status":{"gave_up":true}}', False), (b'{"error":"unknown"}', None), (b"", None)],
)
def test_revives(tmp_path, said, revives):
    path = str(tmp_path / "socket")
    assert _session._revives(path) is None
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(str(tmp_path / "hold.sock"))
        server.listen()

        def serve():
            with server.accept()[0] as s:
                s.recv(100)
                if said:
                    s.send(said)

        thread = threading.Thread(target=serve)
        thread.start()
        assert _session._revives(path) is revives
        thread.join()
    assert _session._revives(path) is False


def test_a_reader_that_asks_in_vain_asks_less_often(hung, monkeypatch):
    monkeypatch.setattr(_session, "_STOP", 0.1)  # close() waits for no daemon
    session = _session.Session(hung[0])
    asked = []
    monkeypatch.setattr(_session, "_MOMENT", 0)

    def soon(answers):
        """Read once, with a poll that answers in turn. Return what was reported, and how often it was asked."""
        asked.clear()
        left = iter(answers)

        def poll(limit):
            assert limit == 0  # it never sleeps
            asked.append(limit)
            return next(left)

        return session._soon(poll, None), len(asked)

    session._pause = session._missed = 0
    assert soon([[(3, 1)]]) == (True, 1)
    assert session._soon(lambda limit: pytest.fail("no time is left"), 0) is False
    monkeypatch.setattr(_session.time, "perf_counter", iter(range(100)).__next__)
    # A moment in vain skips no read, one more in a row the next 2, and then the next 6, and no more.
    for skipped in (0, 2, 6, 6):
        assert soon([[]]) == (False, 1)
        for _ in range(skipped):
            assert soon([]) == (False, 0)
    assert soon([[(3, 1)]]) == (True, 1)  # after an answer in time it begins anew
    assert soon([[]]) == (False, 1) and soon([[]]) == (False, 1)
    monkeypatch.setattr(_session, "_MOMENT", 2)
    session._pause = session._missed = 0
    assert soon([[], [], [(3, 1)]]) == (True, 3)  # it asks again until the moment is over
    session.close()
