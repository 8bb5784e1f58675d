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

// Auto selects the fastest transport that both sides have.
const Auto comm.Transport = "auto"

// The operations.
const (
	OpTag  = "tag"
	OpPut  = "put"
	OpGet  = "get"
	OpSend = "send"
	OpRecv = "recv"
	// OpBounce is a put by a program that can't pass device memory: all bytes are copied to
	// the host, put to the other host, and copied to the device there, one step after the
	// other.
	OpBounce = "bounce"
)

// Operations returns the operations that are measured by default.
func Operations() []string { return []string{OpTag, OpPut, OpGet, OpSend, OpRecv} }

// RunOptions selects the measurements.
type RunOptions struct {
	Options

	// Peers are addresses of one server, each measured in turn.
	Peers []control.Address
	// Transports are measured in turn for each address. One that the two sides can't use is
	// an error. Auto selects the fastest that both have.
	Transports []comm.Transport
	// Operations are the operations to measure: those of Operations, and OpBounce.
	Operations []string
	// PeerMemory lists the server's memory against which each of ours is measured; none
	// means the same kind.
	PeerMemory []devices.Name
	// Sizes are the sizes, in bytes, of the bandwidth rows.
	Sizes []devices.Size
	// Bytes is the approximate number of bytes that a bandwidth row moves, if Iterations is
	// 0.
	Bytes devices.Size
	// Iterations is the number of timed repetitions of a bandwidth row.
	Iterations int
	// Rounds is the number of timed repetitions of a latency row.
	Rounds int
	// WarmUp is the number of uncounted repetitions before each row; before a bandwidth row
	// at most a quarter of the counted ones.
	WarmUp int
	// Depth is the number of operations of a bandwidth row that are in flight together.
	Depth int
}

// Bounds of the automatic number of repetitions of a bandwidth row.
const (
	minTimes = 5
	maxTimes = 1000
)

const (
	// maxSize is the largest transfer that is measured.
	maxSize = devices.TiB
	// maxDepth is the maximum Depth.
	maxDepth = 4096
	// sizeStep is the default factor between sizes of a range, and maxStep the maximum.
	sizeStep = 8
	maxStep  = 1024
)

// ParseSizes parses sizes: "8,4KiB", or a range "8..1GiB" with a factor of eight that
// includes its end; with another factor: "8..1GiB:2".
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
		if err := cmp.Or(err1, err2); err != nil { // one line, for the first fault
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

// Validate reports all invalid options, joined.
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

// transports returns all transports, fastest first.
func transports() []comm.Transport {
	return []comm.Transport{comm.RDMA, comm.SHM, comm.UCX, comm.TCP}
}

func checkTransport(t comm.Transport) error {
	if !slices.Contains(transports(), t) {
		return fmt.Errorf("transport %q; use %s or one of %v", t, Auto, transports())
	}
	return nil
}

// times returns the number of repetitions of a bandwidth row of a size.
func (o *RunOptions) times(n devices.Size) int {
	if o.Iterations > 0 {
		return o.Iterations
	}
	each := n * devices.Size(o.Depth)
	return int(min(max(uint64(o.Bytes/each), minTimes), maxTimes))
}

// warmUp returns the number of repetitions before the counted ones.
func (o *RunOptions) warmUp(mode string, times int) int {
	if mode == bandwidth {
		return min(o.WarmUp, max(1, times/4))
	}
	return o.WarmUp
}

// pairs returns the combinations of memory at our end and at the server's.
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
