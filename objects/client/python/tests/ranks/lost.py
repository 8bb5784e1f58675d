"""Rank 2 of three loses its process, or its server: the others learn of it and go on. Run by hmcfs run."""

import os
import signal
import sys

import numpy as np

import hmcfs

comm = hmcfs.init()
x = np.arange(1_000_000.0)


def fails(error, call, word):
    try:
        call()
    except error as e:
        assert word in str(e), str(e)
        return
    raise AssertionError(f"no {error.__name__}")


def lose():
    shared = comm.empty(1000)
    waits = comm.irecv(np.empty(10), 0, tag=4)
    if sys.argv[1] == "rank":
        os.kill(os.getpid(), signal.SIGKILL)
    os.kill(comm._server.pid, signal.SIGKILL)
    fails(hmcfs.Disconnected, waits.result, "hmcfs rank-server has ended")
    fails(hmcfs.Disconnected, comm.barrier, "hmcfs rank-server")
    fails(hmcfs.Disconnected, lambda: comm.send(x, 0), "hmcfs rank-server")
    shared[:] = 1  # its memory stays
    assert shared.sum() == 1000


def go_on():
    comm.empty(1000)
    fails(hmcfs.RankLost, lambda: comm.recv(x, 2), "rank 2")
    fails(hmcfs.RankLost, lambda: comm.send(x, 2), "rank 2")
    fails(hmcfs.RankLost, lambda: comm.all_reduce(x), "[2]")
    fails(hmcfs.RankLost, lambda: comm.recv_tag(2), "rank 2")
    if comm.rank == 0:
        comm.send(np.arange(1000), 1)
    else:
        assert (comm.recv(np.empty(1000, "i8"), 0) == np.arange(1000)).all()
    print("went on", flush=True)


lose() if comm.rank == 2 else go_on()
