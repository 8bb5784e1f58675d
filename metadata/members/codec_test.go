package members

import (
	"strings"
	"testing"
	"time"
)

// golden is a record as written by nodes of this version.
const golden = `{"name":"a","addresses":["10.0.0.1:7070"],"epoch":7,"id":"x",` +
	`"devices":[{"name":"sim0","model":"m","total":9}],"version":"v","started":"2026-01-02T03:04:05Z"}`

func TestCodec(t *testing.T) {
	want := Record{
		Name: "a", Addresses: []string{"10.0.0.1:7070"}, Epoch: 7, ID: "x", Version: "v",
		Devices: []Device{{Name: "sim0", Model: "m", Total: 9}}, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	p, err := encode(want)
	if err != nil || string(p) != golden {
		t.Errorf("encoded %s, %v", p, err)
	}
	later := strings.Replace(golden, `{`, `{"later":[1,{}],`, 1)
	for _, text := range []string{golden, later} {
		if got, err := decode("nodes/a", []byte(text)); err != nil || !got.equal(want) {
			t.Errorf("decoded %+v, %v", got, err)
		}
	}
	for _, bad := range []string{
		"", "null", "[]", `{"name":"b"}`, `{"name":"a","epoch":-1}`, `{"name":"a","addresses":"x"}`,
		`{"name":"a","version":"` + strings.Repeat("x", 300) + `"}`, `{"name":"a","id":"` + strings.Repeat("x", 1<<17) + `"}`,
	} {
		if r, err := decode("nodes/a", []byte(bad)); err == nil {
			t.Errorf("%.40q is %+v", bad, r)
		}
	}
	if _, err := decode("nodes/../a", []byte(`{"name":"../a"}`)); err == nil {
		t.Error("a name with a slash")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("nodes/a", []byte(golden))
	f.Fuzz(func(t *testing.T, name string, p []byte) {
		r, err := decode(name, p)
		if err != nil {
			return
		}
		if err = r.Validate(); err != nil || prefix+string(r.Name) != name {
			t.Errorf("%q: %+v, %v", name, r, err)
		}
		all := len(r.Addresses)
		if refused := r.limitAddresses(nil); len(refused)+len(r.Addresses) != all {
			t.Errorf("%q: %d addresses, of which %q are used and %q are not", name, all, r.Addresses, refused)
		}
		for _, text := range r.Addresses {
			if from, err := reachOf(text); !strings.HasPrefix(text, "unix:") && (err != nil || from != anywhere) {
				t.Errorf("%q is used: %v, %v", text, from, err)
			}
		}
	})
}
