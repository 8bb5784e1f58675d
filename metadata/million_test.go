package metadata_test

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata"
)

const (
	million      = 1_000_000
	openBudget   = 2 * time.Second
	memoryBudget = 600 // bytes of process memory for each file
)

// residentBytes returns the process's resident memory, mapped files included.
func residentBytes(b *testing.B) int64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip("no /proc")
	}
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("VmRSS:")); ok {
			kb, err := strconv.ParseInt(string(bytes.Fields(rest)[0]), 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return kb << 10
		}
	}
	b.Fatal("no VmRSS")
	return 0
}

// BenchmarkMillion creates a million files with a key and a mapping each, and measures how
// long it takes to open the store, how much memory each file takes while idle and after
// some lookups, and the cost of those.
func BenchmarkMillion(b *testing.B) {
	if testing.Short() {
		b.Skip("takes half a minute")
	}
	dir := b.TempDir()
	fillMillion(b, dir)
	b.ResetTimer()
	for range b.N {
		openMillion(b, dir)
	}
}

func openMillion(b *testing.B, dir string) {
	b.Helper()
	runtime.GC()
	debug.FreeOSMemory()
	before := residentBytes(b)
	begin := time.Now()
	s, err := metadata.Open(b.Context(), openBadger(b, dir), metadata.Options{})
	if err != nil {
		b.Fatal(err)
	}
	took := time.Since(begin)
	b.StopTimer()
	debug.FreeOSMemory()
	each := float64(residentBytes(b)-before) / million
	b.ReportMetric(float64(took.Microseconds())/1000, "open-ms")
	b.ReportMetric(each, "idle-bytes/file")
	if took > openBudget {
		b.Errorf("opening took %v, more than %v", took, openBudget)
	}
	if each > memoryBudget {
		b.Errorf("each file takes %.0f bytes, more than %d", each, memoryBudget)
	}
	lookupMillion(b, s)
	b.ReportMetric(float64(residentBytes(b)-before)/million, "used-bytes/file")
	if err := s.Close(); err != nil {
		b.Error(err)
	}
	b.StartTimer()
}

func fillMillion(b *testing.B, dir string) {
	b.Helper()
	ctx := b.Context()
	s, err := metadata.Open(ctx, openBadger(b, dir), metadata.Options{})
	if err != nil {
		b.Fatal(err)
	}
	dev, err := s.EnsureDevice(ctx, "sim0", 0o755, 0, 0)
	if err != nil {
		b.Fatal(err)
	}
	const batch = 500
	files := make([]metadata.BulkFile, batch)
	for i := 0; i < million; i += batch {
		for j := range files {
			files[j] = metadata.BulkFile{
				Name: fmt.Sprint("tensor-", i+j), Key: fmt.Sprint("model:layer.", i+j),
				Map: metadata.Mapping{Len: 1 << 20, Device: "sim0", Epoch: 7, Off: uint64(i+j) << 20},
			}
		}
		if err := metadata.BulkCreate(ctx, s, dev.Ino, benchFile(), files); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}

func lookupMillion(b *testing.B, s *metadata.Store) {
	b.Helper()
	dev, err := s.Lookup(b.Context(), metadata.RootIno, "sim0")
	if err != nil || dev.Size != million {
		b.Fatalf("the device is %+v, %v", dev, err)
	}
	begin := time.Now()
	const lookups = 20_000
	for i := range lookups {
		n := i * 7919 % million
		in, err := s.Lookup(b.Context(), dev.Ino, fmt.Sprint("tensor-", n))
		if err != nil || in.Key != fmt.Sprint("model:layer.", n) {
			b.Fatalf("tensor-%d is %+v, %v", n, in, err)
		}
	}
	b.ReportMetric(float64(time.Since(begin).Nanoseconds())/lookups, "ns/lookup")
}
