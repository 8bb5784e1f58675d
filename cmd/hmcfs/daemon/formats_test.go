package daemon

import (
	"maps"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// TestCanFollow compares the formats that a daemon leaves with those that a program reads.
func TestCanFollow(t *testing.T) {
	const name = "record: inode"
	mine := formats()[name].Newest
	for what, c := range map[string]struct {
		change func(all map[string]adminapi.Format)
		want   string
	}{
		"the same":            {func(map[string]adminapi.Format) {}, ""},
		"newer":               {func(all map[string]adminapi.Format) { all[name] = adminapi.Format{Oldest: 1, Newest: mine + 1} }, ""},
		"another one besides": {func(all map[string]adminapi.Format) { all["more"] = adminapi.Format{Oldest: 1, Newest: 1} }, ""},
		"older":               {func(all map[string]adminapi.Format) { all[name] = adminapi.Format{Oldest: 1, Newest: mine - 1} }, name},
		"too new":             {func(all map[string]adminapi.Format) { all[name] = adminapi.Format{Oldest: mine + 1, Newest: mine + 2} }, name},
		"it does not say":     {func(all map[string]adminapi.Format) { clear(all) }, "does not say"},
		"an unknown one":      {func(all map[string]adminapi.Format) { delete(all, "device memory") }, `"device memory"`},
		"other messages":      {func(all map[string]adminapi.Format) { all[protocolOfHolder] = adminapi.Format{} }, "0 to 0"},
		"another state of it": {func(all map[string]adminapi.Format) {
			all["state of the mount"] = adminapi.Format{Oldest: 9, Newest: 9}
		}, "9 to 9"},
		"another device memory": {func(all map[string]adminapi.Format) { all["device memory"] = adminapi.Format{Oldest: 9, Newest: 9} }, "9 to 9"},
	} {
		t.Run(what, func(t *testing.T) {
			program := adminapi.Version{Version: "1.2.3", Formats: maps.Clone(formats())}
			c.change(program.Formats)
			err := canFollow(formats(), program)
			if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "1.2.3")) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestCanFollowAll leaves each format to programs that don't know it, and to those that read older or newer versions only.
func TestCanFollowAll(t *testing.T) {
	left := formats()
	for _, name := range []string{
		"record: store", "record: binding", "journal of the records", "device memory", "bound memory", "memory of sessions", "receipts", "state of the mount", protocolOfHolder,
	} {
		is := left[name].Newest
		if is == 0 {
			t.Errorf("the format %q is not listed", name)
		}
		for what, reads := range map[string]adminapi.Format{"older": {Newest: is - 1}, "newer": {Oldest: is + 1, Newest: is + 1}, "none": {}} {
			program := adminapi.Version{Version: "1.2.3", Formats: maps.Clone(left)}
			program.Formats[name] = reads
			if what == "none" {
				delete(program.Formats, name)
			}
			if err := canFollow(left, program); err == nil || !strings.Contains(err.Error(), `"`+name+`"`) {
				t.Errorf("%s versions of %q: %v", what, name, err)
			}
		}
	}
}
