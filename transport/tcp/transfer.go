package tcp

import (
	"sync"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// Plan describes a transfer.
type Plan struct {
	// Kind is wire.KindPut or wire.KindGet.
	Kind wire.Kind
	// Local is the local buffer. It is held until the transfer completes.
	Local    *region.Buffer
	LocalOff devices.Offset
	// Key and RemoteOff are the remote end.
	Key       wire.Key
	RemoteOff uint64
	// Size is in bytes, not 0.
	Size devices.Size
}

// Transfer is one put or get. It may be posted on several channels of one
// session, which then share its work, and reused after it has completed.
type Transfer struct {
	mu sync.Mutex
	// +checklocks:mu
	plan Plan
	// +checklocks:mu
	done window.Completer
	// round counts the uses of the struct: references that a channel still has to
	// an earlier one are void.
	// +checklocks:mu
	round uint64
	// cut is the number of bytes that were assigned to fragments.
	// +checklocks:mu
	cut devices.Size
	// flying is the number of unanswered fragments.
	// +checklocks:mu
	flying int
	// +checklocks:mu
	completed bool
	// +checklocks:mu
	err error
}

// Start sets up the transfer. done is called when it has completed. Start fails,
// and done is not called, for a range outside the local buffer or a closed
// buffer.
func (t *Transfer) Start(p Plan, done window.Completer) error {
	if err := p.Local.Check(p.LocalOff, p.Size); err != nil {
		return err
	}
	if err := p.Local.Hold(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.plan, t.done = p, done
	t.round++
	t.cut, t.flying, t.completed, t.err = 0, 0, false, nil
	return nil
}

// job is a transfer in one of its rounds.
type job struct {
	t     *Transfer
	round uint64
}

func (t *Transfer) job() (job, Plan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return job{t, t.round}, t.plan
}

// fragment is a part of a transfer that one frame carries.
type fragment struct {
	job   job
	kind  wire.Kind
	local *region.Buffer
	off   devices.Offset
	key   wire.Key
	at    uint64
	n     devices.Size
}

// moreLocked reports whether a round has more to cut.
//
// +checklocks:t.mu
func (t *Transfer) moreLocked(round uint64) bool {
	return t.round == round && !t.completed && t.err == nil && t.cut < t.plan.Size
}

// next cuts the next fragment; ok is false if nothing is left to do, and more
// reports whether there is more to cut.
func (j job) next(chunk devices.Size) (f fragment, more, ok bool) {
	t := j.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.moreLocked(j.round) {
		return fragment{}, false, false
	}
	p := &t.plan
	f = fragment{
		job: j, kind: p.Kind, local: p.Local, off: p.LocalOff + devices.Offset(t.cut),
		key: p.Key, at: p.RemoteOff + uint64(t.cut), n: min(chunk, p.Size-t.cut),
	}
	t.cut += f.n
	t.flying++
	return f, t.moreLocked(j.round), true
}

// ended records that a fragment was answered, or never will be.
func (j job) ended(err error) {
	t := j.t
	t.mu.Lock()
	t.flying--
	t.finishLocked(err)
}

// abort ends the transfer if nothing of it is in flight.
func (j job) abort(err error) {
	t := j.t
	t.mu.Lock()
	if t.round != j.round || t.completed {
		t.mu.Unlock()
		return
	}
	t.finishLocked(err)
}

// GiveUp starts nothing more of the transfer: it completes with the error as soon
// as nothing of it is in flight, unless it has completed.
func (t *Transfer) GiveUp(err error) {
	t.mu.Lock()
	if t.completed {
		t.mu.Unlock()
		return
	}
	t.finishLocked(err)
}

// failed reports whether a part of the transfer has failed, so that no other part
// is wanted any more.
func (j job) failed() bool {
	j.t.mu.Lock()
	defer j.t.mu.Unlock()
	return j.t.round != j.round || j.t.err != nil
}

// finishLocked keeps the first error, unlocks, and completes the transfer if it
// has ended.
//
// +checklocksrelease:t.mu
func (t *Transfer) finishLocked(err error) {
	if t.err == nil {
		t.err = err
	}
	end := !t.completed && t.flying == 0 && (t.err != nil || t.cut == t.plan.Size)
	t.completed = t.completed || end
	local, done, first := t.plan.Local, t.done, t.err
	t.mu.Unlock()
	if end {
		local.Drop()
		done.Complete(first)
	}
}
