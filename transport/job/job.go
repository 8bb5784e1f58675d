package job

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/collective/fabric"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/domain"
	"github.com/hmcfs/hmcfs/transport/region"
)

// Backend is how ranks reach each other.
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

// Options say which job, and who we are in it.
type Options struct {
	Rank  int
	World int
	// Dir is a directory that all ranks see: each has a socket in it. It may be
	// empty where Book has all addresses.
	Dir string
	// Book says where each rank listens. Nil is sockets in Dir.
	Book []control.Address
	// Secret is what all ranks know, at least 16 bytes. Nil is the text in the
	// file "secret" of Dir, which the first rank makes.
	Secret []byte
	// Backend is how ranks reach each other. Default Auto.
	Backend Backend
	// Host names our host; ranks of hosts with different names share no memory.
	// Empty asks the kernel.
	Host string
	// Devices are as in comm.Options.
	Devices []devices.Device
	// Timeout is how long others may take to come to what all do together.
	// Default 120 s.
	Timeout time.Duration
	// Logger is where the job's course is told. Nil is none.
	Logger *zap.Logger
}

// Job is a process of a job.
type Job struct{}

// FromEnv reads what `hmcfs run` sets: HMCFS_RANK, HMCFS_WORLD, HMCFS_JOB_DIR,
// HMCFS_BOOK, HMCFS_SECRET_FILE and HMCFS_TRANSPORT (auto, shm, tcp).
func FromEnv(getenv func(string) string) (Options, error) { panic("job: not written yet") }

// Init connects us with all other ranks, who call it too.
func Init(ctx context.Context, o Options) (*Job, error) { panic("job: not written yet") }

// World is the domain of all ranks.
func (j *Job) World() *Domain { panic("job: not written yet") }

// Table registers memory. What Table.Alloc takes can be shared.
func (j *Job) Table() *region.Table { panic("job: not written yet") }

// Engine moves bytes.
func (j *Job) Engine() *transport.Engine { panic("job: not written yet") }

// Communicator is the one that the job runs on.
func (j *Job) Communicator() *comm.Communicator { panic("job: not written yet") }

// Close destroys all domains and leaves the job.
func (j *Job) Close() error { panic("job: not written yet") }

// Domain is some ranks of a job, numbered from 0 in the order of their list.
type Domain struct{}

// Rank is our own in the domain, Size the number of its ranks.
func (d *Domain) Rank() int { panic("job: not written yet") }

// Size is the number of ranks.
func (d *Domain) Size() int { panic("job: not written yet") }

// Comm sends to and receives from the ranks of the domain.
func (d *Domain) Comm() *domain.Comm { panic("job: not written yet") }

// Fabric is what collectives of the domain run on. It is the domain's: nobody
// else closes it. The barrier of the domain uses it: only one goroutine at a
// time calls it or that.
func (d *Domain) Fabric() fabric.Fabric { panic("job: not written yet") }

// Barrier returns when all ranks have called it. After an error that names the
// ranks that are missing it can be called again, and is the same barrier.
func (d *Domain) Barrier(ctx context.Context) error { panic("job: not written yet") }

// AllocWindows takes memory of n bytes at each rank, zeroed, the same n at all.
// A domain has one set of windows at a time.
func (d *Domain) AllocWindows(ctx context.Context, n devices.Size) (*Windows, error) {
	panic("job: not written yet")
}

// Derive makes a domain of some ranks of this one, which all of them call with
// the same name and list.
func (d *Domain) Derive(ctx context.Context, name string, ranks []int) (*Domain, error) {
	panic("job: not written yet")
}

// Destroy ends the domain with its windows.
func (d *Domain) Destroy() error { panic("job: not written yet") }

// ContextSize is the bytes of Windows.Context.
const ContextSize = 1056

// Windows are memory of each rank of a domain.
type Windows struct{}

// Local is our own window, and Size its bytes.
func (w *Windows) Local() []byte { panic("job: not written yet") }

// Size is the bytes of each window.
func (w *Windows) Size() devices.Size { panic("job: not written yet") }

// Buffer is our own window as registered memory.
func (w *Windows) Buffer() *region.Buffer { panic("job: not written yet") }

// Of is the window of a rank where it can be seen; nil elsewhere.
func (w *Windows) Of(rank int) []byte { panic("job: not written yet") }

// Put copies p into the window of a rank, wherever that is. It returns when the
// bytes are in place.
func (w *Windows) Put(ctx context.Context, rank int, off uint64, p []byte) error {
	panic("job: not written yet")
}

// Get copies from the window of a rank.
func (w *Windows) Get(ctx context.Context, rank int, off uint64, p []byte) error {
	panic("job: not written yet")
}

// Context is the windows as the CommContext of simpler: addresses of this
// process, 0 for windows that can't be seen.
func (w *Windows) Context() [ContextSize]byte { panic("job: not written yet") }

// Release gives the windows back. All ranks call it.
func (w *Windows) Release(ctx context.Context) error { panic("job: not written yet") }
