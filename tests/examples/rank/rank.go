package rank

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Main runs an example as a rank, and ends the process.
func Main(body func(ctx context.Context, r *Rank) error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := run(ctx, body)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, body func(ctx context.Context, r *Rank) error) (err error) {
	r, err := Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return body(ctx, r)
}

// Rank is a process of a job. Its methods are called by one goroutine.
type Rank struct {
	Rank  int
	World int
	Root  int
	// Table registers memory.
	Table *region.Table

	engine  *transport.Engine
	comm    *comm.Communicator
	domains *domain.Domains
	// undo ends what was opened, the last first.
	undo []func() error
}

// Open reads the environment. Ranks that send call Join too.
func Open() (*Rank, error) {
	r := &Rank{}
	for name, into := range map[string]*int{"HMCFS_RANK": &r.Rank, "HMCFS_WORLD": &r.World, "HMCFS_ROOT": &r.Root} {
		var err error
		if *into, err = strconv.Atoi(os.Getenv(name)); err != nil {
			return nil, fmt.Errorf("%s: %w; start this by hmcfs run", name, err)
		}
	}
	var err error
	if r.engine, err = transport.New(transport.Options{}); err != nil {
		return nil, err
	}
	r.undo = append(r.undo, r.engine.Close)
	r.Table = region.NewTable(r.engine)
	return r, nil
}

// Close ends everything.
func (r *Rank) Close() error {
	var errs []error
	for _, undo := range slices.Backward(r.undo) {
		errs = append(errs, undo())
	}
	return errors.Join(errs...)
}

// Join makes the domain of all ranks. Each rank listens where the book says,
// and those above it connect.
func (r *Rank) Join(ctx context.Context) (*domain.Comm, error) {
	secret, err := os.ReadFile(os.Getenv("HMCFS_SECRET_FILE"))
	if err != nil {
		return nil, err
	}
	book := map[wire.Rank]control.Address{}
	var ranks []wire.Rank
	for i, text := range strings.Split(os.Getenv("HMCFS_BOOK"), ",") {
		if book[wire.Rank(i)], err = control.ParseAddress(text); err != nil {
			return nil, err
		}
		ranks = append(ranks, wire.Rank(i))
	}
	o := comm.Options{Rank: wire.Rank(r.Rank), Secret: []byte(strings.TrimSpace(string(secret))), Engine: r.engine}
	if t := os.Getenv("HMCFS_TRANSPORT"); t != "" {
		o.Transports = []comm.Transport{comm.Transport(t)}
	}
	if r.comm, err = comm.New(o); err != nil {
		return nil, err
	}
	r.undo = append(r.undo, r.comm.Close)
	if r.domains, err = domain.New(r.comm, domain.Options{Book: book}); err != nil {
		return nil, err
	}
	r.undo = append(r.undo, r.domains.Close)
	if _, err = r.comm.Listen(ctx, book[wire.Rank(r.Rank)]); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return r.domains.NewComm(ctx, "world", ranks)
}

// Vector is some float32 of registered memory.
type Vector struct {
	domain.View
	p []byte
}

// Floats takes memory for n float32.
func (r *Rank) Floats(ctx context.Context, n int) (*Vector, error) {
	b, err := r.Table.Alloc(devices.Size(4 * n))
	if err != nil {
		return nil, err
	}
	r.undo = append(r.undo, func() error { return b.Close(context.WithoutCancel(ctx)) })
	v, err := domain.NewView(b, 0, elem.Float32, uint64(n))
	return &Vector{View: v, p: b.Host(0, devices.Size(4*n))}, err
}

// Len is how many there are.
func (v *Vector) Len() int { return len(v.p) / 4 }

// At is one of them.
func (v *Vector) At(i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(v.p[4*i:]))
}

// Set sets one of them.
func (v *Vector) Set(i int, x float32) {
	binary.LittleEndian.PutUint32(v.p[4*i:], math.Float32bits(x))
}

// Bytes are the vector as it is in memory.
func (v *Vector) Bytes() []byte { return v.p }

// String is all of them.
func (v *Vector) String() string {
	texts := make([]string, v.Len())
	for i := range texts {
		texts[i] = strconv.FormatFloat(float64(v.At(i)), 'g', -1, 32)
	}
	return strings.Join(texts, " ")
}

// Window maps the window of a rank.
func (r *Rank) Window(of int) ([]byte, error) {
	return r.mapFile(filepath.Join(os.Getenv("HMCFS_WINDOWS"), strconv.Itoa(of)))
}

func (r *Rank) mapFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the map stays
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	p, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	r.undo = append(r.undo, func() error { return unix.Munmap(p) })
	return p, nil
}

// Number is a number of the environment, such as HMCFS_BUFFER_INPUT_OFFSET.
func Number(name string) (int, error) {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return n, nil
}

// Buffer has the bytes of one of our buffers, by its name in capitals. Without
// such a buffer, which is so without a config, there are none.
func (r *Rank) Buffer(name string) ([]byte, error) {
	path := os.Getenv("HMCFS_BUFFER_" + name)
	if path == "" {
		return nil, nil
	}
	off, err := Number("HMCFS_BUFFER_" + name + "_OFFSET")
	if err != nil {
		return nil, err
	}
	n, err := Number("HMCFS_BUFFER_" + name + "_BYTES")
	if err != nil {
		return nil, err
	}
	p, err := r.mapFile(path)
	if err != nil {
		return nil, err
	}
	if len(p) < off+n {
		return nil, fmt.Errorf("%s has %d bytes, not %d", path, len(p), off+n)
	}
	return p[off : off+n], nil
}
