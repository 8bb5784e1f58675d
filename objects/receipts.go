package objects

import (
	"context"
	"crypto/sha256"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/metadata"
)

// receiptsKept is the time for which it is noted that a publication was received. A program that
// has not read the answer by then was disconnected.
const receiptsKept = time.Minute

// receiptsMost bounds the receipts of this run that are kept for so long; those above it are dropped sooner, the oldest first.
// While so many are noted, a program has had the time to read an answer, or it was disconnected.
const receiptsMost = 1 << 18

// receiptsStep is the time for which receipts are kept longer than they need, so that they are in few groups.
const receiptsStep = time.Second

// receipts are the notes that publications were received: a session that asks again, because the
// daemon has died before it answered, learns from them that this has happened. They are written with
// the removal of the publication's name.
type receipts struct {
	meta *metadata.Store
	log  *zap.Logger

	mu sync.Mutex
	// asked is the end of the time in which sessions of the run before ask again. It is not known as long as
	// pending is set, since they can't come back yet.
	// +checklocks:mu
	asked time.Time
	// +checklocks:mu
	pending bool
	// known are those of the run before, and those of this one until then.
	// +checklocks:mu
	known map[string]struct{}
	// before are the receipts of the run before, until they are dropped.
	// +checklocks:mu
	before []string
	// noted are those of this run, in the order of their ends, and count is their number.
	// +checklocks:mu
	noted []noted
	// +checklocks:mu
	count int
}

// noted are receipts that are dropped together.
type noted struct {
	until time.Time
	texts []string
}

// receiptVersion is the version of the receipts' texts.
const receiptVersion = 1

// receiptOf returns the receipt of one key of a call of a session.
func receiptOf(holder sessionID, call uint64, key string) string {
	return string(holder[:]) + "/" + strconv.FormatUint(call, 10) + "/" + key
}

// load reads the receipts of the run before. If no session of it comes back, it drops them.
func (r *receipts) load(ctx context.Context, comes bool) error {
	all, err := metadata.ReceiptsOf(r.meta).List(ctx)
	if err != nil {
		return err
	}
	if !comes {
		r.remove(ctx, all)
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range all {
		r.known[text] = struct{}{}
	}
	r.before, r.pending = all, true
	return nil
}

// begin begins the time in which sessions of the run before ask again.
func (r *receipts) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending {
		r.asked, r.pending = time.Now().Add(receiptsKept+receiptsStep), false
	}
}

// note records that receipts were noted.
func (r *receipts) note(texts []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if last := len(r.noted) - 1; last < 0 || r.noted[last].until.Before(now.Add(receiptsKept)) {
		r.noted = append(r.noted, noted{until: now.Add(receiptsKept + receiptsStep)})
	}
	last := &r.noted[len(r.noted)-1]
	last.texts = append(last.texts, texts...)
	r.count += len(texts)
	if r.pending || now.Before(r.asked) {
		for _, text := range texts {
			r.known[text] = struct{}{}
		}
	}
}

// has reports whether a receipt was noted, for a call that is asked again.
func (r *receipts) has(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, found := r.known[text]
	return found
}

// start drops receipts when nobody can ask for them any more.
func (r *receipts) start(ctx context.Context, work *sync.WaitGroup) {
	work.Go(func() {
		tick := time.NewTicker(receiptsStep)
		defer tick.Stop()
		for {
			select {
			case now := <-tick.C:
				r.drop(ctx, now)
			case <-ctx.Done():
				return
			}
		}
	})
}

// drop drops the receipts that nobody can ask for at a time, and those that are too many.
func (r *receipts) drop(ctx context.Context, now time.Time) { r.remove(ctx, r.over(now)) }

// remove removes receipts from the records.
func (r *receipts) remove(ctx context.Context, over []string) {
	for at := 0; at < len(over) && ctx.Err() == nil; at += dropAtOnce {
		some := over[at:min(at+dropAtOnce, len(over))]
		if err := metadata.ReceiptsOf(r.meta).Drop(ctx, some); err != nil {
			r.log.Warn("could not remove the notes of received publications; the next start does", zap.Error(err))
		}
	}
}

// over removes the receipts that drop drops.
func (r *receipts) over(now time.Time) (over []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.pending && !r.asked.After(now) {
		over, r.before = r.before, nil
	}
	for len(r.noted) > 0 {
		first := &r.noted[0]
		n := len(first.texts)
		if first.until.After(now) {
			n = min(n, r.count-receiptsMost)
		}
		if n <= 0 {
			break
		}
		over = append(over, first.texts[:n]...)
		r.count -= n
		if first.texts = first.texts[n:]; len(first.texts) == 0 {
			r.noted = r.noted[1:]
		}
	}
	for _, text := range over {
		delete(r.known, text)
	}
	return over
}

// dropAtOnce bounds the receipts that are dropped in one transaction.
const dropAtOnce = 4096

// callKey is the key of a context's calledAs.
type callKey struct{}

// calledAs identifies a call of a session.
type calledAs struct {
	number uint64
	again  bool
}

// WithCall returns the context of a call of a session that may be continued by a later daemon: its number in the session, and
// whether it is asked again, since an earlier daemon has died before it answered.
func WithCall(ctx context.Context, number uint64, again bool) context.Context {
	return context.WithValue(ctx, callKey{}, calledAs{number, again})
}

// callOf returns the call that a context is of, 0 for none.
func callOf(ctx context.Context) calledAs {
	as, _ := ctx.Value(callKey{}).(calledAs)
	return as
}

// AskedAgain reports whether a context is that of a call that is asked again.
func AskedAgain(ctx context.Context) bool { return callOf(ctx).again }

// Received reports whether an earlier daemon has carried out a call that is asked again, as far as it
// concerns the receipt of a publication: as its publisher, or as its receiver.
func (h *Holder) Received(ctx context.Context, key string) bool {
	as := callOf(ctx)
	return h.id != (sessionID{}) && as.again && h.store.receipts.has(receiptOf(h.id, as.number, key))
}

// CallID identifies a call of a session, for one key, to other nodes, which do not learn the session's name. It is zero for none.
type CallID [16]byte

// CallID returns the identity of the call of a context; zero if no later daemon continues the session.
func (h *Holder) CallID(ctx context.Context, key string) (id CallID) {
	if text := h.receipt(ctx, key); text != "" {
		sum := sha256.Sum256([]byte(text))
		copy(id[:], sum[:])
	}
	return id
}

// receiptElsewhere returns the receipt of a call of a session of another node.
func receiptElsewhere(id CallID) string { return "elsewhere/" + string(id[:]) }

// ReceivedBy reports whether a call of another node has received a publication, from an earlier daemon of this one: see
// Claimed.TakeFor.
func ReceivedBy(s *Store, id CallID) bool { return s.receipts.has(receiptElsewhere(id)) }

// receipt returns the receipt of a key for the call of a context; empty if none is needed.
func (h *Holder) receipt(ctx context.Context, key string) string {
	as := callOf(ctx)
	if h.id == (sessionID{}) || as.number == 0 {
		return ""
	}
	return receiptOf(h.id, as.number, key)
}
