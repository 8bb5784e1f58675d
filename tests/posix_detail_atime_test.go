package tests

import (
	"os"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// TestReadsAndAccessTimes reads files twice under each mount option that determines when a
// read updates the access time.
func TestReadsAndAccessTimes(t *testing.T) {
	old := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	atime := func(t *testing.T, name string) time.Time {
		t.Helper()
		st := lstat(t, name)
		return time.Unix(st.Atim.Unix())
	}
	for _, c := range []struct {
		options string
		// first and again are true if the first read of a newly written file, and one after
		// that, update the access time.
		first, again bool
	}{
		{"relatime", true, false},
		{"noatime", false, false},
		{"strictatime", true, true},
		{"nodiratime", true, false},
		{"lazytime", true, false},
		{"noatime,strictatime", true, true},
	} {
		t.Run(c.options, func(t *testing.T) {
			everywhereWith(t, mnt.Options{Extra: []string{"-o", c.options}}, func(t *testing.T, p place) {
				if p.isTmpfs() {
					return // mounted without the option
				}
				name := p.path("f")
				create(t, name, 1, 5000)
				must(t, os.Chtimes(name, old, old.Add(time.Hour)))
				before := time.Now().Add(-time.Second)
				read := func(want bool) {
					t.Helper()
					was := atime(t, name)
					kit.ClockTick(t)
					wantContent(t, name, 1, 5000)
					is := atime(t, name)
					if noted := !is.Equal(was); noted != want || noted && is.Before(before) {
						t.Errorf("%s: atime was %v, is %v after a read; noted is to be %t", c.options, was, is, want)
					}
				}
				read(c.first)
				read(c.again)
			})
		})
	}
}

// TestAccessTimeStays sets the access time of files that the daemon serves, while it reads
// ahead: requests made earlier no longer change it.
func TestAccessTimeStays(t *testing.T) {
	everywhereWith(t, mnt.Options{Extra: []string{"--passthrough", "off"}}, func(t *testing.T, p place) {
		name := p.path("f")
		create(t, name, 1, 8<<20)
		part := make([]byte, 128<<10)
		for round := range kit.Rounds(10, 20, 200) {
			f, err := os.Open(name)
			must(t, err)
			for range 4 {
				_, err = f.Read(part)
				must(t, err)
			}
			set := time.Unix(1_000_000_000+int64(round), 0)
			must(t, os.Chtimes(name, set, time.Now()))
			must(t, f.Close())
			st := lstat(t, name)
			if got := time.Unix(st.Atim.Unix()); !got.Equal(set) {
				t.Fatalf("round %d: accessed %v, set %v", round, got, set)
			}
		}
	})
}
