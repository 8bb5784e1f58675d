package perf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/comm"
	"github.com/hmcfs/hmcfs/transport/control"
)

// Auto is the fastest transport that both sides have.
const Auto comm.Transport = "auto"

// What is measured.
const (
	OpTag  = "tag"
	OpPut  = "put"
	OpGet  = "get"
	OpSend = "send"
	OpRecv = "recv"
	// OpBounce is a put as a program does it that can't pass device memory on: all
	// bytes to the host, to the other host, and to the device there, one after the
	// other.
	OpBounce = "bounce"
)

// Operations are all that are measured where nothing is said.
func Operations() []string { return []string{OpTag, OpPut, OpGet, OpSend, OpRecv} }

// RunOptions say what is measured.
type RunOptions struct {
	Options

	// Peers are the addresses of one server, each measured in its turn.
	Peers []control.Address
	// Transports are measured in turn by each address. One that the two
	// sides can't use is an error. Auto is the fastest that both have.
	Transports []comm.Transport
	// Operations are those that are measured: Operations, OpBounce, or some.
	Operations []string
	// PeerMemory is the server's memory that each of ours is measured
	// against; none is the same as ours.
	PeerMemory []devices.Name
	// Sizes are those of the bandwidth rows, in bytes.
	Sizes []devices.Size
	// Bytes is about how much a bandwidth row moves, where Iterations is 0.
	Bytes devices.Size
	// Iterations is the number of times that a bandwidth row takes.
	Iterations int
	// Rounds is the number of times that a latency row takes.
	Rounds int
	// WarmUp is the number of times that are not counted before each row; before a
	// bandwidth row not more than a quarter of those that are.
	WarmUp int
	// Depth is the number of operations of a bandwidth row that are begun together.
	Depth int
}

// The bounds of how many times a bandwidth row takes by itself.
const (
	minTimes = 5
	maxTimes = 1000
)

const (
	// maxSize is the largest transfer that is measured.
	maxSize = devices.TiB
	// maxDepth is the most operations that are begun together.
	maxDepth = 4096
	// sizeStep is from one size of a range to the next, where it doesn't say, and
	// maxStep the most that it may say.
	sizeStep = 8
	maxStep  = 1024
)

// ParseSizes reads sizes: "8,4KiB", or a range in steps of eight, with the
// end of it: "8..1GiB"; in other steps: "8..1GiB:2".
func ParseSizes(text string) ([]devices.Size, error) {
	var all []devices.Size
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "..")
		step := uint64(sizeStep)
		if !ranged {
			to = from
		} else if end, factor, has := strings.Cut(to, ":"); has {
			n, err := strconv.ParseUint(strings.TrimSpace(factor), 10, 16)
			if err != nil || n < 2 || n > maxStep {
				return nil, fmt.Errorf("sizes %q: step %q: use 2 to %d, as in 8..1GiB:2", text, factor, maxStep)
			}
			to, step = end, n
		}
		first, err1 := devices.ParseSize(strings.TrimSpace(from))
		last, err2 := devices.ParseSize(strings.TrimSpace(to))
		if err := cmp.Or(err1, err2); err != nil { // one line, of the first
			return nil, fmt.Errorf("sizes %q: %w", text, err)
		}
		if first == 0 || first > last || last > maxSize {
			return nil, fmt.Errorf("sizes %q: use 1 B to %v, with the smaller end of a range first", text, maxSize)
		}
		for n := first; n < last; n *= devices.Size(step) {
			all = append(all, n)
		}
		all = append(all, last)
	}
	return all, nil
}

// Validate reports every fault of the options at once, joined.
func (o *RunOptions) Validate() error {
	var faults []error
	if len(o.Sizes) == 0 || slices.Min(o.Sizes) == 0 || slices.Max(o.Sizes) > maxSize {
		faults = append(faults, fmt.Errorf("sizes %v; use 1 B to %v", o.Sizes, maxSize))
	}
	if len(o.Peers) == 0 || len(o.Memory) == 0 || len(o.Transports) == 0 || len(o.Operations) == 0 {
		faults = append(faults, errors.New("nothing to measure: give an address, a transport, an operation and a memory"))
	}
	if o.Rounds < 1 || o.Iterations < 0 || o.WarmUp < 0 {
		faults = append(faults, fmt.Errorf("%d rounds, %d iterations, %d warm-up iterations: use 1 or more rounds, and no negative numbers",
			o.Rounds, o.Iterations, o.WarmUp))
	}
	if o.Depth < 1 || o.Depth > maxDepth {
		faults = append(faults, fmt.Errorf("depth %d; use 1 to %d", o.Depth, maxDepth))
	}
	for _, op := range o.Operations {
		if all := append(Operations(), OpBounce); !slices.Contains(all, op) {
			faults = append(faults, fmt.Errorf("operation %q; use one of %v", op, all))
		}
	}
	for _, t := range o.Transports {
		if t != Auto {
			faults = append(faults, checkTransport(t))
		}
	}
	return errors.Join(faults...)
}

// transports are all, the fastest first.
func transports() []comm.Transport {
	return []comm.Transport{comm.RDMA, comm.SHM, comm.UCX, comm.TCP}
}

func checkTransport(t comm.Transport) error {
	if !slices.Contains(transports(), t) {
		return fmt.Errorf("transport %q; use %s or one of %v", t, Auto, transports())
	}
	return nil
}

// times returns the number of times that a bandwidth row of a size takes.
func (o *RunOptions) times(n devices.Size) int {
	if o.Iterations > 0 {
		return o.Iterations
	}
	each := n * devices.Size(o.Depth)
	return int(min(max(uint64(o.Bytes/each), minTimes), maxTimes))
}

// warmUp returns the number of times that come before those that count.
func (o *RunOptions) warmUp(mode string, times int) int {
	if mode == bandwidth {
		return min(o.WarmUp, max(1, times/4))
	}
	return o.WarmUp
}

// pairs are the kinds of memory at our end and at the server's.
func (o *RunOptions) pairs(names []devices.Name) [][2]devices.Name {
	var all [][2]devices.Name
	for _, local := range names {
		remotes := o.PeerMemory
		if len(remotes) == 0 {
			remotes = []devices.Name{local}
		}
		for _, remote := range remotes {
			all = append(all, [2]devices.Name{local, remote})
		}
	}
	return all
}
