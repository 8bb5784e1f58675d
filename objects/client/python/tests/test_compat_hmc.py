"""Tests of hmcfs.compat.hmc. They need no mount."""

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading

import pytest

from hmcfs.compat import _handshake, hmc

np = pytest.importorskip("numpy")
IP = "127.0.0.1"
UCX = hmc.ConnType.UCX


def content(seed, size):
    return np.random.default_rng(seed).integers(0, 256, size, dtype="u1").tobytes()


@pytest.fixture
def ports():
    """Return ports that are free, of those that no connection is given."""
    found = []
    with contextlib.ExitStack() as open_:
        while len(found) < 3:
            port = random.randrange(10_000, 32_000)
            with contextlib.suppress(OSError):
                open_.enter_context(socket.create_server((IP, port)))
                found.append(port)
    return found


@pytest.fixture
def serve(tmp_path, ports, monkeypatch):
    """Return a server in this process, and a way to connect clients to it."""
    monkeypatch.setenv("CTRL_UDS_DIR", str(tmp_path))
    with contextlib.ExitStack() as sessions:
        def session(size=1 << 20):
            return sessions.enter_context(hmc.create_session(buffer_size=size, local_ip=IP))

        def connect(rank=1, size=1 << 20, port=0):
            s = session(size)
            s.connect(peer_id=0, self_id=rank, peer_ip=IP, data_port=ports[port], ctrl_tcp_port=ports[2], conn=UCX)
            return s

        server = session()
        start(server, ports)
        yield server, connect


def start(server, ports):
    server.init_server(bind_ip=IP, ucx_port=ports[0], rdma_port=ports[1], ctrl_tcp_port=ports[2], self_id=0)


@pytest.fixture
def by_tcp(tmp_path, monkeypatch):
    """Have all clients take this host for another."""
    path = tmp_path / "secret"
    path.write_bytes(os.urandom(32))
    path.chmod(0o600)
    monkeypatch.setenv("HMCFS_SECRET_FILE", str(path))
    monkeypatch.setattr(_handshake, "is_local", lambda ip: False)


class Program:
    """Another process, which runs code a piece at a time."""

    def __init__(self):
        loop = "import sys\nfor n in iter(sys.stdin.readline, ''):\n exec(sys.stdin.read(int(n)), globals()); print('done', flush=True)"
        self.process = subprocess.Popen([sys.executable, "-c", loop], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.out = []

    def run(self, code):
        code = textwrap.dedent(code)
        self.process.stdin.write(f"{len(code)}\n{code}")
        self.process.stdin.flush()

    def done(self):
        for line in self.process.stdout:
            if line == "done\n":
                return
            self.out.append(line)
        raise AssertionError(f"it ended: {self.out}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def examples(ports):
    """Return the examples of HMC's document by name, with this host's addresses."""
    with open(os.path.join(os.path.dirname(__file__), "hmc_examples.md"), encoding="utf-8") as f:
        found = dict(re.findall(r"## (\w+)\n\n```python\n(.*?)```", f.read(), re.S))
    assert len(found) == 7
    new = {"import hmc": "import hmcfs.compat.hmc as hmc", "192.168.2.244": IP, "192.168.2.248": IP, "/tmp": os.environ["CTRL_UDS_DIR"]}
    new.update(zip(("2025", "2026", "5001"), map(str, ports)))
    return {name: re.sub("|".join(map(re.escape, new)), lambda m: new[m[0]], code) for name, code in found.items()}


def test_examples(tmp_path, ports, monkeypatch):
    monkeypatch.setenv("CTRL_UDS_DIR", str(tmp_path))
    code = examples(ports)
    with Program() as server, Program() as client:
        server.run(code["server"])
        server.done()
        server.run(code["receiver"] + "\nprint(bytes(sess.buf.buffer_get_cpu(nbytes=9)))")  # waits for the client
        client.run(code["client"] + code["sender"])
        client.done(), server.done()
        assert client.out == ["sent 9 bytes\n"] and server.out == ["UCX server ready\n", "b'hello hmc'\n"]
        client.run(code["numpy"] + "\nassert np.array_equal(x, y) and y[1000] == 1000")
        client.done()
        server.run("import struct; assert struct.unpack('<1024i', sess.buf.buffer_get_cpu(nbytes=4096)) == tuple(range(1024))")
        server.done()
        torch = pytest.importorskip("torch")
        client.run(code["torch"] + "\nassert torch.equal(t, out) and out[4000] == 4000")
        client.done()
        if torch.cuda.is_available():
            client.run(f"sess.connect(peer_id=0, self_id=1, peer_ip=server_ip, data_port={ports[1]}, ctrl_tcp_port={ports[2]})")
            client.run(code["card"] + "\nassert torch.equal(t, recv)")
            client.done(), client.done()


@pytest.mark.parametrize("way", ["shared", "tcp"])
def test_put_then_tag(tmp_path, ports, monkeypatch, request, way):
    """A tag never overtakes the bytes that were put before it."""
    monkeypatch.setenv("CTRL_UDS_DIR", str(tmp_path))
    rounds = 500
    hide = ""
    if way == "tcp":
        request.getfixturevalue("by_tcp")
        hide = "from hmcfs.compat import _handshake; _handshake.is_local = lambda ip: False"
    with hmc.create_session(buffer_size=1 << 20) as server, Program() as client:
        start(server, ports)
        client.run(f"""
            import hmcfs.compat.hmc as hmc, hashlib
            {hide}
            s = hmc.create_session(buffer_size=1 << 20)
            s.connect(peer_id=0, self_id=3, peer_ip="{IP}", data_port={ports[0]}, ctrl_tcp_port={ports[2]}, conn=hmc.ConnType.UCX)
            for i in range({rounds}):
                data = hashlib.sha256(b"%d" % i).digest() * 100
                s.buf.put(data, offset=i % 7)
                s.put_remote("{IP}", {ports[0]}, i % 7, 5000 + i % 11, len(data), hmc.ConnType.UCX)
                s.ctrl_send(0, i)
                assert s.ctrl_recv(0) == 2**64 - 1 - i
        """)
        import hashlib

        for i in range(rounds):
            assert server.ctrl_recv(3, timeout=60) == i
            assert bytes(server.buf.buffer_get_cpu(nbytes=3200, offset=5000 + i % 11)) == hashlib.sha256(b"%d" % i).digest() * 100
            server.ctrl_send(3, 2**64 - 1 - i)
        client.done()


def check_transfers(server, client, port):
    data = content(1, 300_000)
    server.buf.put(data, offset=1000)
    before = server.buf.buffer_get_cpu(nbytes=server.buf.size)
    client.get_remote(IP, port, 7, 1000, len(data), UCX)
    assert client.buf.buffer_get_cpu(nbytes=len(data), offset=7) == data
    client.put_remote(IP, port, 100_007, 500_001, 100_000, UCX)
    before[500_001:600_001] = data[100_000:200_000]
    assert server.buf.buffer_get_cpu(nbytes=server.buf.size) == before
    ids = [client.get_nb(IP, port, i * 1000, 1000 + i * 1000, 1000, UCX) for i in range(100)]
    client.wait(ids[50])
    client.wait(ids[:50] + ids[51:])
    assert client.buf.buffer_get_cpu(nbytes=100_000) == data[:100_000]
    client.wait(client.put_nb(IP, port, 0, 0, 5000, UCX))
    assert server.buf.buffer_get_cpu(nbytes=5000) == data[:5000]
    x = np.zeros(2500, "i4")
    assert client.get_then_buffer_get_into(IP, port, x, remote_off=9000, conn=UCX) == 10_000 and x.tobytes() == data[8000:18_000]
    assert client.buffer_put_then_put(IP, port, x[::-1], local_off=77, remote_off=88, conn=UCX) == 10_000
    assert server.buf.buffer_get_cpu(nbytes=10_000, offset=88) == x[::-1].tobytes()


def test_transfers(serve, ports):
    server, connect = serve
    check_transfers(server, connect(), ports[0])


def test_transfers_by_tcp(by_tcp, serve, ports):
    server, connect = serve
    check_transfers(server, connect(), ports[0])


def test_wrong_use(serve, ports):
    server, connect = serve
    client = connect()
    readonly = np.zeros(10, "u1")
    readonly.flags.writeable = False
    status = hmc.status_t
    for call, error, text in [
        (lambda: client.put_remote(IP, ports[0], 0, 0, (1 << 20) + 1, UCX), hmc.HMCStatusError, "local buffer"),
        (lambda: client.put_remote(IP, ports[0], 0, 1, 1 << 20, UCX), hmc.HMCStatusError, "remote buffer"),
        (lambda: client.get_remote(IP, ports[0], 0, -1, 4, UCX), hmc.HMCStatusError, "remote buffer"),
        (lambda: client.put_remote(IP, ports[0], 2**64 - 1, 0, 2, UCX), hmc.HMCStatusError, "overflow"),
        (lambda: client.put_remote(IP, ports[0], 0, 0, -4, UCX), hmc.HMCStatusError, "overflow"),
        (lambda: client.put_remote(IP, ports[0], 0, 0, 4), hmc.HMCStatusError, "no connection.*conn"),
        (lambda: client.wait(99), hmc.HMCStatusError, "no transfer 99"),
        (lambda: client.ctrl_send(5, 1), hmc.HMCStatusError, "rank 5 is not connected"),
        (lambda: client.ctrl_recv(5), hmc.HMCStatusError, "rank 5 is not connected"),
        (lambda: server.ctrl_recv(5, timeout=0.01), hmc.HMCStatusError, "TIMEOUT"),
        (lambda: client.ctrl_send(0, -1), ValueError, "64 bits"),
        (lambda: client.ctrl_send(0, 1 << 64), ValueError, "64 bits"),
        (lambda: client.put_remote(IP, 0, 0, 0, 4), ValueError, "port"),
        (lambda: client.buf.put(b"abc", nbytes=4), ValueError, "3 bytes"),
        (lambda: client.buf.put(b"abc", offset=1 << 20), hmc.HMCStatusError, "overflow"),
        (lambda: client.buf.put(5), TypeError, ""),
        (lambda: client.buf.put(b"abc", device="tpu"), ValueError, "device"),
        (lambda: client.buf.put(b"abc", device="cuda"), ValueError, "PyTorch"),
        (lambda: client.buf.put(1234, nbytes=4, device="ptr"), hmc.HMCStatusError, "the tensor itself"),
        (lambda: client.buf.get_into(readonly, nbytes=10), ValueError, "read-only"),
        (lambda: client.buf.get_into(np.zeros((4, 4))[:, ::2], nbytes=10), ValueError, "contiguous"),
        (lambda: client.buf.get_into(bytearray(3), nbytes=4), ValueError, "3 bytes"),
        (lambda: client.buf.buffer_copy_within(dst_offset=0, src_offset=10, nbytes=1 << 20), hmc.HMCStatusError, "overflow"),
        (lambda: hmc.create_session(buffer_size=0), hmc.HMCStatusError, "0 bytes"),
        (lambda: hmc.create_session(mem_type=hmc.MemoryType.NVIDIA_GPU), hmc.HMCStatusError, "UNSUPPORT"),
        (lambda: start(server, ports), hmc.HMCStatusError, "runs already"),
        (lambda: start(client, ports), hmc.HMCStatusError, "in use"),
    ]:
        with pytest.raises(error, match=text):
            call()
    assert issubclass(hmc.HMCStatusError, RuntimeError)
    client.wait(0)
    client.wait([])
    client.put_remote(IP, ports[0], 0, 0, 0, UCX)
    for tag in (0, 1, 2**64 - 1):
        client.ctrl_send(0, tag)
        assert server.ctrl_recv(1, timeout=60) == tag
    check_transfers(server, client, ports[0])  # all is as before
    assert client.check_conn(IP, ports[0], UCX)
    client.disconnect(IP, ports[0], UCX)
    assert not client.check_conn(IP, ports[0], UCX)
    assert status.TIMEOUT == 4 and status.NOT_FOUND == 5


def test_buffer():
    buf = hmc.IOBuffer.create(0, 100_000, hmc.MemoryType.CPU)
    assert hmc.Session(buf, 1).buf is buf
    assert buf.size == 100_000 and buf.ptr and buf.mem_type == hmc.MemoryType.CPU and buf.device_id == 0
    data = content(2, 50_000)
    for target, source in ((10, 0), (0, 10), (0, 0), (30_000, 20_000)):
        buf.put(data)
        want = bytearray(buf.buffer_get_cpu(nbytes=100_000))
        buf.buffer_copy_within(dst_offset=target, src_offset=source, nbytes=40_000)
        want[target : target + 40_000] = bytes(want[source : source + 40_000])
        assert buf.buffer_get_cpu(nbytes=100_000) == want
    assert buf.put(memoryview(data)[::2], offset=5) == 25_000
    assert buf.buffer_get_cpu(nbytes=25_000, offset=5) == data[::2]
    for dtype in ("f2", ">f4", "c16", "?", "M8[s]"):
        x = np.frombuffer(data[:800], "u1").view(dtype)
        y = np.zeros_like(x)
        assert buf.put(x) == 800
        buf.get_into(y, nbytes=800)
        assert y.tobytes() == x.tobytes()


def test_tensors():
    torch = pytest.importorskip("torch")
    buf = hmc.create_session(buffer_size=100_000).buf
    x = torch.arange(1000, dtype=torch.float32).to(torch.bfloat16)
    y = torch.empty_like(x)
    buf.get_into(y, nbytes=buf.put(x))
    assert torch.equal(x, y)
    t = torch.arange(1000, dtype=torch.int32).reshape(10, 100).t()
    z = torch.empty(100, 10, dtype=torch.int32)
    buf.get_into(z, nbytes=buf.put(t))
    assert torch.equal(t, z)
    with pytest.raises(ValueError, match="contiguous"):
        buf.get_into(z.t(), nbytes=4000)
    assert buf.put(torch.tensor(5)) == 8


def test_dead_server(tmp_path, ports, monkeypatch):
    monkeypatch.setenv("CTRL_UDS_DIR", str(tmp_path))
    code = f"""
        import hmcfs.compat.hmc as hmc
        s = hmc.create_session(buffer_size=1 << 20)
        s.init_server(bind_ip="{IP}", ucx_port={ports[0]}, rdma_port={ports[1]}, ctrl_tcp_port={ports[2]}, self_id=0)
    """
    with hmc.create_session(buffer_size=1 << 20) as client:
        def connect():
            client.connect(peer_id=0, self_id=1, peer_ip=IP, data_port=ports[0], ctrl_tcp_port=ports[2], conn=UCX)

        with Program() as server:
            server.run(code)
            server.done()
            connect()
            client.put_remote(IP, ports[0], 0, 0, 1 << 20, UCX)
            server.run("s.ctrl_send(1, 5)")
            server.done()
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
        assert client.ctrl_recv(0) == 5  # what was sent is received
        with pytest.raises(hmc.HMCStatusError, match="has ended"):
            client.ctrl_recv(0)
        assert not client.check_conn(IP, ports[0], UCX)
        for call in (client.put_remote, client.get_remote, lambda *a: client.wait(client.put_nb(*a))):
            with pytest.raises(hmc.HMCStatusError, match="has ended"):
                call(IP, ports[0], 0, 0, 4, UCX)
        with pytest.raises(hmc.HMCStatusError, match="refused"):
            connect()
        with Program() as server:  # in place of the socket that the dead one left
            server.run(code)
            server.done()
            connect()
            client.buf.put(b"again")
            client.put_remote(IP, ports[0], 0, 0, 5, UCX)
            server.run("assert s.buf.buffer_get_cpu(nbytes=5) == b'again'; s.close()")
            server.done()
            assert os.listdir(tmp_path) == []


def test_ranks(serve, ports):
    server, connect = serve
    first = connect(1)
    with pytest.raises(hmc.HMCStatusError, match="rank 1 is connected already"):
        connect(1)
    other = connect(2)
    other.ctrl_send(0, 8)
    first.ctrl_send(0, 9)
    assert server.ctrl_recv(2, timeout=60) == 8 and server.ctrl_recv(1, timeout=60) == 9
    first.close()
    with pytest.raises(hmc.HMCStatusError, match="has ended"):
        server.ctrl_recv(1, timeout=60)
    again = connect(1)
    again.ctrl_send(0, 10)
    assert server.ctrl_recv(1, timeout=60) == 10


def test_close_server(serve, ports, tmp_path):
    server, connect = serve
    client = connect()
    waiting = threading.Thread(target=lambda: pytest.raises(hmc.HMCStatusError, server.ctrl_recv, 1))
    waiting.start()
    server.close_server()
    waiting.join(60)
    assert not waiting.is_alive() and os.listdir(tmp_path) == []
    with pytest.raises(hmc.HMCStatusError):
        client.put_remote(IP, ports[0], 0, 0, 4, UCX)
    start(server, ports)  # the ports are free again
    client.connect(peer_id=0, self_id=1, peer_ip=IP, data_port=ports[0], ctrl_tcp_port=ports[2], conn=UCX)
    check_transfers(server, client, ports[0])
    server.close()
    with pytest.raises(hmc.HMCError, match="closed"):
        server.ctrl_recv(1)


def test_secrets(by_tcp, serve, ports, tmp_path, monkeypatch):
    server, connect = serve
    good = tmp_path / "secret"
    monkeypatch.delenv("HMCFS_SECRET_FILE")
    with pytest.raises(hmc.HMCStatusError, match="set HMCFS_SECRET_FILE"):
        connect()
    monkeypatch.setenv("HMCFS_SECRET_FILE", str(good))
    good.chmod(0o644)
    with pytest.raises(hmc.HMCStatusError, match="chmod 600"):
        connect()
    good.write_bytes(b"short")
    good.chmod(0o600)
    with pytest.raises(hmc.HMCStatusError, match="16 bytes or more"):
        connect()
    good.unlink()
    with pytest.raises(hmc.HMCStatusError, match="No such file"):
        connect()
    # The client's, which may have to try again, and the server's.
    monkeypatch.setattr(_handshake, "secret", lambda: b"one" * 10 if threading.current_thread() is threading.main_thread() else b"other" * 10)
    with pytest.raises(hmc.HMCStatusError, match="does not know the secret"):
        connect()


def test_strangers(by_tcp, serve, ports):
    server, connect = serve
    client = connect()
    with contextlib.ExitStack() as strangers:
        for port in ports:
            for said in (b"", b"GET / HTTP/1.1\r\n\r\n" * 10, b"\xff" * 200, b"hmcfs-hmc-1\nX" + bytes(60), b"hmcfs-hmc-1\nD" + bytes(52)):
                s = strangers.enter_context(socket.create_connection((IP, port)))
                s.sendall(said)
        # They say nothing more, and others are served.
        check_transfers(server, connect(2), ports[0])
    link = client._peers[IP, ports[0], UCX].link._socket
    before = server.buf.buffer_get_cpu(nbytes=1 << 20)
    link.sendall(b"P" + (2**64 - 1).to_bytes(8, "little") + (2).to_bytes(8, "little") + b"xx")
    assert link.recv(1) == b"\1"
    assert server.buf.buffer_get_cpu(nbytes=1 << 20) == before


class Dripping:
    """A connection whose peer sends one byte just before each wait for it ends."""

    family = socket.AF_INET

    def __init__(self, clock):
        self.clock, self.limit, self.said = clock, 0.0, iter(b"hmcfs-hmc-1\nD" + bytes(1000))

    def settimeout(self, limit):
        self.limit = limit

    def sendall(self, data):
        pass

    def recv_into(self, view):
        self.clock[0] += self.limit * 0.99
        view[0] = next(self.said)
        return 1


@pytest.mark.parametrize("shake", [_handshake.challenge, lambda s: _handshake.connect(s, _handshake.Hello(b"D", 1, bytes(16)))])
def test_a_handshake_has_one_limit(monkeypatch, shake):
    clock = [1000.0]
    monkeypatch.setattr(_handshake.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(_handshake, "secret", lambda: b"s" * 16)
    with pytest.raises(TimeoutError):
        shake(Dripping(clock))
    assert clock[0] <= 1000 + _handshake.LIMIT


def test_another_user_is_not_waited_for(monkeypatch):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        monkeypatch.setattr(_handshake.os, "geteuid", lambda: 4711)
        monkeypatch.setattr(_handshake, "receive", lambda *_: pytest.fail("it is waited for a user that is refused"))
        with pytest.raises(_handshake.Refused, match="belongs to user"):
            _handshake.challenge(ours)
        assert b"belongs to user" in theirs.recv(1000)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_another_user(serve, ports):
    server, _ = serve
    server.close_server()
    with tempfile.TemporaryDirectory() as folder, Program() as other:
        os.chmod(folder, 0o755)
        server.init_server(
            bind_ip=IP, ucx_port=ports[0], rdma_port=ports[1], ctrl_tcp_port=ports[2], self_id=0, ctrl_uds_dir=folder
        )
        other.run("import hmcfs.compat.hmc as hmc, os; os.setuid(65534)")
        other.done()
        for mode, reason in ((0o600, "Permission denied"), (0o666, "belongs to user")):
            os.chmod(os.path.join(folder, "hmc_ctrl_rank_0.sock"), mode)
            other.run(f"""
                try:
                    s = hmc.create_session()
                    s.connect(peer_id=0, self_id=4, peer_ip="{IP}", data_port={ports[0]}, ctrl_tcp_port={ports[2]}, uds_dir="{folder}")
                except hmc.HMCStatusError as e:
                    print(e)
            """)
            other.done()
            assert reason in other.out[-1]
        server.close_server()


def test_fork(serve, ports, tmp_path):
    server, connect = serve
    client = connect()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            client.put_remote(IP, ports[0], 0, 0, 4, UCX)
        except hmc.HMCError as e:
            code = 0 if "forked" in str(e) else 2
        client._finalizer(), server._finalizer()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert os.listdir(tmp_path) == ["hmc_ctrl_rank_0.sock"]
    check_transfers(server, client, ports[0])


def test_nothing_is_left(tmp_path, ports, monkeypatch):
    monkeypatch.setenv("CTRL_UDS_DIR", str(tmp_path))
    before = None
    for i in range(60):
        with hmc.create_session(buffer_size=5000) as server, hmc.create_session(buffer_size=5000) as client:
            start(server, ports)
            client.connect(peer_id=0, self_id=1, peer_ip=IP, data_port=ports[0], ctrl_tcp_port=ports[2], conn=UCX)
            client.wait(client.put_nb(IP, ports[0], 0, 0, 5000, UCX))
        if i == 5:
            before = len(os.listdir("/proc/self/fd")), threading.active_count()
    # Threads end, and close their sockets, a moment later.
    assert len(os.listdir("/proc/self/fd")) < before[0] + 30 and threading.active_count() < before[1] + 30
    assert os.listdir(tmp_path) == []
