package share_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/share"
)

const good = `{"family":"cuda","device":"GPU-8f","pid":4711,"size":4096,"dtype":"float32","shape":"32,32",` +
	`"pieces":[{"kind":"ipc","handle":"00ff","offset":0,"size":4000},{"kind":"vmm-fd","fd":0,"offset":8,"size":96,"allocation":104}]}`

func TestParseAndString(t *testing.T) {
	m, err := share.Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if m.Family != "cuda" || m.PID != 4711 || m.Size != 4096 || len(m.Pieces) != 2 || *m.Pieces[1].FD != 0 || m.Pieces[1].Offset != 8 {
		t.Errorf("parsed as %+v", m)
	}
	if m.String() != good {
		t.Errorf("written as\n%s\nwant\n%s", m, good)
	}
	m, err = share.Parse([]byte(`{"family":"sim","pieces":[{"kind":"memfd","path":"/dev/shm/x","size":5},{"kind":"memfd","fd":3,"size":7}]}`))
	if err != nil || m.Size != 12 {
		t.Errorf("a size that is not given: %d, %v", m.Size, err)
	}
}

func TestParseRefuses(t *testing.T) {
	piece := func(p string) string { return `{"family":"sim","pieces":[` + p + `]}` }
	many := strings.Repeat(`{"kind":"memfd","fd":3,"size":1},`, share.MaxPieces+1)
	for name, text := range map[string]string{
		"nothing":            ``,
		"no JSON":            `cuda:00ff`,
		"a list":             `[]`,
		"text behind":        good + `{}`,
		"unknown field":      strings.Replace(good, `"pid"`, `"pidd"`, 1),
		"no family":          strings.Replace(good, `"cuda"`, `""`, 1),
		"negative pid":       strings.Replace(good, `4711`, `-1`, 1),
		"wrong size":         strings.Replace(good, `4096`, `4097`, 1),
		"negative size":      strings.Replace(good, `4096`, `-1`, 1),
		"no pieces":          `{"family":"sim","size":0,"pieces":[]}`,
		"unknown kind":       piece(`{"kind":"shm","fd":1,"size":1}`),
		"no kind":            piece(`{"fd":1,"size":1}`),
		"empty piece":        piece(`{"kind":"memfd","fd":1,"size":0}`),
		"negative offset":    piece(`{"kind":"memfd","fd":1,"size":1,"offset":-1}`),
		"overflow":           piece(`{"kind":"memfd","fd":1,"size":9223372036854775807,"offset":1}`),
		"sum overflows":      piece(`{"kind":"memfd","fd":1,"size":9223372036854775807},{"kind":"memfd","fd":1,"size":9223372036854775807},{"kind":"memfd","fd":1,"size":2}`),
		"behind allocation":  piece(`{"kind":"ipc","handle":"00","size":8,"offset":1,"allocation":8}`),
		"odd digits":         piece(`{"kind":"ipc","handle":"000","size":8}`),
		"no digits":          piece(`{"kind":"ipc","handle":"zz","size":8}`),
		"no handle":          piece(`{"kind":"ipc","size":8}`),
		"handle with fd":     piece(`{"kind":"ipc","handle":"00","fd":3,"size":8}`),
		"descriptor and hex": piece(`{"kind":"memfd","handle":"00","fd":3,"size":8}`),
		"no descriptor":      piece(`{"kind":"memfd","size":8}`),
		"negative fd":        piece(`{"kind":"memfd","fd":-1,"size":8}`),
		"relative path":      piece(`{"kind":"memfd","path":"shm/x","size":8}`),
		"zero in path":       piece(`{"kind":"memfd","path":"/a\u0000b","size":8}`),
		"long path":          piece(`{"kind":"memfd","path":"/` + strings.Repeat("a", 5000) + `","size":8}`),
		"long handle":        piece(`{"kind":"ipc","handle":"` + strings.Repeat("00", 5000) + `","size":8}`),
		"too many":           piece(strings.TrimSuffix(many, ",")),
		"too long":           `{"family":"` + strings.Repeat("a", share.MaxText) + `"}`,
	} {
		if m, err := share.Parse([]byte(text)); !errors.Is(err, devices.ErrHandle) {
			t.Errorf("%s: %+v, %v, want ErrHandle", name, m, err)
		}
	}
}

func TestParseTakesManyPieces(t *testing.T) {
	var text strings.Builder
	text.WriteString(`{"family":"sim","pieces":[`)
	for i := range share.MaxPieces {
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, `{"kind":"memfd","fd":3,"offset":%d,"size":4096}`, i*4096)
	}
	text.WriteString(`]}`)
	m, err := share.Parse([]byte(text.String()))
	if err != nil || len(m.Pieces) != share.MaxPieces || m.Size != share.MaxPieces*4096 {
		t.Errorf("%d pieces, %d bytes, %v", len(m.Pieces), m.Size, err)
	}
}

// FuzzParse looks for a text that breaks the parser, and for one that is accepted although its
// value does not survive a round trip.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"family":"sim","pieces":[{"kind":"memfd","path":"/dev/shm/x","size":5}]}`))
	f.Add([]byte(`{"family":"sim","size":1e3,"pieces":[{"kind":"memfd","fd":1,"size":18446744073709551615}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := share.Parse(text)
		if err != nil {
			if !errors.Is(err, devices.ErrHandle) {
				t.Fatalf("unexpected kind of error: %v", err)
			}
			return
		}
		var sum devices.Size
		for i := range m.Pieces {
			p := &m.Pieces[i]
			if p.Size == 0 || uint64(p.Offset)+uint64(p.Size) < uint64(p.Size) {
				t.Fatalf("taken although piece %d is none: %+v", i, p)
			}
			sum += p.Size
		}
		if sum != m.Size {
			t.Fatalf("taken although %d is not the sum %d", m.Size, sum)
		}
		again, err := share.Parse([]byte(m.String()))
		if err != nil || again.String() != m.String() {
			t.Fatalf("%s comes back as %s, %v", m, again, err)
		}
	})
}
