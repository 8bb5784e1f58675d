package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/chaos/judge"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/lab"
)

// hall holds the publications that may still be open and the attempts to receive whose
// outcome is unknown.
type hall struct {
	mu sync.Mutex
	// +checklocks:mu
	open []offer
	// +checklocks:mu
	doubtful []attempt
}

// offer is a publication and the node that made it.
type offer struct {
	id    int
	owner *lab.Node
}

// attempt is a receipt whose target is checked after all faults have ended.
type attempt struct {
	id      int
	target  string
	receipt judge.Receipt
}

func newHall() *hall { return &hall{} }

// mostOpen bounds the number of publications that subscribers choose from; older ones are
// received at the end.
const mostOpen = 12

func (h *hall) add(o offer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = append(h.open, o)
	if len(h.open) > mostOpen {
		h.open = h.open[1:]
	}
}

// pick returns one of the open publications.
func (h *hall) pick(random *rand.Rand) (offer, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.open) == 0 {
		return offer{}, false
	}
	return h.open[random.IntN(len(h.open))], true
}

func (h *hall) drop(id int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, o := range h.open {
		if o.id == id {
			h.open = append(h.open[:i:i], h.open[i+1:]...)
			return
		}
	}
}

func (h *hall) doubt(a attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.doubtful = append(h.doubtful, a)
}

// takeDoubtful returns and removes all attempts that have not been checked yet.
func (h *hall) takeDoubtful() []attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.doubtful
	h.doubtful = nil
	return all
}

func publicationKey(id int) string { return fmt.Sprintf("p%d", id) }

// publicationSize returns the size, in bytes, of a publication: small, except for every
// eighth, whose transfer takes a moment.
func publicationSize(id int) int {
	if id%8 == 0 {
		return 3<<20 + id
	}
	return 3*pipeSize + id*7919%200_000
}

// pipeSize is the size, in bytes, of the pipe whose reader goes away. Every publication is
// larger.
const pipeSize = 4096

// publicationSeed returns the seed of a publication's content. It differs from the seeds of
// all values.
func publicationSeed(id int) uint64 { return 1<<50 + uint64(id) }

// publishStep publishes a new object.
func (r *run) publishStep(ctx context.Context, w *hand, n *lab.Node) {
	id := r.pubs.New(n.Name)
	path := n.Path("host", publicationKey(id)+".file")
	if w.random.IntN(3) == 0 {
		path = filepath.Join(r.dir, publicationKey(id)+".file")
		defer func() { _ = os.Remove(path) }() // it may not exist
	}
	var err error
	content := kit.Bytes(publicationSeed(id), 0, publicationSize(id))
	if !r.within("write to publish", path, func() error { err = os.WriteFile(path, content, 0o644); return err }) || err != nil {
		return
	}
	a := r.ask1(ctx, "publish", n, 0, "publish", publicationKey(id)+"="+path)
	if a.OK {
		r.pubs.Offered(id)
	}
	r.hall.add(offer{id, n})
}

// way describes a method of receiving.
type way struct {
	name string
	// target is the path that receives the content; with toOutput it is opened as the
	// standard output.
	target   string
	toOutput bool
	// reads is the number of bytes after which the reader of the standard output goes away;
	// 0 means that there is none.
	reads int64
	// kill is the signal that is sent to the subscriber after the duration after; 0 means
	// none.
	kill  syscall.Signal
	after time.Duration
}

// someWay chooses a random method of receiving.
func (r *run) someWay(w *hand, n *lab.Node, id int) way {
	name := fmt.Sprintf("%s.%d", publicationKey(id), r.number())
	outside := way{name: "path outside", target: filepath.Join(r.dir, name)}
	within := way{name: "path in the mount", target: n.Path("host", name)}
	output := way{name: "standard output", target: outside.target, toOutput: true}
	end := func(v way) way {
		v.kill = syscall.SIGKILL
		if w.random.IntN(2) == 0 {
			v.kill = syscall.SIGTERM
		}
		v.after = time.Duration(w.random.Int64N(int64(500 * time.Millisecond)))
		v.name += ", ended by " + v.kill.String()
		return v
	}
	switch w.random.IntN(12) {
	case 0, 1:
		return outside
	case 2, 3:
		return within
	case 4:
		return output
	case 5:
		return way{name: "| head -c 100", reads: 100}
	case 6:
		return way{name: "> /dev/full", target: "/dev/full", toOutput: true}
	case 7:
		return way{name: "full file system", target: filepath.Join(r.dir, "full", name)}
	case 8, 9:
		return end(outside)
	case 10:
		return end(within)
	default:
		return end(output)
	}
}

// receiveTimeout is the timeout passed to a subscriber.
const receiveTimeout = 2 * time.Second

// receiveStep tries to receive a random open publication by a random method.
func (r *run) receiveStep(ctx context.Context, w *hand, n *lab.Node) {
	o, found := r.hall.pick(w.random)
	if !found {
		return
	}
	if o.owner == n && w.random.IntN(3) == 0 {
		r.receiveByRename(n, o.id)
		return
	}
	v := r.someWay(w, n, o.id)
	one := attempt{id: o.id, target: v.target, receipt: judge.Receipt{By: n.Name + " " + v.name, Call: r.now()}}
	err := r.subscribe(ctx, n, o.id, v)
	one.receipt.Return = r.now()
	if err != nil {
		one.receipt.Error = err.Error()
	} else {
		one.receipt.Outcome = judge.Done
	}
	r.did("subscribe, "+v.name, fmt.Sprintf("%s by %s", publicationKey(o.id), n.Name), one.receipt.Call, opBound+receiveTimeout, err)
	r.received(one)
}

// subscribe runs hmcfs subscribe with the given method.
func (r *run) subscribe(ctx context.Context, n *lab.Node, id int, v way) error {
	key := publicationKey(id)
	if v.target != "" && !v.toOutput {
		key += "=" + v.target
	}
	if v.kill != 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, v.after)
		defer cancel()
	}
	cmd := n.Command(ctx, "subscribe", "--mount", n.Dir, "--timeout", receiveTimeout.String(), key)
	cmd.Cancel = func() error { return cmd.Process.Signal(v.kill) }
	switch {
	case v.toOutput:
		f, err := os.OpenFile(v.target, os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // the program has its own descriptor
		cmd.Stdout = f
	case v.reads > 0:
		reader, writer, err := os.Pipe()
		if err != nil {
			return err
		}
		// The program writes as much as fits into the pipe before anything is read.
		if _, err = unix.FcntlInt(writer.Fd(), unix.F_SETPIPE_SZ, pipeSize); err != nil {
			return errors.Join(err, reader.Close(), writer.Close())
		}
		cmd.Stdout = writer
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = io.CopyN(io.Discard, reader, v.reads) // it may end earlier
			_ = reader.Close()
		}()
		defer func() { _ = writer.Close(); <-gone }() // the program has ended
	}
	return r.finish(cmd)
}

// receiveByRename receives a publication by renaming it out of publish/.
func (r *run) receiveByRename(n *lab.Node, id int) {
	target := n.Path("host", fmt.Sprintf("%s.%d", publicationKey(id), r.number()))
	one := attempt{id: id, target: target, receipt: judge.Receipt{By: n.Name + " rename", Call: r.now()}}
	var err error
	if !r.within("rename from publish/", target, func() error { err = os.Rename(n.Path("publish", publicationKey(id)), target); return err }) {
		return
	}
	one.receipt.Return = r.now()
	if err != nil {
		one.receipt.Error = err.Error()
	} else {
		one.receipt.Outcome = judge.Done
	}
	r.received(one)
}

// received checks an attempt at once if it was acknowledged and its target can be read. All
// other attempts are checked at the end, because a failed one may still take effect.
func (r *run) received(one attempt) {
	if one.receipt.Outcome != judge.Done {
		r.hall.doubt(one)
		return
	}
	r.hall.drop(one.id)
	var content []byte
	var err error
	if r.within("read what was received", one.target, func() error { content, err = os.ReadFile(one.target); return err }) && err == nil {
		one.judge(content)
		r.pubs.Received(one.id, one.receipt)
		_ = os.Remove(one.target) // frees the space
		return
	}
	r.hall.doubt(one)
}

// judge checks the content of the target.
func (a *attempt) judge(content []byte) {
	at := kit.DiffAt(content, publicationSeed(a.id), 0)
	a.receipt.Whole = at < 0 && len(content) == publicationSize(a.id)
	if a.receipt.Outcome == judge.Done && !a.receipt.Whole {
		a.receipt.Wrong = fmt.Sprintf("%d of %d bytes, byte %d differs", len(content), publicationSize(a.id), at)
	}
}

// judgeDoubtful checks the targets of all attempts that have not been checked yet.
func (r *run) judgeDoubtful() {
	for _, one := range r.hall.takeDoubtful() {
		if one.target != "" && one.target != "/dev/full" {
			content, err := os.ReadFile(one.target)
			switch {
			case err == nil:
				one.judge(content)
			case one.receipt.Outcome == judge.Done:
				one.receipt.Wrong = err.Error()
			}
		}
		r.pubs.Received(one.id, one.receipt)
	}
}

// drain receives all open publications after all faults have ended, on one node after the
// other.
func (r *run) drain(ctx context.Context) {
	dir := filepath.Join(r.dir, "drain")
	for i, n := range r.lab.Nodes {
		open := r.pubs.Open()
		if len(open) == 0 {
			return
		}
		into := filepath.Join(dir, n.Name)
		if err := os.MkdirAll(into, 0o755); err != nil {
			r.violate(judge.Violation{Property: "setup", Text: err.Error()})
			return
		}
		for part := range slices.Chunk(open, drained) {
			if err := r.drainPart(ctx, n, into, part); err != nil && i == len(r.lab.Nodes)-1 {
				r.violate(judge.Violation{Property: "setup", Text: "receive what is left: " + err.Error()})
			}
		}
		r.judgeDoubtful()
	}
}

// drained is the number of publications that one subscriber receives at the end: on a busy
// machine one takes 50 ms.
const drained = 500

// drainPart receives publications on a node. The error is that of a subscriber that printed
// no result.
func (r *run) drainPart(ctx context.Context, n *lab.Node, into string, open []int) error {
	const wait = 5 * time.Second
	args := []string{"--timeout", wait.String(), "--dir", into}
	ids := map[string]int{}
	for _, id := range open {
		args = append(args, publicationKey(id))
		ids[publicationKey(id)] = id
	}
	began := r.now()
	all, err := r.ask(ctx, "subscribe at the end", n, wait*time.Duration(1+len(open)/50), "subscribe", args...)
	for _, a := range all {
		one := attempt{id: ids[a.Key], target: filepath.Join(into, a.Key), receipt: judge.Receipt{By: n.Name + " at the end", Call: began, Return: r.now()}}
		if a.OK {
			one.receipt.Outcome = judge.Done
		} else {
			one.receipt.Error = a.err().Error()
		}
		r.received(one)
	}
	return err
}

// mountFull mounts a full file system, which has no room for a publication.
func (r *run) mountFull() error {
	dir := filepath.Join(r.dir, "full")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4k"), os.WriteFile(filepath.Join(dir, "all"), kit.Bytes(1, 0, 4096), 0o600))
}
