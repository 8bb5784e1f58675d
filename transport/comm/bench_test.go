package comm_test

import (
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/conformance/commtest"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
)

// BenchmarkWays measures every transport as the issue requires, between two ranks
// of this process.
func BenchmarkWays(b *testing.B) {
	for name, w := range map[string]commtest.Way{
		"shm":  {Address: socket, Transport: comm.SHM},
		"unix": {Address: socket, Transport: comm.TCP, Options: only(comm.TCP)},
		"tcp":  {Address: func(testing.TB) control.Address { return loopback(b) }, Transport: comm.TCP},
	} {
		b.Run(name, func(b *testing.B) { commtest.Benchmark(b, w) })
	}
}

// BenchmarkAgainstMemcpy alternates puts of 64 MiB through shared memory with
// copies of the same size between two mappings of shared memory, and reports the
// ratio of the medians: 1 is as fast as a copy.
func BenchmarkAgainstMemcpy(b *testing.B) {
	const size = 64 << 20
	dst, src := shared(b, size), shared(b, size)
	var copies, puts []time.Duration
	commtest.Put(b, commtest.Way{Address: socket, Transport: comm.SHM}, size, func(put func()) {
		for b.Loop() {
			begin := time.Now()
			copy(dst, src)
			middle := time.Now()
			put()
			copies, puts = append(copies, middle.Sub(begin)), append(puts, time.Since(middle))
		}
	})
	slices.Sort(copies)
	slices.Sort(puts)
	b.ReportMetric(float64(copies[len(copies)/2])/float64(puts[len(puts)/2]), "of-memcpy")
}

// shared returns n bytes of a memfd, all of them allocated.
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
