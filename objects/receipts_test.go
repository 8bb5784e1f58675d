package objects_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects"
)

// noteReceipts removes a file with receipts, which are in the records then, and notes each by itself.
func (r *rig) noteReceipts(count int) (texts []string) {
	r.t.Helper()
	for i := range count {
		texts = append(texts, fmt.Sprint("receipt ", 100_000+i))
	}
	r.close(r.create("sim0", "received"))
	one := []metadata.Removal{{Name: "received", Receipts: texts}}
	r.meta.UnlinkAll(r.ctx(), r.root("sim0"), one, false)
	noError(r.t, one[0].Err)
	for _, text := range texts {
		r.store.NoteReceipts(text)
	}
	return texts
}

// checkReceipts checks which receipts the records have.
func (r *rig) checkReceipts(when string, want []string) {
	r.t.Helper()
	all, err := metadata.ReceiptsOf(r.meta).List(r.ctx())
	noError(r.t, err)
	if !slices.Equal(all, want) {
		r.t.Errorf("%s: %d receipts, want %d", when, len(all), len(want))
	}
}

// TestReceiptsEnd has more receipts than are dropped in one transaction: none is left when their time is over.
func TestReceiptsEnd(t *testing.T) {
	k := newKeptRig(t, sim.Params{Size: 32 << 20})
	texts := k.noteReceipts(10_000)
	k.store.DropReceipts(k.ctx(), time.Now().Add(50*time.Second))
	k.checkReceipts("before their end", texts)
	k.store.DropReceipts(k.ctx(), time.Now().Add(70*time.Second))
	k.checkReceipts("after their end", nil)
}

// TestReceiptsBounded has so many receipts that the first are dropped before their end, but none that the run
// before has noted.
func TestReceiptsBounded(t *testing.T) {
	k := newKeptRig(t, sim.Params{Size: 32 << 20})
	texts := k.noteReceipts(10)
	many := make([]string, objects.ReceiptsMost-5)
	k.store.NoteReceipts(many...)
	k.store.DropReceipts(k.ctx(), time.Now())
	k.checkReceipts("after many others", texts[5:])
	k.absent, k.late = time.Minute, true
	k.killAnd(func() {})
	k.store.DropReceipts(k.ctx(), time.Now().Add(70*time.Second))
	k.checkReceipts("before sessions can come back", texts[5:])
	k.store.AwaitOwners()
	k.store.NoteReceipts(many...)
	k.store.NoteReceipts(many...)
	k.store.DropReceipts(k.ctx(), time.Now())
	k.checkReceipts("of the run before", texts[5:])
	k.store.DropReceipts(k.ctx(), time.Now().Add(70*time.Second))
	k.checkReceipts("of the run before, after their end", nil)
}

// TestReceiptsOfNobody opens a store to which no session comes back.
func TestReceiptsOfNobody(t *testing.T) {
	r := newRig(t, sim.Params{Size: 32 << 20})
	r.noteReceipts(10_000)
	noError(t, r.store.Close(t.Context(), objects.CloseOptions{Keep: true}))
	r.reopen()
	r.checkReceipts("after a start", nil)
}

// TestReceivedBy has a call of another node receive a publication: the next store knows that for a while.
func TestReceivedBy(t *testing.T) {
	k := newKeptRig(t, sim.Params{Size: 32 << 20})
	k.absent = time.Minute
	call, none := objects.CallID{1}, objects.CallID{2}
	for key, of := range map[string]objects.CallID{"k": call, "none": {}} {
		k.mustOffer("sim0", key, 1, 100)
		h := k.store.NewHolder(objects.Caller{})
		c, err := h.Claim(k.ctx(), key, false)
		noError(t, err)
		noError(t, c.TakeFor(k.ctx(), of))
		noError(t, h.Close(k.ctx()))
	}
	for range 2 {
		k.kill()
		if k.isPublished("k") || !objects.ReceivedBy(k.store, call) || objects.ReceivedBy(k.store, none) || objects.ReceivedBy(k.store, objects.CallID{}) {
			t.Errorf("published is %v, and received %v, %v", k.isPublished("k"), objects.ReceivedBy(k.store, call), objects.ReceivedBy(k.store, none))
		}
	}
	k.store.AwaitOwners()
	k.store.DropReceipts(k.ctx(), time.Now().Add(70*time.Second))
	k.checkReceipts("after their end", nil)
}
