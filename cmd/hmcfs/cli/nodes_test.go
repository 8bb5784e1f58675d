package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// TestNodeElsewhere has a node connected from a host that is not among its addresses.
func TestNodeElsewhere(t *testing.T) {
	for _, c := range []struct {
		listed, remote, want string
	}{
		{"10.0.0.2:7070", "10.0.0.9:40000", "10.0.0.2:7070, connected from 10.0.0.9"},
		{"10.0.0.2:7070", "10.0.0.2:40000", "10.0.0.2:7070"},
		{"[fd00::2]:7070", "[fd00::2]:40000", "[fd00::2]:7070"},
		{"b.lab:7070", "10.0.0.2:40000", "b.lab:7070, connected from 10.0.0.2"},
		{"10.0.0.2:7070", "", "10.0.0.2:7070"},
	} {
		n := members.Peer{Record: members.Record{Name: "b", Addresses: []string{c.listed}}, Connected: true, Remote: c.remote}
		if got := nodeAddress(n); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestNodesOnATerminal: texts from other machines are printed on one line, whatever they
// contain.
func TestNodesOnATerminal(t *testing.T) {
	evil := "1\x1b]0;x\a\n\tb"
	var out bytes.Buffer
	err := printNodes(&out, adminapi.Cluster{Nodes: []members.Peer{{
		Record:  members.Record{Name: "b", Version: evil, Addresses: []string{evil}, Devices: []members.Device{{Name: evil}}},
		Problem: evil,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.ContainsAny(text, "\x1b\a\t") || strings.Count(text, "\n") != 3 {
		t.Errorf("%q", text)
	}
}
