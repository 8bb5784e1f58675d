package metadata_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/tests/fault/metadata/faulty"
	"github.com/hmcfs/hmcfs/tests/memkv"
)

// TestPurgeAtOpen makes the removal of a large file's records fail at each step after the
// file itself was removed: the next Open completes it.
func TestPurgeAtOpen(t *testing.T) {
	ctx := t.Context()
	finished := 0
	for i := 0; finished == 0; i++ {
		base := memkv.New()
		var c faulty.Counter
		e := newErrorsEnv(t, base, &c)
		in, err := e.s.Create(ctx, e.dev, "big", benchFile())
		if err != nil {
			t.Fatal(err)
		}
		if _, err = e.s.SaveContent(ctx, in.Ino, nil, bigMappings(50)); err != nil {
			t.Fatal(err)
		}
		for n := range 40 {
			if err = e.s.SetXattr(ctx, in.Ino, fmt.Sprint("user.", n), nil, 0); err != nil {
				t.Fatal(err)
			}
		}
		c.Arm(i)
		gone, err := e.s.Unlink(ctx, e.dev, "big")
		if !c.Disarm() {
			finished++
		}
		if errors.Is(err, faulty.ErrInjected) {
			continue
		}
		if err != nil || gone.Nlink != 0 {
			t.Fatalf("Unlink with operation %d failing = %+v, %v", i, gone, err)
		}
		checkClean(t, e.s)
		if _, err := metadata.Open(ctx, base, metadata.Options{}); err != nil {
			t.Fatal(err)
		}
		// S, two devices, four directories, two entries.
		if text := dump(t, base); strings.Count(text, "\n") != 9 {
			t.Fatalf("operation %d failed, and after the next Open there is still\n%s", i, text)
		}
	}
}
