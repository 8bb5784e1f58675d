package cluster

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// TestManyEndedClaims: a node that ends any number of claims does not cause those of another
// node to be forgotten, which may ask again for the outcome of its own.
func TestManyEndedClaims(t *testing.T) {
	table := newClaims(nil)
	end := func(n uint32, rank wire.Rank) claimID {
		var id claimID
		binary.LittleEndian.PutUint32(id[:], n)
		table.mu.Lock()
		defer table.mu.Unlock()
		close(table.endLocked(id, &claim{rank: rank}, true).done)
		return id
	}
	honest := end(0, 1)
	for n := uint32(1); n < 5*maxEnded; n++ {
		end(n, 2)
	}
	table.mu.Lock()
	defer table.mu.Unlock()
	if table.ended[honest] == nil || len(table.ended) > maxEnded+512 {
		t.Errorf("%d are known, with that of the other: %v", len(table.ended), table.ended[honest] != nil)
	}
	table.forgetLocked(time.Now().Add(2 * claimMemory))
	if len(table.ended) > 0 {
		t.Errorf("%d are known for ever", len(table.ended))
	}
}
