package admin

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// FuzzCall decodes arbitrary bodies of a call: an accepted call is encoded to the same text
// again, and uses no more memory than was reserved.
func FuzzCall(f *testing.F) {
	for _, text := range []string{
		`{"keys":["a","b"],"lists":[{"device":"sim0","blobs":[{"memory":1,"off":5,"size":7}],"source_offset":-1}],"timeout":"20s"}`,
		`{"keys":["a"],"ttl":"1h","existing":"replace","async":true}`,
		`{"memory":18446744073709551615}`, `{}`, `null`, `{"lists":[null,{},{"blobs":[{},null]}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var q, again adminapi.Call
		if sparseCall(text) != nil || adminapi.Unmarshal(text, &q) != nil {
			return
		}
		if got := weight(&q); got > 2*48*int64(len(text)) {
			t.Errorf("%d bytes of text weigh %d", len(text), got)
		}
		written, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		if err = adminapi.Unmarshal(written, &again); err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		if twice, err := json.Marshal(again); err != nil || string(twice) != string(written) {
			t.Errorf("%s is read as %s, %v", written, twice, err)
		}
	})
}

// FuzzRegister decodes arbitrary requests to register with any number of descriptors:
// accepted memory is of exactly one kind, with all descriptors received.
func FuzzRegister(f *testing.F) {
	for _, text := range []string{
		`{"device":"sim0","memory":{"family":"sim","size":8,"pieces":[{"kind":"memfd","fd":0,"size":8}]}}`,
		`{"file":true}`, `{"target":true}`, `{"number":-1}`, `{"file":true,"memory":{}}`,
	} {
		f.Add([]byte(text), uint8(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, count uint8) {
		var r adminapi.Register
		if adminapi.Unmarshal(text, &r) != nil {
			return
		}
		m, err := memoryOf(r, make([]*os.File, count))
		if err != nil {
			return
		}
		named := r.File || r.Target
		if (m.Share != nil) == named || named && count != 1 || !named && len(m.Files) != int(count) || m.Local != nil {
			t.Errorf("%s with %d descriptors is %+v", text, count, m)
		}
	})
}
