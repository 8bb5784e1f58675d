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

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/job"
)

// Main runs an example as a rank, and exits.
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

// Rank is a process of a job. Its methods must be called by one goroutine.
type Rank struct {
	Rank  int
	World int
	Root  int
	// Job is set by Join.
	Job *job.Job

	// undo holds the functions that release resources; they run in reverse order.
	undo []func() error
}

// Open reads the environment. Ranks that send must also call Join.
func Open() (*Rank, error) {
	r := &Rank{}
	for name, into := range map[string]*int{"HMCFS_RANK": &r.Rank, "HMCFS_WORLD": &r.World, "HMCFS_ROOT": &r.Root} {
		var err error
		if name == "HMCFS_ROOT" && os.Getenv(name) == "" {
			continue // it is 0 if the ranks are not started by hmcfs run
		}
		if *into, err = Number(name); err != nil {
			return nil, fmt.Errorf("%w; start this by hmcfs run", err)
		}
	}
	return r, nil
}

// Close releases everything.
func (r *Rank) Close() error {
	var errs []error
	for _, undo := range slices.Backward(r.undo) {
		errs = append(errs, undo())
	}
	return errors.Join(errs...)
}

// Join connects the rank with the others, and returns the domain of all ranks.
func (r *Rank) Join(ctx context.Context) (*domain.Comm, error) {
	o, err := job.FromEnv(os.Getenv)
	if err != nil {
		return nil, err
	}
	if r.Job, err = job.Init(ctx, o); err != nil {
		return nil, err
	}
	r.undo = append(r.undo, r.Job.Close)
	return r.Job.World().Comm(), nil
}

// Vector is a vector of float32 in registered memory.
type Vector struct {
	domain.View
	p []byte
}

// Floats allocates memory for n float32, after Join.
func (r *Rank) Floats(ctx context.Context, n int) (*Vector, error) {
	b, err := r.Job.Table().Alloc(devices.Size(4 * n))
	if err != nil {
		return nil, err
	}
	r.undo = append(r.undo, func() error { return b.Close(context.WithoutCancel(ctx)) })
	v, err := domain.NewView(b, 0, elem.Float32, uint64(n))
	return &Vector{View: v, p: b.Host(0, devices.Size(4*n))}, err
}

// Len returns the number of elements.
func (v *Vector) Len() int { return len(v.p) / 4 }

// At returns an element.
func (v *Vector) At(i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(v.p[4*i:]))
}

// Set sets an element.
func (v *Vector) Set(i int, x float32) {
	binary.LittleEndian.PutUint32(v.p[4*i:], math.Float32bits(x))
}

// Bytes returns the vector's memory.
func (v *Vector) Bytes() []byte { return v.p }

// String returns all elements.
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

// Gather returns the windows of all ranks at the root, and nothing elsewhere. All ranks must
// call it: the windows of other hosts are not available as files here, and are fetched.
func (r *Rank) Gather(ctx context.Context) ([][]byte, error) {
	out := make([][]byte, r.World)
	if os.Getenv("HMCFS_LOCAL_WORLD") != os.Getenv("HMCFS_WORLD") {
		return out, r.fetch(ctx, out)
	}
	if r.Rank != r.Root {
		return nil, nil
	}
	var err error
	for peer := range out {
		if out[peer], err = r.Window(peer); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// fetch implements Gather for several hosts: each rank exposes a copy of its window to the
// others for the duration of the call.
func (r *Rank) fetch(ctx context.Context, out [][]byte) error {
	own, err := r.Window(r.Rank)
	if err != nil {
		return err
	}
	if _, err = r.Join(ctx); err != nil {
		return err
	}
	w, err := r.Job.World().AllocWindows(ctx, devices.Size(len(own)))
	if err != nil {
		return err
	}
	copy(w.Local(), own)
	if err = r.Job.World().Barrier(ctx); err != nil {
		return err
	}
	for peer := range out {
		if r.Rank != r.Root {
			break
		}
		out[peer] = make([]byte, len(own))
		if err = w.Get(ctx, peer, 0, out[peer]); err != nil {
			return err
		}
	}
	return w.Release(ctx)
}

func (r *Rank) mapFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the map remains
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

// Number parses a number in the environment, such as HMCFS_BUFFER_INPUT_OFFSET.
func Number(name string) (int, error) {
	text := os.Getenv(name)
	if text == "" {
		return 0, fmt.Errorf("%s is not set: hmcfs run sets it, that of a buffer where --config has such a buffer", name)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%s=%q is no number", name, text)
	}
	return n, nil
}

// Buffer returns the bytes of one of the rank's buffers, by its name in capitals. Without such
// a buffer, as without a config, it returns none.
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
