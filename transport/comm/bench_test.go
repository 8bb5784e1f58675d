package comm_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/transporttest/commtest"
)

// BenchmarkWays measures what the issue asks of each way, between two ranks of
// this process.
func BenchmarkWays(b *testing.B) {
	for name, w := range map[string]commtest.Way{
		"shm":  {Address: socket, Transport: comm.SHM},
		"unix": {Address: socket, Transport: comm.TCP, Options: only(comm.TCP)},
		"tcp":  {Address: func(testing.TB) control.Address { return loopback(b) }, Transport: comm.TCP},
	} {
		b.Run(name, func(b *testing.B) { commtest.Benchmark(b, w) })
	}
}

// BenchmarkMemcpy copies 64 MiB between two mappings of shared memory: what a
// put through shared memory can reach at most.
func BenchmarkMemcpy(b *testing.B) {
	const size = 64 << 20
	dst, src := shared(b, size), shared(b, size)
	b.SetBytes(size)
	for b.Loop() {
		copy(dst, src)
	}
}

// shared is n bytes of a memfd, all of them there.
func shared(b *testing.B, n int) []byte {
	b.Helper()
	fd, err := unix.MemfdCreate("bench", unix.MFD_CLOEXEC)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err = unix.Ftruncate(fd, int64(n)); err != nil {
		b.Fatal(err)
	}
	p, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = unix.Munmap(p) })
	return p
}
