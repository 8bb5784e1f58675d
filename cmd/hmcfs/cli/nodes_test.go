package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// TestNodesOnATerminal: what other machines say of themselves is one line of
// text, whatever it is.
func TestNodesOnATerminal(t *testing.T) {
	evil := "1\x1b]0;x\a\n\tb"
	var out bytes.Buffer
	err := printNodes(&out, adminapi.Cluster{Nodes: []adminapi.Node{{
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
