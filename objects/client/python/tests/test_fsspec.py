"""Tests of hmcfs:// with fsspec against the mount of $HMCFS_MOUNT."""

import os

import pytest

import hmcfs

np = pytest.importorskip("numpy")
fsspec = pytest.importorskip("fsspec")
MOUNT = os.environ["HMCFS_MOUNT"]


@pytest.fixture(autouse=True)
def registered():
    from hmcfs._fsspec import HmcfsFileSystem

    fsspec.register_implementation("hmcfs", HmcfsFileSystem, clobber=True)  # a wheel has an entry point


@pytest.fixture
def fs():
    return fsspec.filesystem("hmcfs")


def test_numpy(fs):
    x = np.random.default_rng(1).standard_normal((37, 1009), dtype="f4")
    for url in ("hmcfs://host/a.npy", "hmcfs://sim0/a.npy"):
        with fsspec.open(url, "wb") as f:
            np.save(f, x)
        with fsspec.open(url) as f:
            assert np.array_equal(np.load(f), x)
        assert np.array_equal(np.load(os.path.join(MOUNT, url[8:]), mmap_mode="r"), x)
        fs.rm(url)
    with fsspec.open("hmcfs://host/t.csv", "w") as f:
        np.savetxt(f, x[:5], delimiter=",")
    with fsspec.open("hmcfs://host/t.csv", "r", mount=MOUNT) as f:
        assert np.allclose(np.loadtxt(f, delimiter=","), x[:5])
    fs.rm("host/t.csv")


def test_files(fs):
    data = np.random.default_rng(2).integers(0, 256, 100_003, dtype="u1").tobytes()
    fs.mkdir("hmcfs://host/d/e")
    fs.pipe("host/d/e/one", data)
    assert fs.cat("hmcfs://host/d/e/one") == data and fs.cat_file("host/d/e/one", 1000, 1010) == data[1000:1010]
    with fs.open("host/d/e/one", "ab") as f:
        f.write(b"more")
    with fs.open("host/d/e/one") as f:
        f.seek(-8, 2)
        assert f.read() == data[-4:] + b"more"
    info = fs.info("hmcfs://host/d/e/one")
    assert info["name"] == "host/d/e/one" and info["type"] == "file" and info["size"] == len(data) + 4
    assert abs(fs.modified("host/d/e/one").timestamp() - os.stat(os.path.join(MOUNT, "host/d/e/one")).st_mtime) < 0.001
    assert fs.ls("host/d", detail=False) == ["host/d/e"] and [i["type"] for i in fs.ls("host/d")] == ["directory"]
    assert {"host", "sim0", "keys"} <= {i["name"] for i in fs.ls("hmcfs://")}
    assert fs.ls("host/d/e/one", detail=False) == ["host/d/e/one"]
    fs.cp("host/d/e/one", "sim0/two")
    fs.cp("sim0/two", "sim0/inside")
    assert os.getxattr(os.path.join(MOUNT, "sim0/inside"), "user.hmc.path") == b"d2d"  # it did not pass this process
    fs.mv("sim0/inside", "sim1/three")
    fs.rm("sim0/two")
    assert not fs.exists("sim0/inside") and fs.cat("sim1/three") == data + b"more"
    fs.mkdir("sim1/into")
    fs.mv("sim1/three", "sim1/into")
    assert fs.find("sim1") == ["sim1/into/three"]
    fs.cp("host/d", "sim0/d", recursive=True)
    assert fs.glob("sim0/d/**/o*")[-1].endswith("one") and fs.isdir("sim0/d") and fs.isfile("host/d/e/one")
    fs.rm(["host/d", "sim0/d", "sim1/into"], recursive=True)
    left = fs.ls("host", detail=False) + fs.ls("sim0", detail=False) + fs.ls("sim1", detail=False)
    assert [name for name in left if not name.endswith("/.keys")] == []


def test_keys(fs):
    with hmcfs.connect() as one:
        one.set("fs-key", b"value")
        assert fs.cat("hmcfs://keys/fs-key") == b"value" and fs.info("keys/fs-key")["size"] == 5
        one.delete("fs-key")


def test_wrong_use(fs):
    for call, error, text in [
        (lambda: fs.open("host/none"), FileNotFoundError, "none"),
        (lambda: fs.info("host/none"), FileNotFoundError, "none"),
        (lambda: fs.ls("host/none"), FileNotFoundError, "none"),
        (lambda: fs.rm("host/none"), FileNotFoundError, ""),
        (lambda: fs.rmdir("host/none"), FileNotFoundError, ""),
        (lambda: fs.mkdir("host", create_parents=False), FileExistsError, ""),
        (lambda: fs.mkdir("host/a/b", create_parents=False), FileNotFoundError, ""),
        (lambda: fs.cat("hmcfs://../etc/passwd"), hmcfs.Invalid, "outside"),
        (lambda: fs.cat("host/../../etc/passwd"), hmcfs.Invalid, "outside"),
        (lambda: fs.pipe("nodevice/x", b"x"), OSError, ""),
        (lambda: fsspec.filesystem("hmcfs", mount="/usr"), hmcfs.NotMounted, "not on an hmcfs mount"),
    ]:
        with pytest.raises(error, match=text):
            call()
    with pytest.raises(hmcfs.Unsupported, match="transactions"), fs.transaction:
        fs.open("host/x", "wb")
    assert not fs.exists("host/x") and not fs.exists("hmcfs://host/none")
