package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/metadata/members"
)

// TestOptions reports every fault at once, and replaces zero values.
func TestOptions(t *testing.T) {
	bad := Options{Squash: Squash{Mode: "some"}, Timeout: -1}
	err := bad.Validate()
	if err == nil {
		t.Fatal("taken")
	}
	for _, part := range []string{"no view", "no store", "no engine", "no secret", `squash "some"`, "negative time limit"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not told: %v", part, err)
		}
	}
	view, err := members.Static(members.StaticOptions{Self: members.Record{Name: "a", Addresses: []string{"127.0.0.1:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{View: view, Secret: []byte("x")}
	o.EnsureDefaults()
	if err = o.Validate(); err == nil || strings.Contains(err.Error(), "view") {
		t.Errorf("%v", err)
	}
	want := Squash{Mode: SquashRoot, UID: Nobody, GID: Nobody}
	if o.Squash != want || o.Timeout != DefaultTimeout || o.DialTimeout != DefaultDialTimeout || o.AttrTTL != time.Second || o.Channels != DefaultChannels {
		t.Errorf("defaults: %+v", o)
	}
}
