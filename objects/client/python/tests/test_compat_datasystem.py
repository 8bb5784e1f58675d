"""Tests of hmcfs.compat.datasystem against the mount of $HMCFS_MOUNT."""

import ctypes
import gc
import os
import re
import subprocess
import sys
import threading
import types
import weakref

import pytest

import hmcfs
from hmcfs.compat import datasystem as ds

np = pytest.importorskip("numpy")
MOUNT = os.environ["HMCFS_MOUNT"]
HOST = ("127.0.0.1", 31501)


def array(seed, size):
    return np.random.default_rng(seed).integers(0, 256, size, dtype="u1")


@pytest.fixture
def client():
    with ds.DsTensorClient(*HOST, 0) as one:
        yield one


@pytest.fixture
def other():
    with ds.DsTensorClient(*HOST, 1) as one:
        yield one


@pytest.fixture
def hetero():
    with ds.HeteroClient(*HOST) as one:
        yield one


def lists(*keys, device=0):
    """Return the lists of keys, of which each is some arrays."""
    return [ds.DeviceBlobList(device, [ds.Blob(a.ctypes.data, a.nbytes) for a in arrays]) for arrays in keys]


class Acl:
    """Host memory in the place of ACL's; it keeps what was allocated."""

    def __init__(self):
        self.memory = {}
        self.rt = types.SimpleNamespace(set_device=lambda i: 0, malloc=self.malloc, memcpy=self.memcpy)
        self.util = types.SimpleNamespace(bytes_to_ptr=lambda b: ctypes.cast(ctypes.c_char_p(b), ctypes.c_void_p).value)

    def init(self):
        return 0

    def malloc(self, size, policy):
        piece = ctypes.create_string_buffer(size)
        self.memory[ctypes.addressof(piece)] = piece
        return ctypes.addressof(piece), 0

    def memcpy(self, to, to_size, from_, size, kind):
        ctypes.memmove(to, from_, size)
        return 0

    def contents(self):
        return [p.raw for p in self.memory.values()]


def test_examples(monkeypatch):
    """Run the examples of the document: as written but for the import, over host memory."""
    with open(os.path.join(os.path.dirname(__file__), "datasystem_examples.md"), encoding="utf-8") as f:
        found = dict(re.findall(r"## (\w+)\n\n```python\n(.*?)```", f.read(), re.S))
    assert set(found) == {"publish", "mset", "host"}
    worlds = []
    for code in found.values():
        one = {}
        monkeypatch.setitem(sys.modules, "acl", Acl())
        exec(re.sub(r"from datasystem(\.ds_client)? import DsClient(, DeviceBlobList, Blob)?",
                    "from hmcfs.compat.datasystem import DsClient, DeviceBlobList, Blob", code), one)
        one["random_str"] = lambda size: array(len(worlds), size // 2).tobytes().hex()  # theirs is slow
        worlds.append(one)
    publish, mset, host = worlds
    received = Acl()
    sending = threading.Thread(target=publish["hetero_dev_publish"])
    sending.start()
    sent, publish["acl"] = publish["acl"], publish["acl"]
    wait_until(lambda: len(sent.memory) == 12)
    publish["acl"] = received
    publish["hetero_dev_subscribe"]()
    sending.join(60)
    assert not sending.is_alive() and received.contents() == sent.contents() and len(set(sent.contents())) == 1
    host["hetero_mset_d2h_mget_h2d"]()
    values = host["acl"].contents()
    assert values[:12] == values[12:]
    with hmcfs.connect() as fs:
        fs.delete("key1", "key2", "key3")
    mset["hetero_dev_mset"]()
    gc.collect()
    given, mset["acl"] = mset["acl"], Acl()
    mset["hetero_dev_mget"]()
    assert mset["acl"].contents() == given.contents()
    for one in list(ds._ALIVE):
        one.close()
    assert not ds._ALIVE


def wait_until(true):
    for _ in range(6000):
        if true():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not happen")


def test_set_and_get(client, other):
    x = [array(i, 1000 + i) for i in range(10)]
    keys = [f"dm-{i}" for i in range(10)]
    assert client.dev_mset(keys, x) == []
    for who in (client, other, other):
        y = [np.zeros_like(a) for a in x]
        assert who.dev_mget(keys, y) == []
        assert all((a == b).all() for a, b in zip(x, y))
    assert client.exist([*keys, "none"]) == [True] * 10 + [False]
    assert client.dev_mset(keys, x) == []  # the same memory again
    with pytest.raises(RuntimeError, match="K_OC_KEY_ALREADY_EXIST"):
        other.dev_mset(keys[:1], x[:1])
    with pytest.raises(RuntimeError, match="K_DATA_INCONSISTENCY"):
        client.dev_mset(keys[:1], [x[1]])
    part = np.zeros(300, "u1")
    assert other.dev_mget_into_tensor(keys[:2], part, [ds.CopyRange(500, 10, 100), ds.CopyRange(7, 150, 50)]) == []
    want = np.zeros(300, "u1")
    want[10:110], want[150:200] = x[0][500:600], x[1][7:57]
    assert (part == want).all()
    # some keys are missing, the first of them
    y = [np.zeros_like(a) for a in x[:2]]
    assert other.dev_mget(["none", keys[0]], [y[1], y[0]]) == ["none"]
    assert (y[0] == x[0]).all() and not y[1].any()
    with pytest.raises(RuntimeError, match="K_NOT_FOUND.*none"):
        other.dev_mget(["none"], y[:1])
    assert client.dev_local_delete(keys[:1]) == []
    assert client.dev_delete([*keys[:5], "none"]) == []
    assert client.async_dev_delete(keys[5:]).get() == []
    assert not any(client.exist(keys))
    assert other.dev_mset(keys[:1], x[:1]) == []  # by another client
    assert other.delete(keys[:1]) == []


def test_memory_itself(client, other):
    live = client.fs.empty(100_000)
    live[:] = array(1, live.size)
    assert client.dev_mset(["itself"], [live]) == []
    live[77_777] ^= 0xFF
    y = np.zeros_like(live)
    assert other.dev_mget(["itself"], [y]) == []
    assert (y == live).all()
    client.dev_delete(["itself"])


def test_blobs(hetero):
    pieces = [array(1, 5), array(2, 10), array(3, 3000)]
    assert hetero.dev_mset(["blobs"], lists(pieces)) == []
    into = [np.zeros_like(a) for a in pieces]
    assert hetero.dev_mget(["blobs"], lists(into), 60000) == []
    assert all((a == b).all() for a, b in zip(pieces, into))
    assert hetero.get_meta_info(["none", "blobs"], True) == (["none"], [ds.MetaInfo([]), ds.MetaInfo([5, 10, 3000])])
    with pytest.raises(RuntimeError, match="K_INVALID"):
        hetero.dev_mget(["blobs"], lists(into[:2]), 0)
    half = [np.zeros(2, "u1"), np.zeros(5, "u1"), np.zeros(100, "u1")]
    part = lists(half)
    part[0].set_src_offset(3)
    assert hetero.dev_mget(["blobs"], part, 0) == []
    assert [h.tolist() for h in half] == [p[3 : 3 + h.size].tolist() for p, h in zip(pieces, half)]
    hetero.dev_delete(["blobs"])
    hetero.mset_d2h(["blobs"], lists(pieces))
    for a in into:
        a[:] = 0
    assert hetero.mget_h2d(["blobs"], lists(into), 0) == []
    assert all((a == b).all() for a, b in zip(pieces, into))
    with open(os.path.join(MOUNT, "keys", "blobs"), "rb") as f:
        assert f.read() == b"".join(a.tobytes() for a in pieces)
    hetero.delete(["blobs"])


def test_host_objects(client):
    old = {f"h-{i}": array(i, 2000) for i in range(20)}
    keys = list(old)
    client.mset_d2h(keys[:15], [old[k] for k in keys[:15]])
    changed = [a[::-1].copy() for a in old.values()]
    client.mset_d2h(keys, changed, ds.SetParam(ttl_second=600))  # those that exist stay as they are
    y = [np.zeros(2000, "u1") for _ in keys]
    assert client.mget_h2d(keys, y) == []
    for i, key in enumerate(keys):
        assert (y[i] == (old[key] if i < 15 else changed[i])).all()
    client.delete(keys[3:4])
    assert client.async_mget_h2d(keys, y).get() == [keys[3]]
    future = client.async_mset_d2h(keys[3:4], [changed[3]])
    assert future.get() == [] and future.get() == []
    assert client.mget_h2d(keys[3:4], [y[3]]) == [] and (y[3] == changed[3]).all()
    client.delete(keys)
    waiting = client.async_mget_h2d(["h-late"], [y[0]], 60000)
    with pytest.raises(RuntimeError, match="K_FUTURE_TIMEOUT"):
        waiting.get(0)
    client.mset_d2h(["h-late"], [changed[0]])
    assert waiting.get() == [] and (y[0] == changed[0]).all()
    client.delete(["h-late"])


def test_hand_over(client, other):
    keys, x = [f"p-{i}" for i in range(100)], [array(i, 1 + 731 * i) for i in range(100)]
    y = [np.zeros_like(a) for a in x]
    first = other.dev_subscribe(keys[:50], y[:50])  # either side may be first
    sent = client.dev_publish(keys, x)
    assert client.get_meta_info(keys[99:], True) == ([], [ds.MetaInfo([1 + 731 * 99])])
    again = client.dev_publish(keys[60:62], x[60:62])  # the same
    with pytest.raises(RuntimeError, match="K_FUTURE_TIMEOUT"):
        sent[99].get(0)
    for f in first + other.dev_recv(keys[50:], y[50:]) + sent + again:
        assert f.get() == []
    assert all((a == b).all() for a, b in zip(x, y))
    for round in range(5):
        x[0][:] = round
        sent = client.dev_send(keys[:1], x[:1])
        other.dev_recv(keys[:1], y[:1])[0].get()
        sent[0].get()
        assert y[0][0] == round
    sent = client.dev_publish(["p-shape"], [x[9]])
    with pytest.raises(RuntimeError, match="K_INVALID"):
        other.dev_subscribe(["p-shape"], [y[8]])[0].get()
    client.close()
    with pytest.raises(RuntimeError):
        sent[0].get(1000)


def memories():
    """Return how many pieces of shared memory this process has mapped."""
    with open("/proc/self/maps") as f:
        return f.read().count("memfd:hmcfs")


def test_memory_is_given_back(client, other):
    x, y = array(1, 5000), np.zeros(5000, "u1")
    for i in range(60):
        assert client.dev_mset(["again"], [x]) == client.dev_delete(["again"]) == []
        sent = client.dev_publish(["again"], [x])
        other.dev_subscribe(["again"], [y])[0].get()
        if i % 2:  # the others end with a later call
            sent[0].get()
        if i == 10:
            before = memories()
    assert (x == y).all() and memories() <= before + 2


def test_torch(client):
    torch = pytest.importorskip("torch")
    t = torch.arange(1000, dtype=torch.float32).reshape(10, 100).to(torch.bfloat16)
    client.mset_d2h(["torch"], [t])
    u = torch.zeros_like(t)
    assert client.mget_h2d(["torch"], [u]) == [] and torch.equal(t, u)
    with pytest.raises(TypeError, match="contiguous"):
        client.mset_d2h(["torch"], [t.t()])
    client.delete(["torch"])


def test_many_buffers(hetero):
    x, y = [[array(10 * i + j, 100 + 10 * i + j) for j in range(1 + i)] for i in range(3)], []
    keys = [f"mb-{i}" for i in range(3)]
    hetero.mset_d2h_from_multi_buffers(keys, [[a.ctypes.data for a in row] for row in x], [[a.nbytes for a in row] for row in x])
    assert hetero.batch_is_exist([*keys, "none"]) == [1, 1, 1, 0]
    y = [[np.zeros_like(a) for a in row] for row in x]
    places, sizes = [[a.ctypes.data for a in row] for row in y], [[a.nbytes for a in row] for row in y]
    assert hetero.mget_h2d_from_multi_buffers(["none", *keys], [places[0], *places], [sizes[0], *sizes]) == ["none"]
    assert all((a == b).all() for one, two in zip(x, y) for a, b in zip(one, two))
    for wrong, error, text in (
        ((keys, places[:2], sizes), RuntimeError, "2 lists of addresses"),
        ((keys, places, [sizes[0], sizes[1], sizes[2][:2]]), RuntimeError, "3 addresses, but 2 sizes"),
        ((keys, [1, 2, 3], sizes), TypeError, "list"),
        ((keys, [[1.5]] * 3, sizes), TypeError, "int"),
    ):
        for call in (hetero.mset_d2h_from_multi_buffers, hetero.mget_h2d_from_multi_buffers):
            with pytest.raises(error, match=text):
                call(*wrong)
    hetero.delete(keys)


def test_keys_stay_without_their_client():
    x = array(1, 1000)
    with ds.DsTensorClient(*HOST, 0) as other:
        for end in ("delete", "close"):
            one = ds.DsTensorClient(*HOST, 0)
            one.init()
            assert one.dev_mset(["kept"], [x]) == []
            inner = weakref.ref(one._client)
            del one
            gc.collect()
            y = np.zeros_like(x)
            assert other.dev_mget(["kept"], [y]) == [] and (x == y).all()
            inner().dev_delete(["kept"]) if end == "delete" else inner().close()
            gc.collect()
            assert inner() is None and other.exist(["kept"]) == [False]
        other.delete(["kept"])


def test_wrong_arguments(client, hetero):
    x, frozen = np.zeros(10, "u1"), np.zeros(10, "u1")
    frozen.flags.writeable = False
    for call, error, text in [
        (lambda: client.mset_d2h("key", [x]), TypeError, "list"),
        (lambda: client.mset_d2h([5], [x]), TypeError, "str"),
        (lambda: client.mset_d2h(["k"], x), TypeError, "list"),
        (lambda: client.mset_d2h([], []), RuntimeError, "empty"),
        (lambda: client.mset_d2h(["k", "l"], [x]), RuntimeError, "2 keys, but 1"),
        (lambda: client.mset_d2h(["k", "k"], [x, x]), RuntimeError, "K_INVALID"),
        (lambda: client.mset_d2h(["##&%$#"], [x]), RuntimeError, "K_INVALID"),
        (lambda: client.mset_d2h(["k"], [np.zeros((4, 4))[:, ::2]]), TypeError, "contiguous"),
        (lambda: client.mset_d2h(["k"], [x[:0]]), RuntimeError, "0 bytes"),
        (lambda: client.mset_d2h(["k"], [x], ds.SetParam(write_mode=ds.WriteMode.WRITE_BACK_L2_CACHE)), RuntimeError, "second level"),
        (lambda: client.mset_d2h(["k"], [x], ds.SetParam(ttl_second=-1)), RuntimeError, "K_INVALID"),
        (lambda: client.mget_h2d(["k"], [frozen]), ValueError, "read-only"),
        (lambda: client.mget_h2d(["k"], [x], 1.5), TypeError, "int"),
        (lambda: client.mget_h2d(["k"], [x], -5), RuntimeError, "K_INVALID"),
        (lambda: client.dev_mget_into_tensor(["k"], x, [ds.CopyRange(0, 5, 6)]), RuntimeError, "tensor of 10"),
        (lambda: client.dev_mget_into_tensor(["k"], x, []), RuntimeError, "0 ranges"),
        (lambda: client.get_meta_info(["k"], True), RuntimeError, "can't find objects"),
        (lambda: client.get_meta_info(["k"], 1), TypeError, "bool"),
        (lambda: client.exist([f"{i}" for i in range(10_001)]), RuntimeError, "10000"),
        (lambda: hetero.dev_mset(["k"], lists([x], device=-1)), RuntimeError, "device -1"),
        (lambda: hetero.dev_mset(["k"], lists([])), RuntimeError, "no blobs"),
        (lambda: hetero.dev_mset(["k"], [ds.DeviceBlobList(0, [ds.Blob(0, 5)])]), RuntimeError, "address 0"),
        (lambda: hetero.dev_mset(["k"], [ds.DeviceBlobList(0, [ds.Blob(x.ctypes.data, 0)])]), RuntimeError, "0 bytes"),
        (lambda: hetero.dev_mset(["k"], [ds.DeviceBlobList(0, [ds.Blob(x, 5)], -1)]), RuntimeError, "K_INVALID"),
        (lambda: ds.DsTensorClient(*HOST, 0, token="secret"), RuntimeError, "K_NOT_SUPPORTED: token: .* leave it out"),
        (lambda: ds.DsClient(*HOST, access_key="a", secret_key="b"), RuntimeError, "access_key"),
        (lambda: ds.HeteroClient(*HOST, tokens="", no_such="x"), RuntimeError, "no_such"),
        (lambda: ds.HeteroClient(*HOST, connect_timeout_ms=0), RuntimeError, "connect_timeout_ms"),
        (lambda: ds.HeteroClient(*HOST, connect_timeout_ms="5"), TypeError, "connect_timeout_ms"),
        (lambda: ds.DsTensorClient("192.0.2.1", 31501, 0).init(), RuntimeError, "another host"),
        (lambda: ds.DsTensorClient(*HOST, 0).exist(["k"]), RuntimeError, "init"),
        (lambda: ds.HeteroClient("/nowhere", 1).init(), RuntimeError, "No such file"),
    ]:
        with pytest.raises(error, match=text) as e:
            call()
        assert error is not RuntimeError or isinstance(e.value, (ds.DatasystemError, hmcfs.HmcfsError))
    assert client.exist(["k"]) == [False]
    assert hetero.generate_key("p") == "p" and hetero.generate_key() != hetero.generate_key()


def test_killed_owner(client):
    """What a process has set is lost when it is killed; a copy in host memory stays."""
    code = """
import numpy as np, os
from hmcfs.compat.datasystem import DsTensorClient
c = DsTensorClient("127.0.0.1", 31501, 0); c.init()
x = np.arange(1000, dtype="u1")
c.dev_mset(["gone"], [x]); c.mset_d2h(["stays"], [x]); c.dev_publish(["never"], [x])
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    y = np.zeros(1000, "u1")
    wait_until(lambda: client.exist(["gone", "stays"]) == [False, True])
    assert client.mget_h2d(["stays"], [y]) == [] and (y == np.arange(1000, dtype="u1")).all()
    with pytest.raises(RuntimeError, match="K_NOT_FOUND"):
        client.dev_mget(["gone"], [y])
    client.delete(["gone", "stays"])
