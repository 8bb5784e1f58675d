package admin

import (
	"os"
	"testing"

	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// FuzzHandlesOf reads any request with any number of descriptors: there is a
// handle for each piece, or none, and nothing is left open.
func FuzzHandlesOf(f *testing.F) {
	for _, text := range []string{
		`{"memory":{"family":"sim","size":8,"pieces":[{"kind":"memfd","fd":0,"offset":0,"size":8}]}}`,
		`{"memory":{"family":"sim","size":8,"pieces":[{"kind":"memfd","fd":1,"offset":0,"size":4},{"kind":"memfd","fd":0,"offset":4,"size":4}]}}`,
		`{"memory":{"family":"cuda","size":8,"pieces":[{"kind":"ipc","handle":"00ff","offset":0,"size":4},{"kind":"vmm-fd","fd":0,"offset":4,"size":4}]}}`,
		`{"memory":{"family":"sim","size":8,"pieces":[{"kind":"memfd","fd":-1,"offset":0,"size":8}]}}`,
		`{"path":"a","memory":{"family":"sim","size":8,"pieces":[]}}`,
	} {
		f.Add([]byte(text), uint8(1))
		f.Add([]byte(text), uint8(2))
	}
	f.Fuzz(func(t *testing.T, text []byte, count uint8) {
		var r adminapi.BindRequest
		if adminapi.Unmarshal(text, &r) != nil || len(r.Memory.Pieces) > 100 {
			return
		}
		before := openDescriptors(t)
		var q question
		for range count % 8 {
			null, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			q.memory = append(q.memory, null)
		}
		handles, err := objects.HandlesOf(r.Memory, q.memory)
		switch {
		case err != nil && handles != nil:
			t.Errorf("%d handles with %v", len(handles), err)
		case err == nil && len(q.memory) > 0 && len(handles) != len(r.Memory.Pieces):
			t.Errorf("%d handles of %d pieces", len(handles), len(r.Memory.Pieces))
		}
		for i, h := range handles {
			if (h.File != nil) != (r.Memory.Pieces[i].FD != nil) {
				t.Errorf("piece %d has another descriptor than it tells", i)
			}
		}
		objects.CloseHandles(handles)
		adminapi.CloseAll(q.memory)
		if after := openDescriptors(t); after != before {
			t.Errorf("%d descriptors are open, %d were before", after, before)
		}
	})
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
