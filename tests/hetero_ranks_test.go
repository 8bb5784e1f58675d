package tests

import (
	"fmt"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// Eight processes set keys and publish for each other, concurrently, and read from all others,
// without a deadlock. A19.
func TestA19EightRanksAllToAll(t *testing.T) {
	for name, uid := range map[string]uint32{"root": 0, "another user": alice} {
		t.Run(name, func(t *testing.T) {
			kit.Check(t)
			m := mnt.Mount(t, mnt.Options{AllowOther: true})
			for _, how := range []struct {
				name    string
				set     adminapi.Verb
				get     adminapi.Verb
				keyFrom func(from, to int) string
			}{
				{"set and get", adminapi.VerbMSet, adminapi.VerbMGet, func(from, _ int) string { return fmt.Sprintf("set-%d", from) }},
				{"publish and subscribe", adminapi.VerbPublish, adminapi.VerbSubscribe, func(from, to int) string {
					return fmt.Sprintf("pub-%d-%d", from, to)
				}},
			} {
				t.Run(how.name, func(t *testing.T) { allToAll(t, m, uid, how.set, how.get, how.keyFrom) })
			}
		})
	}
}

const (
	rankCount = 8
	partSize  = 64 << 10
)

// part returns one part of a rank's memory: the first is its own, the others receive those of
// all ranks.
func (r *rank) part(i int) hetero.DeviceBlobList {
	return hetero.DeviceBlobList{Device: r.device, Blobs: []hetero.Blob{{
		Memory: 1, Off: devices.Offset(i * partSize), Size: partSize,
	}}}
}

func allToAll(t *testing.T, m *mnt.M, uid uint32, set, get adminapi.Verb, key func(from, to int) string) {
	ranks := make([]*rank, rankCount)
	for i := range ranks {
		ranks[i] = startRank(t, m, uid, []string{"sim0", "sim1", "host"}[i%3], uint64(i), (rankCount+1)*partSize)
	}
	lines := make([]int, rankCount)
	for to, r := range ranks {
		given, gotten := adminapi.Call{}, adminapi.Call{Timeout: adminapi.Duration(mntPatience)}
		for other := range ranks {
			if other == to {
				continue
			}
			if set == adminapi.VerbPublish || len(given.Keys) == 0 {
				given.Keys, given.Lists = append(given.Keys, key(to, other)), append(given.Lists, r.part(0))
			}
			gotten.Keys, gotten.Lists = append(gotten.Keys, key(other, to)), append(gotten.Lists, r.part(1+other))
		}
		r.send(set, given)
		r.send(get, gotten)
		lines[to] = len(given.Keys) + len(gotten.Keys)
	}
	for to, r := range ranks {
		for range lines[to] {
			if s := r.ends(); s.Code != "" {
				t.Fatalf("rank %d: %+v", to, s)
			}
		}
		for other := range ranks {
			got := make([]byte, partSize)
			_, err := r.memory.ReadAt(got, int64(1+other)*partSize)
			must(t, err)
			if other == to {
				continue
			}
			if at := kit.DiffAt(got, uint64(other), 0); at >= 0 {
				t.Errorf("rank %d: byte %d of rank %d's is wrong", to, at, other)
			}
		}
	}
}
