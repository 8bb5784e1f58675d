package fabric

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// facts are the first information that the ranks exchange.
type facts struct {
	// streams reports that memory is to stay unmapped.
	streams bool
	// reach has a bit for each rank whose memory can be mapped.
	reach uint64
	// cpus has a bit for each processor that the rank may use; processors from 64 on share
	// bits.
	cpus uint64
	host string
}

const (
	// factsSize is the size, in bytes, of the part before the name of the host.
	factsSize = 17
	// maxHost bounds the name of a host, in bytes.
	maxHost = 255
)

func (f *facts) encode() []byte {
	flags := byte(0)
	if f.streams {
		flags = 1
	}
	p := binary.LittleEndian.AppendUint64([]byte{flags}, f.reach)
	return append(binary.LittleEndian.AppendUint64(p, f.cpus), f.host...)
}

func parseFacts(p []byte) (facts, error) {
	if len(p) < factsSize || len(p) > factsSize+maxHost || p[0] > 1 {
		return facts{}, fmt.Errorf("malformed facts of %d bytes: %w", len(p), ErrProtocol)
	}
	return facts{p[0] == 1, binary.LittleEndian.Uint64(p[1:]), binary.LittleEndian.Uint64(p[9:]), string(p[factsSize:])}, nil
}

// ownFacts returns the facts of this rank.
func (o *over) ownFacts(ctx context.Context) (facts, error) {
	f := facts{streams: o.opts.Streams, cpus: processors(), host: o.opts.Host}
	if f.host == "" {
		text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
		if err != nil {
			return facts{}, fmt.Errorf("read the boot ID of this host: %w", err)
		}
		f.host = strings.TrimSpace(string(text))
	}
	if len(f.host) > maxHost {
		return facts{}, fmt.Errorf("the host's name is too long, %d bytes: %w", len(f.host), ErrProtocol)
	}
	for _, r := range o.others {
		can, err := o.c.Reaches(ctx, o.worlds[r])
		if err != nil {
			return facts{}, &LinkError{r, err}
		}
		if can {
			f.reach |= 1 << r
		}
	}
	return f, nil
}

// processors returns the set of processors that this process may use.
func processors() (set uint64) {
	var mine unix.CPUSet
	if unix.SchedGetaffinity(0, &mine) != nil {
		return math.MaxUint64
	}
	for _, of64 := range mine {
		set |= uint64(of64)
	}
	return set
}

// form exchanges facts with all ranks and sets up shared memory and links.
func (o *over) form(ctx context.Context) error {
	own, err := o.ownFacts(ctx)
	if err != nil {
		return err
	}
	blob := own.encode()
	got, err := o.rendezvous(ctx, func(plan.Rank) []byte { return blob })
	if err != nil {
		return err
	}
	all := make([]facts, len(got))
	for r, p := range got {
		if all[r], err = parseFacts(p); err != nil {
			return fmt.Errorf("rank %d: %w", r, err)
		}
	}
	o.place(all)
	if o.mapped {
		if err = o.share(ctx); err != nil {
			return err
		}
	}
	o.seated.Store(true)
	o.setSpin(all)
	if o.mixed() || !o.mapped {
		if o.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			return err
		}
	}
	return o.connect(ctx)
}

// place determines which rank is on which host, and whether ranks of one host map each
// other's memory: either all do, or none does.
func (o *over) place(all []facts) {
	var hosts []string
	o.mapped = len(all) == 1
	can := true
	for r, f := range all {
		i := slices.Index(hosts, f.host)
		if i < 0 {
			i = len(hosts)
			hosts = append(hosts, f.host)
		}
		o.nodes[r] = i
		can = can && !f.streams
		for before := range r {
			if o.nodes[before] == i {
				o.mapped = true
				can = can && f.reach&(1<<before) != 0 && all[before].reach&(1<<r) != 0
			}
		}
	}
	o.mapped = o.mapped && can
	for r, n := range o.nodes {
		if n == o.nodes[o.me] {
			o.local = append(o.local, plan.Rank(r))
		}
	}
}

// mixed reports whether some links are rings and others are not.
func (o *over) mixed() bool { return o.mapped && len(o.local) < len(o.links) }

// share makes our segment, and maps those of the other ranks of the host. If one rank
// can't, no rank maps anything.
func (o *over) share(ctx context.Context) error {
	n := len(o.local)
	own, err := o.c.Table().Alloc(devices.Size(segmentSize(n)))
	if err != nil {
		return err
	}
	maps, ok, err := o.mapAll(ctx, own, true)
	o.segments = segments{own: own, maps: maps, all: make([]*segment, len(o.links))}
	if err != nil || !ok {
		o.mapped = false
		return errors.Join(err, o.segments.close()) //nolint:contextcheck // cleanup must not depend on the context
	}
	for _, r := range o.local {
		p := own.Host(0, own.Size())
		if r != o.me {
			p = maps[r].Bytes()
		}
		s, serr := newSegment(p, n)
		if serr != nil {
			return fmt.Errorf("rank %d: %w", r, serr)
		}
		o.segments.all[r], o.states[r] = s, s.rankState()
	}
	return nil
}

// connect makes the links, and waits until all ranks have made theirs.
func (o *over) connect(ctx context.Context) error {
	err := o.join(ctx)
	failed, merr := o.agree(ctx, err == nil)
	if err != nil || merr != nil {
		return errors.Join(err, merr)
	}
	if failed != nil {
		return &MissingError{Ranks: failed, Err: errors.New("they can't establish all their links")}
	}
	return nil
}

// join makes our ends of all links.
func (o *over) join(ctx context.Context) error {
	var all sync.WaitGroup
	errs := make([]error, len(o.links))
	for _, r := range o.others {
		l, near := o.links[r], o.mapped && o.nodes[r] == o.nodes[o.me]
		if near {
			l.ring = o.ringWith(r)
		}
		if !near || o.mixed() {
			all.Go(func() { errs[r] = o.stream(ctx, l, near) })
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// ringWith returns our end of the rings with a rank of this host. The rings are empty.
func (o *over) ringWith(r plan.Rank) *ringLink {
	in := o.segments.all[o.me].pipe(slices.Index(o.local, r))
	out := o.segments.all[r].pipe(slices.Index(o.local, o.me))
	// No peer writes to our ring before the rendezvous that follows.
	in.reset()
	return &ringLink{node: o.node, peer: r, out: outlet{pipe: out}, in: inlet{pipe: in}}
}

// stream makes the socket connection with a rank: either the link itself, or the doorbell
// of a link that is a ring.
func (o *over) stream(ctx context.Context, l *link, bell bool) error {
	m := &o.series
	m.mu.Lock()
	// The name is the same at both ends, and differs from that of any other stream of the
	// two ranks.
	name := (o.nonce ^ m.peers[l.peer].nonce) + uint64(m.epoch)
	m.mu.Unlock()
	conn, err := o.open(ctx, o.worlds[l.peer], name)
	if err != nil {
		return &LinkError{l.peer, err}
	}
	raw, ok := conn.(syscall.Conn)
	if !ok {
		l.relay = newRelay(conn, func() { o.wake(o.me) })
		return nil
	}
	s, err := newSocket(conn, raw)
	if err != nil {
		return &LinkError{l.peer, err}
	}
	if o.nodes[l.peer] == o.nodes[o.me] {
		s.near()
	}
	if bell {
		l.bell = &doorbell{socket: s}
	} else {
		l.socket = s
	}
	return nil
}
