package objects_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/opencl"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/tests/keep"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/memkv"
	"github.com/hmcfs/hmcfs/transport"
)

// benchStore is a store for a benchmark, with or without a keeper.
type benchStore struct {
	store *objects.Store
	root  objects.Ino
	file  *objects.File
	files int
	at    uint64
	spent []time.Duration
}

func newBenchStore(b *testing.B, dev devices.Device, keeper devices.DescriptorStore) *benchStore {
	b.Helper()
	meta, err := metadata.Open(b.Context(), memkv.New(), metadata.Options{KeepNameless: keeper != nil})
	if err != nil {
		b.Fatal(err)
	}
	engine, err := transport.New(transport.Options{})
	if err != nil {
		b.Fatal(err)
	}
	s, err := objects.Open(b.Context(), objects.Options{Meta: meta, Engine: engine, Devices: []devices.Device{dev}, Keeper: keeper})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx := context.Background()
		for _, err := range []error{s.Close(ctx, objects.CloseOptions{}), engine.Close(), meta.Close(), dev.Close()} {
			if err != nil {
				b.Error(err)
			}
		}
	})
	a, err := s.Lookup(b.Context(), metadata.RootIno, string(dev.Info().Name))
	if err != nil {
		b.Fatal(err)
	}
	return &benchStore{store: s, root: a.Ino}
}

// fresh replaces the file by an empty one.
func (s *benchStore) fresh(b *testing.B) {
	b.Helper()
	ctx := b.Context()
	if s.file != nil {
		if err := s.file.Close(ctx); err != nil {
			b.Fatal(err)
		}
		if err := s.store.Unlink(ctx, s.root, fmt.Sprint("f", s.files)); err != nil {
			b.Fatal(err)
		}
	}
	s.files++
	a, err := s.store.Create(ctx, s.root, fmt.Sprint("f", s.files), metadata.Node{Mode: metadata.TypeRegular | 0o644})
	if err != nil {
		b.Fatal(err)
	}
	if s.file, err = s.store.OpenFile(ctx, a.Ino); err != nil {
		b.Fatal(err)
	}
	s.at = 0
}

const benchFile = 64 << 20

// benchOps are the measured operations, on n bytes.
var benchOps = map[string]func(b *testing.B, s *benchStore, p []byte){
	"append": func(b *testing.B, s *benchStore, p []byte) {
		b.Helper()
		if s.at+uint64(len(p)) > benchFile {
			s.fresh(b)
		}
		s.write(b, p)
	},
	"overwrite": func(b *testing.B, s *benchStore, p []byte) {
		b.Helper()
		if s.at+uint64(len(p)) > benchFile {
			s.at = 0
		}
		s.write(b, p)
	},
	"read": func(b *testing.B, s *benchStore, p []byte) {
		b.Helper()
		if s.at+uint64(len(p)) > benchFile {
			s.at = 0
		}
		if _, err := s.file.ReadAt(b.Context(), p, s.at); err != nil {
			b.Fatal(err)
		}
		s.at += uint64(len(p))
	},
	"make": func(b *testing.B, s *benchStore, p []byte) {
		b.Helper()
		s.fresh(b)
		s.write(b, p)
	},
}

func (s *benchStore) write(b *testing.B, p []byte) {
	b.Helper()
	if _, err := s.file.WriteAt(b.Context(), p, objects.Write{Off: s.at}); err != nil {
		b.Fatal(err)
	}
	s.at += uint64(len(p))
}

// BenchmarkKept measures operations on memory that ends with the process and on memory
// that is kept, in turns; "ratio" is the speed of the second by that of the first. All
// figures are medians: the machine may be busy.
func BenchmarkKept(b *testing.B) {
	for _, family := range []string{"sim", "opencl"} {
		for _, name := range []string{"append", "overwrite", "read", "make"} {
			for _, n := range []int{4 << 10, 1 << 20} {
				b.Run(fmt.Sprintf("%s/%s/%d", family, name, n), func(b *testing.B) {
					keeper := &keep.Store{}
					pair := []*benchStore{
						newBenchStore(b, benchDevice(b, family), nil), newBenchStore(b, benchDevice(b, family), keeper),
					}
					benchKept(b, pair, benchOps[name], kit.Bytes(1, 0, n))
				})
			}
		}
	}
}

func benchKept(b *testing.B, pair []*benchStore, op func(*testing.B, *benchStore, []byte), p []byte) {
	b.Helper()
	for _, s := range pair {
		s.fresh(b)
		for s.at < benchFile {
			s.write(b, p)
		}
	}
	b.SetBytes(int64(2 * len(p)))
	for i := 0; b.Loop(); i++ {
		for turn := range pair {
			s := pair[(turn+i)%2]
			begin := time.Now()
			op(b, s, p)
			s.spent = append(s.spent, time.Since(begin))
		}
	}
	b.ReportMetric(float64(median(pair[0].spent))/float64(median(pair[1].spent)), "ratio")
	b.ReportMetric(float64(median(pair[0].spent)), "plain-ns")
	b.ReportMetric(float64(median(pair[1].spent)), "kept-ns")
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func benchDevice(b *testing.B, family string) devices.Device {
	b.Helper()
	if family == "sim" {
		return sim.New(0, sim.Params{Size: devices.GiB})
	}
	spec, err := devices.ParseSpec("opencl:0,size=1GiB")
	if err != nil {
		b.Fatal(err)
	}
	dev, err := opencl.NewDriver(opencl.Options{}).Open(b.Context(), spec)
	if err != nil {
		b.Skip(err)
	}
	return dev
}
