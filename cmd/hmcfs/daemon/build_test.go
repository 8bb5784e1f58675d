package daemon

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
)

func TestHostIsAlwaysThere(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"sim:0", "host sim:0"},
		{"host", "host"},
		{"host,size=1GiB sim:0", "host,size=1GiB sim:0"},
		{"sim:0 host:0,size=1GiB", "sim:0 host:0,size=1GiB"},
		{"hosts:0", "host hosts:0"},
	} {
		if got := strings.Join(withHost(strings.Fields(c.in)), " "); got != c.want {
			t.Errorf("withHost(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestUndoRunsBackwardsAndOnce(t *testing.T) {
	var got string
	var u undo
	u.push(func() { got += "a" })
	u.push(func() { got += "b" })
	u.run()
	u.run()
	if got != "ba" {
		t.Errorf("ran %q", got)
	}
	u.push(func() { got += "c" })
	u.release()
	u.run()
	if got != "ba" {
		t.Errorf("ran %q after a release", got)
	}
}

func TestRefusedNamesTheHolder(t *testing.T) {
	held := &place.HeldError{Path: "/l", Holder: place.Holder{PID: 5, MountPoint: "/m"}}
	if got := refused("/m is already mounted", held, "unmount it"); got.Error() != "/m is already mounted by process 5, which serves /m; unmount it" {
		t.Error(got)
	}
	other := errors.New("disk on fire")
	if got := refused("x", other, "y"); !errors.Is(got, other) {
		t.Error(got)
	}
}

func TestAHolderThatEndsIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := place.Acquire(path, place.Holder{PID: 5, MountPoint: "/not/mounted"})
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, first.Remove)
	second, err := acquire(t.Context(), path, place.Holder{PID: 6})
	if err != nil {
		t.Fatal(err)
	}
	second.Release()
}
