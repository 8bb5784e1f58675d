package ucx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/dl"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// A head starts every message:
//
//	0     1       2   8        16       24      32     40
//	├─────┼───────┼───┼────────┼────────┼───────┼──────┤
//	 kind  status   0   number   window   offset  size
//
// in little-endian order. PUT and DATA have bytes after it. Kinds and status are
// those of the data connections.
const headSize = 40

type head [headSize]byte

// rendezvousFrom is the size from which the receiver fetches the data directly
// into its place, and the data is not sent along with the message.
const rendezvousFrom = 32 << 10

// maxAsked bounds the operations that wait for the peer's answer at a time.
const maxAsked = 64

func makeHead(k wire.Kind, s wire.Status, words ...uint64) (h head) {
	h[0], h[1] = byte(k), byte(s)
	for i, w := range words {
		binary.LittleEndian.PutUint64(h[8+8*i:], w)
	}
	return h
}

func (h *head) kind() wire.Kind     { return wire.Kind(h[0]) }
func (h *head) status() wire.Status { return wire.Status(h[1]) }
func (h *head) number() uint64      { return binary.LittleEndian.Uint64(h[8:]) }
func (h *head) window() uint64      { return binary.LittleEndian.Uint64(h[16:]) }
func (h *head) offset() uint64      { return binary.LittleEndian.Uint64(h[24:]) }
func (h *head) size() uint64        { return binary.LittleEndian.Uint64(h[32:]) }

// messageOps holds the operations in progress by messages. Only the worker's goroutine
// uses it.
type messageOps struct {
	last uint64
	// asked holds our operations that the peer has not answered.
	asked map[uint64]*op
	// told holds those that it has answered.
	told []*op
	// tasks holds the peer's messages that we have to process.
	tasks []*task
	spare spares[task]
}

// task is a message that needs further processing.
type task struct {
	// answer, with payload, is sent when the data is in place.
	answer  head
	answers bool
	payload []byte
	// data is the data to be fetched into place; 0 means none, and with a nil
	// place it is not fetched.
	data  uintptr
	place []byte
	// export is held for the peer; op is our operation that receives the data.
	export *export
	op     *op
	// begun means that the task waits for req.
	begun  bool
	req    request
	status Status
}

// ask sends an operation to the peer.
func (p *Provider) ask(o *op) {
	t := &p.messages
	t.last++
	t.asked[t.last] = o
	o.head = makeHead(o.kind, 0, t.last, o.window, o.at, uint64(len(o.mem)))
	var payload []byte
	if o.kind == wire.KindPut {
		payload = o.mem
	}
	o.req, o.status = p.call.send(p.endpoint, &o.head, payload).started()
	if o.status.failed() {
		p.end(p.lost("ucp_am_send_nbx", o.status))
	}
}

// message is called by the library, while the worker makes progress, with a
// message of the peer, which is not trusted. Its result tells the library whether
// the data is kept.
func (p *Provider) message(raw []byte, data, size uintptr, fetched bool) Status {
	if len(raw) != headSize {
		p.end(fmt.Errorf("transport ucx: invalid message from the peer: %w: header of %d bytes", ErrOffer, len(raw)))
		return statusOK
	}
	h := head(raw)
	t := p.messages.spare.take()
	if fetched {
		t.data = data
	}
	var eager []byte
	if !fetched && size > 0 {
		eager = dl.Bytes(data, int(size))
	}
	switch h.kind() {
	case wire.KindPut:
		p.served(t, &h, wire.Writable, uint64(size))
		t.answer[0] = byte(wire.KindAck)
		copy(t.place, eager)
	case wire.KindGet:
		p.served(t, &h, wire.Readable, h.size())
		t.answer[0], t.payload, t.place = byte(wire.KindData), t.place, nil
	case wire.KindAck, wire.KindData:
		p.answered(t, &h, uint64(size), eager)
	default:
		p.end(fmt.Errorf("transport ucx: invalid message from the peer: %w: unexpected %s", ErrOffer, h.kind()))
	}
	p.messages.tasks = append(p.messages.tasks, t)
	if fetched {
		return statusInProgress
	}
	return statusOK
}

// served finds the n bytes of memory that the peer requests, checks that access
// is allowed, and prepares the answer.
func (p *Provider) served(t *task, h *head, need wire.Rights, n uint64) {
	e, status := p.use(h.window(), need, h.offset(), n)
	t.answer, t.answers = makeHead(0, status, h.number()), true
	if e != nil {
		t.export, t.place = e, e.buffer.Host(devices.Offset(h.offset()), devices.Size(n))
	}
}

// answered handles the answer to an operation of ours, with n bytes.
func (p *Provider) answered(t *task, h *head, n uint64, eager []byte) {
	o := p.messages.asked[h.number()]
	var want uint64
	if h.kind() == wire.KindData && h.status() == wire.StatusOK && o != nil {
		want = uint64(len(o.mem))
	}
	if o == nil || (h.kind() == wire.KindAck) != (o.kind == wire.KindPut) || n != want {
		p.end(fmt.Errorf("transport ucx: invalid message from the peer: %w: unexpected answer", ErrOffer))
		return
	}
	delete(p.messages.asked, h.number())
	o.refusal = h.status()
	t.op = o
	if want > 0 {
		t.place = o.mem
		copy(t.place, eager)
	}
}

// attend advances the tasks, and completes the operations in told. It returns the
// number of tasks that ended.
func (p *Provider) attend() (n int) {
	t := &p.messages
	t.tasks = slices.DeleteFunc(t.tasks, func(k *task) bool {
		if !p.advance(k) {
			return false
		}
		p.finish(k)
		n++
		return true
	})
	t.told = slices.DeleteFunc(t.told, func(o *op) bool {
		if !p.call.settled(&o.req, &o.status) {
			return false
		}
		p.conclude(o)
		return true
	})
	return n
}

// advance performs the next steps of a task, and reports whether it is complete.
func (p *Provider) advance(k *task) bool {
	for {
		switch {
		case k.begun:
			if !p.call.settled(&k.req, &k.status) {
				return false
			}
			k.begun = false
			if k.status.failed() {
				p.end(p.lost("transfer of a message", k.status))
				return true
			}
		case k.data != 0 && k.place == nil:
			p.call.decline(p.worker, k.data)
			k.data = 0
		case k.data != 0:
			k.start(p.call.fetch(p.worker, k.data, k.place))
			k.data = 0
		case k.answers:
			k.start(p.call.send(p.endpoint, &k.answer, k.payload))
			k.answers = false
		default:
			return true
		}
	}
}

// start stores the request that the task waits for.
func (k *task) start(r request) {
	k.begun = true
	k.req, k.status = r.started()
}

// finish releases what a task has held.
func (p *Provider) finish(k *task) {
	if k.export != nil {
		p.unuse(k.export)
	}
	if k.op != nil {
		if k.status.failed() {
			k.op.status = k.status
		}
		p.messages.told = append(p.messages.told, k.op)
	}
	*k = task{}
	p.messages.spare = append(p.messages.spare, k)
}

// conclude completes an operation that was answered.
func (p *Provider) conclude(o *op) {
	var err error
	switch {
	case o.status.failed():
		p.end(p.lost("transfer of a message", o.status))
		err = p.Err()
	case o.refusal != wire.StatusOK:
		err = fmt.Errorf("transport ucx: refused by the peer: %s: %w", o.refusal, refused(o.refusal))
	}
	o.done.Complete(err)
	*o = op{}
	p.line.over = append(p.line.over, o)
}

// refused returns the error that callers see for a refusal.
func refused(s wire.Status) error {
	switch s {
	case wire.StatusRange:
		return devices.ErrRange
	case wire.StatusRights, wire.StatusKey:
		return errRefused
	default:
		return ErrOffer
	}
}

// errRefused reports a window that was closed, or does not allow the operation.
// Our own side has checked this, so it is a bug in one of the two libraries.
var errRefused = errors.New("ucx: the operation is not allowed by the window")
