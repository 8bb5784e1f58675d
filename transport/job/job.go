package job

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// What callers tell apart, beside those of fabric, domain and comm.
var (
	// ErrOptions is a job that can't be described like this.
	ErrOptions = errors.New("job: options not usable")
	// ErrWindows is windows that can't be: of different sizes, a second set, too
	// small for their buffers, or none.
	ErrWindows = errors.New("job: windows not possible")
	// ErrBackend is ranks that can't reach each other as they were told to.
	ErrBackend = errors.New("job: the ranks can't use this backend")
	// ErrClosed is a job or domain that has ended here.
	ErrClosed = errors.New("job: closed")
)

// Backend is the transport between ranks.
type Backend string

// The backends.
const (
	// Auto is shared memory between ranks of one host, and the network between
	// hosts.
	Auto Backend = "auto"
	// SHM is shared memory; ranks of two hosts are an error.
	SHM Backend = "shm"
	// TCP is the network alone, also between ranks of one host.
	TCP Backend = "tcp"
)

// DefaultTimeout bounds the time until others come to what all do together.
const DefaultTimeout = 120 * time.Second

// Options say which job, and who we are in it.
type Options struct {
	Rank  int
	World int
	// Dir is a directory that all ranks of this host see: each has a socket in it,
	// or with TCP a file that says where it listens. It may be empty where Book has
	// all addresses.
	Dir string
	// Book says where each rank listens. Nil is sockets in Dir. With TCP the
	// sockets of Book are taken for names in Dir.
	Book []control.Address
	// Listen has further addresses of ours, for ranks in whose Book that is: those of
	// other hosts can't come to a socket in Dir.
	Listen []control.Address
	// Secret is known to all ranks, at least 16 bytes. Nil is the text in the
	// file "secret" of Dir, which the first rank makes, and which has to be this
	// user's alone.
	Secret []byte
	// Plain is as in comm.Options: all ranks have it, or none.
	Plain bool
	// Backend is the transport between ranks. Default Auto.
	Backend Backend
	// Host names our host; ranks of hosts with different names share no memory.
	// Empty asks the kernel.
	Host string
	// Devices are as in comm.Options.
	Devices []devices.Device
	// Timeout bounds the time until others come to what all do together.
	// Default 120 s.
	Timeout time.Duration
	// Logger gets the job's course. Nil is none.
	Logger *zap.Logger
}

// ensureDefaults fills in what is left at its zero value.
func (o *Options) ensureDefaults() {
	if o.Backend == "" {
		o.Backend = Auto
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
}

// validate reports every fault at once.
func (o *Options) validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format+": %w", append(args, ErrOptions)...))
	}
	if o.World < 1 || o.World > plan.MaxRanks {
		fault("a job of %d ranks; it has 1 to %d", o.World, plan.MaxRanks)
	}
	if o.Rank < 0 || o.Rank >= o.World {
		fault("rank %d of %d", o.Rank, o.World)
	}
	if o.Backend != Auto && o.Backend != SHM && o.Backend != TCP {
		fault("transport %q; use %s, %s or %s", o.Backend, Auto, SHM, TCP)
	}
	if o.Book != nil && len(o.Book) != o.World {
		fault("%d addresses for %d ranks", len(o.Book), o.World)
	}
	if o.Dir == "" && (o.Book == nil || o.Secret == nil) {
		fault("neither a directory nor addresses and a secret")
	}
	if o.Timeout < 0 {
		fault("timeout %v", o.Timeout)
	}
	return errors.Join(faults...)
}

// FromEnv reads what `hmcfs run` sets: HMCFS_RANK, HMCFS_WORLD, HMCFS_JOB_DIR,
// HMCFS_BOOK, HMCFS_LISTEN, HMCFS_HOST, HMCFS_SECRET_FILE and HMCFS_TRANSPORT
// (auto, shm, tcp); and HMCFS_PLAIN (1, 0), which its user does.
func FromEnv(getenv func(string) string) (Options, error) {
	o := Options{Dir: getenv("HMCFS_JOB_DIR"), Host: getenv("HMCFS_HOST"), Backend: Backend(getenv("HMCFS_TRANSPORT"))}
	var errs []error
	for name, into := range map[string]*int{"HMCFS_RANK": &o.Rank, "HMCFS_WORLD": &o.World} {
		var err error
		if getenv(name) == "" {
			errs = append(errs, fmt.Errorf("%s is not set; start the program with hmcfs run: %w", name, ErrOptions))
			continue
		}
		if *into, err = strconv.Atoi(getenv(name)); err != nil {
			errs = append(errs, fmt.Errorf("%s=%q is no number; start the program with hmcfs run: %w", name, getenv(name), ErrOptions))
		}
	}
	for name, into := range map[string]*[]control.Address{"HMCFS_BOOK": &o.Book, "HMCFS_LISTEN": &o.Listen} {
		text := getenv(name)
		if text == "" {
			continue
		}
		for entry := range strings.SplitSeq(text, ",") {
			at, err := control.ParseAddress(entry)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w: %w", name, ErrOptions, err))
			}
			*into = append(*into, at)
		}
	}
	if text := getenv("HMCFS_PLAIN"); text != "" {
		var err error
		if o.Plain, err = strconv.ParseBool(text); err != nil {
			errs = append(errs, fmt.Errorf("HMCFS_PLAIN=%q is neither 1 nor 0: %w", text, ErrOptions))
		}
	}
	if path := getenv("HMCFS_SECRET_FILE"); path != "" {
		var err error
		if o.Secret, err = readSecret(path); err != nil {
			errs = append(errs, err)
		}
	}
	return o, errors.Join(errs...)
}

// readSecret reads a file of hexadecimal digits.
func readSecret(path string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return nil, fmt.Errorf("read the job's secret: %w", err)
	}
	return parseSecret(path, text)
}

func parseSecret(path string, text []byte) ([]byte, error) {
	secret, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("the job's secret in %s: %w: %w", path, ErrOptions, err)
	}
	return secret, nil
}

// Job is a process of a job. Its methods may be called from any goroutine.
type Job struct {
	opts    Options
	engine  *transport.Engine
	comm    *comm.Communicator
	domains *domain.Domains
	world   *Domain
	// files are those that we have put into Dir.
	files []string

	mu sync.Mutex
	// +checklocks:mu
	closed bool
	// all are the domains, the latest last.
	// +checklocks:mu
	all []*Domain
}

// World is the domain of all ranks.
func (j *Job) World() *Domain { return j.world }

// Table registers memory. What Table.Alloc takes can be shared.
func (j *Job) Table() *region.Table { return j.comm.Table() }

// Engine moves bytes.
func (j *Job) Engine() *transport.Engine { return j.engine }

// Communicator is the one that the job runs on.
func (j *Job) Communicator() *comm.Communicator { return j.comm }

// Close destroys all domains and leaves the job. Closing twice is harmless.
func (j *Job) Close() error {
	j.mu.Lock()
	already, all := j.closed, j.all
	j.closed, j.all = true, nil
	j.mu.Unlock()
	if already {
		return nil
	}
	var errs []error
	for i := range all {
		errs = append(errs, all[len(all)-1-i].Destroy())
	}
	return errors.Join(append(errs, j.leave())...)
}

// leave ends what the domains were on.
func (j *Job) leave() error {
	var errs []error
	if j.domains != nil {
		errs = append(errs, j.domains.Close())
	}
	if j.comm != nil {
		errs = append(errs, j.comm.Close())
	}
	if j.engine != nil {
		errs = append(errs, j.engine.Close())
	}
	for _, f := range j.files {
		if err := os.Remove(f); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// keep notes a domain, to be destroyed with the job.
func (j *Job) keep(d *Domain) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return ErrClosed
	}
	j.all = append(j.all, d)
	return nil
}

// within bounds what is done together.
func (j *Job) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, j.opts.Timeout)
}
