package job

import (
	"cmp"
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

// Errors that callers distinguish, in addition to those of fabric, domain and comm.
var (
	// ErrOptions reports invalid options.
	ErrOptions = errors.New("job: invalid options")
	// ErrWindows reports windows that are not possible: of different sizes, a second set,
	// too small for their buffers, or released.
	ErrWindows = errors.New("job: invalid windows")
	// ErrBackend reports ranks that can't reach each other by the requested transport.
	ErrBackend = errors.New("job: the ranks can't use this backend")
	// ErrClosed reports that the job or domain has ended locally.
	ErrClosed = errors.New("job: closed")
)

// Backend is the transport between ranks.
type Backend string

// The backends.
const (
	// Auto uses shared memory between ranks of one host, and the network between hosts.
	Auto Backend = "auto"
	// SHM uses shared memory; ranks on two hosts are an error.
	SHM Backend = "shm"
	// TCP uses the network only, even between ranks of one host.
	TCP Backend = "tcp"
)

// DefaultTimeout bounds the wait for the other ranks in operations that all take part in.
const DefaultTimeout = 120 * time.Second

// Options describes the job, and our rank in it.
type Options struct {
	Rank  int
	World int
	// Dir is a directory that all ranks of this host can access: each has a socket in it,
	// or with TCP a file with its address. It may be empty if Book has all addresses.
	Dir string
	// AddressBook holds the address of each rank. Nil means sockets in Dir. With TCP, a Unix
	// socket in Book is replaced by an address published in Dir.
	AddressBook []control.Address
	// Listen holds further addresses of this rank, for ranks that have them in their Book:
	// those of other hosts can't reach a socket in Dir.
	Listen []control.Address
	// Secret is known to all ranks, and has at least 16 bytes. Nil means the content of the
	// file "secret" in Dir, which the first rank creates, and which only this user may
	// access.
	Secret []byte
	// Plain is as in comm.Options: it is the same at all ranks.
	Plain bool
	// Backend is the transport between ranks. Default Auto.
	Backend Backend
	// Host names our host; ranks of hosts with different names share no memory. If empty,
	// the kernel's boot id is used.
	Host string
	// Devices are as in comm.Options.
	Devices []devices.Device
	// Timeout bounds the wait for the other ranks in operations that all take part in.
	// Default 120 s.
	Timeout time.Duration
	// Logger receives messages about the job. Nil disables them.
	Logger *zap.Logger
}

// ensureDefaults sets zero options to their defaults.
func (o *Options) ensureDefaults() {
	o.Backend = cmp.Or(o.Backend, Auto)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
}

// validate reports all invalid options at once.
func (o *Options) validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf(format+": %w", append(args, ErrOptions)...))
	}
	if o.World < 1 || o.World > plan.MaxRanks {
		fault("a job of %d ranks; must have 1 to %d", o.World, plan.MaxRanks)
	}
	if o.Rank < 0 || o.Rank >= o.World {
		fault("rank %d is not one of the %d ranks", o.Rank, o.World)
	}
	if o.Backend != Auto && o.Backend != SHM && o.Backend != TCP {
		fault("transport %q; use %s, %s or %s", o.Backend, Auto, SHM, TCP)
	}
	if o.AddressBook != nil && len(o.AddressBook) != o.World {
		fault("%d addresses for %d ranks", len(o.AddressBook), o.World)
	}
	if o.Dir == "" && (o.AddressBook == nil || o.Secret == nil) {
		fault("either a directory, or addresses and a secret must be given")
	}
	if o.Timeout < 0 {
		fault("timeout %v must not be negative", o.Timeout)
	}
	return errors.Join(faults...)
}

// FromEnv reads the environment that `hmcfs run` sets: HMCFS_RANK, HMCFS_WORLD,
// HMCFS_JOB_DIR, HMCFS_BOOK, HMCFS_LISTEN, HMCFS_HOST, HMCFS_SECRET_FILE and
// HMCFS_TRANSPORT (auto, shm, tcp); and HMCFS_PLAIN (1, 0), which the user of hmcfs run
// sets.
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
			errs = append(errs, fmt.Errorf("%s=%q is not a number; start the program with hmcfs run: %w", name, getenv(name), ErrOptions))
		}
	}
	for name, into := range map[string]*[]control.Address{"HMCFS_BOOK": &o.AddressBook, "HMCFS_LISTEN": &o.Listen} {
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
			errs = append(errs, fmt.Errorf("HMCFS_PLAIN=%q must be 1 or 0: %w", text, ErrOptions))
		}
	}
	if path := getenv("HMCFS_SECRET_FILE"); path != "" {
		var err error
		o.Secret, err = readSecret(path)
		errs = append(errs, err)
	}
	return o, errors.Join(errs...)
}

// readSecret reads a secret in hexadecimal digits from a file.
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
	// files are the files that we have created in Dir.
	files []string

	mu sync.Mutex
	// +checklocks:mu
	closed bool
	// all holds the domains, latest last.
	// +checklocks:mu
	all []*Domain
}

// World returns the domain of all ranks.
func (j *Job) World() *Domain { return j.world }

// Table returns the table in which memory is registered. Memory from its Alloc can be
// shared.
func (j *Job) Table() *region.Table { return j.comm.Table() }

// Engine returns the engine that moves bytes.
func (j *Job) Engine() *transport.Engine { return j.engine }

// Communicator returns the communicator of the job.
func (j *Job) Communicator() *comm.Communicator { return j.comm }

// Close destroys all domains and leaves the job. A second Close has no effect.
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

// leave ends what the domains used.
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

// keep registers a domain, to be destroyed with the job.
func (j *Job) keep(d *Domain) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return ErrClosed
	}
	j.all = append(j.all, d)
	return nil
}

// within bounds an operation in which all ranks take part.
func (j *Job) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, j.opts.Timeout)
}
