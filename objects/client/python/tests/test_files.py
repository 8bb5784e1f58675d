"""Tests of files over the session of a daemon, as without a mount; the mount of $HMCFS_MOUNT shows what they are."""

import errno
import os
import pickle
import stat
import threading

import pytest

import hmcfs
from test_arrays import nothing_left  # noqa: F401 - nothing_left is a fixture
from test_hmcfs import array, content, path

np = pytest.importorskip("numpy")


@pytest.fixture
def fs():
    with hmcfs.connect() as mount, hmcfs.connect(mount.socket_path) as one:
        assert not one._has_mount
        yield one


def names(fs, folder):
    return [name for name in fs.listdir(folder) if name != ".keys"]


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, 9_000_001])
def test_read_and_write(fs, size):
    data = content(size, size)
    for device in ("host", "sim0"):
        fs.write(f"{device}/a{size}", data)
        with open(path(f"{device}/a{size}"), "rb") as f:
            assert f.read() == data
        assert fs.read(f"/{device}//a{size}") == data
        fs.write(f"{device}/a{size}", data[::-1][: size // 2])  # which is shorter
        assert fs.read(f"{device}/a{size}") == data[::-1][: size // 2]
        fs.remove(f"{device}/a{size}")


def test_arrays_are_written(fs):
    x = array(1, (300, 700))
    fs.write("sim0/a", x)
    assert fs.read("sim0/a") == x.tobytes()
    y = fs.empty((300, 700), "f4")  # which takes one call
    y[:] = x
    fs.write("sim0/a", y[100:])
    assert fs.read("sim0/a") == x[100:].tobytes()
    with pytest.raises(hmcfs.Invalid, match="contiguous"):
        fs.write("sim0/a", x.T)
    fs.remove("sim0/a")


def test_names_and_descriptions(fs):
    assert {"host", "keys", "sim0", "sim1"} <= set(fs.listdir()) and fs.listdir("/") == fs.listdir(".")
    old = os.umask(0o027)
    try:
        fs.mkdir("host/d/e/f", parents=True)
        fs.write("host/d/e/one", b"1234567")
    finally:
        os.umask(old)
    fs.mkdir("host/d/e", parents=True, exist_ok=True)
    for name, mode in (("host/d/e/one", stat.S_IFREG | 0o640), ("host/d/e", stat.S_IFDIR | 0o750)):
        there, here = fs.stat(name), os.stat(path(name))
        assert there.st_mode == here.st_mode == mode
        for field in "st_ino st_nlink st_uid st_gid st_size st_mtime st_mtime_ns st_ctime_ns st_blocks st_blksize".split():
            assert getattr(there, field) == getattr(here, field), field
    many = [f"{i:05d}-ä" + "x" * 100 for i in range(300)]
    for name in many:
        open(path("host/d/e/f/" + name), "wb").close()
    assert fs.listdir("host/d/e/f") == many
    for name in many:
        fs.remove("host/d/e/f/" + name)
    fs.rename("host/d/e/one", "sim0/moved")
    assert fs.listdir("host/d/e") == ["f"] and fs.read("sim0/moved") == b"1234567"
    fs.write("sim0/over", b"old")
    fs.rename("sim0/moved", "sim0/over")
    assert fs.read("sim0/over") == b"1234567"
    for name in ("sim0/over", "host/d/e/f", "host/d/e", "host/d"):
        fs.remove(name)
    assert names(fs, "host") == names(fs, "sim0") == []


def test_copy_and_attributes(fs):
    data = content(3, 300_007)
    fs.write("host/a", data)
    fs.set_attribute("host/a", "user.mine", "ä")
    fs.set_attribute("host/a", "user.hmc.dtype", b"uint8")
    assert fs.attributes("host/a") == {"user.mine": "ä".encode(), "user.hmc.dtype": b"uint8"}
    fs.set_attribute("host/a", "user.mine", None)
    assert list(fs.attributes("host/a")) == ["user.hmc.dtype"]
    fs.copy("host/a", "sim0")
    fs.copy("sim0/a", "sim0/b")
    assert fs.read("sim0/a") == fs.read("sim0/b") == data
    assert fs.attribute("sim0/b", "user.hmc.path") == b"d2d" and fs.attribute("sim0/b", "user.hmc.device") == b"sim0"
    for name in ("host/a", "sim0/a", "sim0/b"):
        fs.remove(name)


def test_open_without_a_mount(fs):
    x = np.arange(600, dtype="f4").reshape(20, 30)
    for device in ("host", "sim0"):
        np.save(path(f"{device}/files.npy"), x)
        os.symlink("files.npy", path(f"{device}/files-link"))
        for name in ("files.npy", "files-link"):
            with fs.open(f"{device}/{name}") as f:
                assert (f.dtype, f.shape, f.device, f.state) == ("float32", x.shape, device, "live")
                shared = f.numpy()
                assert np.array_equal(shared, x)
        x[3, 4] = shared[3, 4] = 7
        assert np.array_equal(np.load(path(f"{device}/files.npy")), x)
        fs.remove(f"{device}/files-link")
        fs.remove(f"{device}/files.npy")
        assert shared[3, 4] == 7
    hmcfs.save_file({"a": x, "b": x[:2]}, path("sim1/files.safetensors"))
    assert np.array_equal(dict(fs.open("sim1/files.safetensors").tensors())["b"], x[:2])
    with fs.open("sim1/files.safetensors.tensors/b.npy") as f:
        b = f.numpy()
        assert (f.dtype, f.shape) == ("float32", (2, 30)) and np.array_equal(b, x[:2])
    b[1, 5] = 9
    assert fs.read("sim1/files.safetensors.tensors/b.npy")[-b.nbytes :] == b.tobytes()
    assert dict(fs.open("sim1/files.safetensors").tensors())["b"][1, 5] == 9
    for name, text in (("sim1/files.safetensors.tensors/c.npy", "c.npy"), ("sim1/files.safetensors.tensors", "tensors")):
        with pytest.raises((hmcfs.NotFound, IsADirectoryError), match=text):
            fs.open(name)
    with pytest.raises(hmcfs.Exists, match="remove it"):
        fs.bind("sim1/files.safetensors.tensors/b.npy", fs.empty(5))
    fs.write("sim1/empty", b"")
    assert fs.open("sim1/empty").nbytes == 0
    for name in ("sim1/empty", "sim1/files.safetensors"):
        fs.remove(name)


def test_bind_without_a_mount(fs):
    x = fs.empty((10, 20), "f4")
    x[:] = array(1, x.shape)
    name = path("host/live")
    with fs.bind("host/live", x) as bound, fs.bind("sim0/live", x[2:4]):
        assert bound is x
        assert [fs.attribute("host/live", f"user.hmc.{n}") for n in ("state", "dtype", "shape")] == [b"bound", b"float32", b"10,20"]
        assert open(name, "rb").read() == fs.read("host/live") == x.tobytes() and fs.read("sim0/live") == x[2:4].tobytes()
        with open(name, "r+b") as f:
            f.write(content(2, 800))
        assert x.tobytes() == content(2, 800)
        for held, error, text in (("host/live", hmcfs.Exists, "remove it"), ("nowhere/live", hmcfs.NotFound, "nowhere"), ("keys/live", hmcfs.HmcfsError, "keys/live")):
            with pytest.raises(error, match=text):
                fs.bind(held, x)
    assert names(fs, "host") == names(fs, "sim0") == []
    held = fs.bind("host/live", x)
    fs.remove("host/live")
    fs.write("host/live", b"another's")
    held.close()
    assert fs.read("host/live") == b"another's"
    fs.remove("host/live")
    lost = fs.bind("host/live", x)
    fs.close()  # the memory is still this process's
    assert fs.read("host/live") == x.tobytes()
    lost.close()
    assert names(fs, "host") == []


def test_fsspec_without_a_mount(fs):
    pytest.importorskip("fsspec")
    from hmcfs._fsspec import HmcfsFileSystem

    one, data = HmcfsFileSystem(fs.socket_path), content(5, 2_500_003)
    one.pipe("host/d/a", data) if one.exists("host/d") else (one.mkdir("host/d"), one.pipe("host/d/a", data))
    with one.open("host/d/a", "ab") as f:
        f.write(b"more")
    with one.open("host/d/a", "r+b") as f:
        f.seek(1000)
        f.write(b"0123456789")
        f.seek(-4, 2)
        assert f.read() == b"more" and f.tell() == len(data) + 4
    want = data[:1000] + b"0123456789" + data[1010:] + b"more"
    assert one.cat("hmcfs://host/d/a") == want and one.cat_file("host/d/a", 995, 1020) == want[995:1020]
    with one.open("host/d/t", "w") as f:
        f.write("a\nä\n")
    with one.open("host/d/t", "r") as f:
        assert list(f) == ["a\n", "ä\n"]
    with pytest.raises(FileExistsError):
        one.open("host/d/t", "xb")
    one.mv("host/d/t", "sim0/t")
    assert one.find("host/d") == ["host/d/a"] and one.isfile("sim0/t")
    with pytest.raises(NotADirectoryError):
        one.rmdir("sim0/t")
    with pytest.warns(ResourceWarning, match="not closed"):
        one.open("sim0/t", "r+b").write(b"lost")
    assert one.cat("sim0/t") == "a\nä\n".encode()
    one.rm(["host/d", "sim0/t"], recursive=True)


@pytest.mark.parametrize("mounted", [False, True])
def test_wrong_use(fs, mounted):
    if mounted:
        fs = hmcfs.connect()
    fs.write("host/a", b"x")
    for call, error, number, text in [
        (lambda: fs.read("host/none"), (hmcfs.NotFound, FileNotFoundError, KeyError), errno.ENOENT, "host/none'$"),
        (lambda: fs.open("host/none"), (hmcfs.NotFound, FileNotFoundError), errno.ENOENT, "host/none"),
        (lambda: fs.open("host"), (hmcfs.HmcfsError, IsADirectoryError), errno.EISDIR, "host"),
        (lambda: fs.write("host", b"x"), (hmcfs.HmcfsError, IsADirectoryError), errno.EISDIR, "host"),
        (lambda: fs.write("none/a", b"x"), (hmcfs.NotFound, FileNotFoundError), errno.ENOENT, "none/a"),
        (lambda: fs.write("host/" + "x" * 256, b""), (hmcfs.Invalid, OSError), errno.ENAMETOOLONG, "xxx"),
        (lambda: fs.write("host/" + "x/" * 3000, b""), (hmcfs.Invalid, OSError), errno.ENAMETOOLONG, "x/x"),
        (lambda: fs.write("host/a\0b", b""), (hmcfs.Invalid, OSError), errno.EINVAL, "host/a"),
        (lambda: fs.listdir("host/a"), (hmcfs.HmcfsError, NotADirectoryError), errno.ENOTDIR, "host/a"),
        (lambda: fs.mkdir("host/a"), (hmcfs.Exists, FileExistsError), errno.EEXIST, "host/a"),
        (lambda: fs.mkdir("host/a", exist_ok=True), (hmcfs.Exists, FileExistsError), errno.EEXIST, "host/a"),
        (lambda: fs.mkdir("host/b/c"), (hmcfs.NotFound, FileNotFoundError), errno.ENOENT, "host/b/c"),
        (lambda: fs.remove("host"), (hmcfs.NotAuthorized, PermissionError), errno.EPERM, "host"),
        (lambda: fs.rename("host/none", "host/b"), (hmcfs.NotFound, FileNotFoundError), errno.ENOENT, "host/none"),
        (lambda: fs.copy("host/none", "host/b"), (hmcfs.NotFound, FileNotFoundError), errno.ENOENT, "host/none"),
        (lambda: fs.copy("host/a", "none/b"), (hmcfs.NotFound, FileNotFoundError), errno.ENOENT, "'host/a' -> 'none/b'"),
        (lambda: fs.copy("host/a", "host"), hmcfs.Invalid, None, "same file"),
        (lambda: fs.attribute("host/a", "user.none"), (hmcfs.NotFound, OSError), errno.ENODATA, "host/a"),
        (lambda: fs.set_attribute("host/a", "user.hmc.device", "x"), (hmcfs.Unsupported, OSError), errno.EOPNOTSUPP, "host/a"),
        (lambda: fs.stat("../etc/passwd"), hmcfs.Invalid, None, "outside"),
        (lambda: fs.read("host/../../x"), hmcfs.Invalid, None, "outside"),
        (lambda: fs.write("host/b", 5), hmcfs.Invalid, None, "host/b: int has no buffer"),
        (lambda: fs.read(5), TypeError, None, "PathLike"),
    ]:
        with pytest.raises(Exception, match=text) as e:
            call()
        for one in error if isinstance(error, tuple) else (error,):
            assert isinstance(e.value, one), (e.value, one)
        assert getattr(e.value, "errno", None) == number
        again = pickle.loads(pickle.dumps(e.value))
        assert str(again) == str(e.value) and again.__class__ is e.value.__class__
    fs.remove("host/a")
    assert names(fs, "host") == names(fs, "sim0") == []


def test_threads_and_the_end_of_the_session(fs):
    failed = []

    def work(number):
        try:
            for i in range(20):
                data = content(number * 100 + i, 50_000 + number)
                fs.write(f"sim0/{number}", data)
                assert fs.read(f"sim0/{number}") == data
            fs.remove(f"sim0/{number}")
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed
    fs.write("sim0/a", b"123")
    f = fs._tree.open("sim0/a")
    assert f.read(2) == b"12"
    ended = fs._open()[0]
    fs.close()
    with pytest.raises(hmcfs.Closed):
        f.read(1)
    with pytest.raises(hmcfs.Closed):
        ended.file("stat", b"sim0/a")
    assert fs.read("sim0/a") == b"123"  # by a new session
    fs.remove("sim0/a")
    with pytest.raises(hmcfs.Closed):
        f.close()
