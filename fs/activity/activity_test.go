package activity

import (
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Processes{}
		if got := p.List(); len(got) != 0 {
			t.Fatalf("at the start: %+v", got)
		}
		p.Note(7, 1, 100, 0)
		p.Note(7, 1, 0, 30)
		p.Note(7, 1, 5, 5)
		p.Note(8, 2, 1, 0)
		<-time.After(forgetAfter)
		p.Note(8, 3, 2, 0) // another user's process has the number now
		got := map[[2]int]Process{}
		for _, one := range p.List() {
			one.Last, one.Group, one.Command = time.Time{}, 0, ""
			got[[2]int{one.PID, one.UID}] = one
		}
		want := map[[2]int]Process{
			{7, 1}: {PID: 7, UID: 1, Reads: 2, ReadBytes: 105, Writes: 2, WrittenBytes: 35},
			{8, 2}: {PID: 8, UID: 2, Reads: 1, ReadBytes: 1},
			{8, 3}: {PID: 8, UID: 3, Reads: 1, ReadBytes: 2},
		}
		if !maps.Equal(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		<-time.After(time.Nanosecond)
		if got := p.List(); len(got) != 1 || got[0].UID != 3 {
			t.Errorf("an idle process is still listed: %+v", got)
		}
	})
}

// TestProcessesAreBounded notes more threads than there is room for, from several goroutines.
func TestProcessesAreBounded(t *testing.T) {
	p := &Processes{}
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for pid := range 3 * slots {
				p.Note(pid+1, g, 1, 0)
				if pid%slots == 0 {
					p.List()
				}
			}
		})
	}
	all.Wait()
	if n := len(p.List()); n != slots {
		t.Errorf("%d threads, want %d", n, slots)
	}
}

// TestBusyThreadsAreLookedUpOnce notes threads whose records are in one place, in turn: a look-up
// allocates, and the others do not.
func TestBusyThreadsAreLookedUpOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Processes{}
		const threads = 3 * ways
		all := func() {
			for i := range threads {
				p.Note(7+i*slots, 1, 1, 0)
				p.Note(7, 2+i, 1, 0) // it takes on the user of each request
			}
		}
		all()
		if n := testing.AllocsPerRun(10, all); n > 0 {
			t.Errorf("%v allocations in %d operations of busy threads", n, 2*threads)
		}
		if got := p.List(); len(got) != ways {
			t.Errorf("%d threads, want %d: %+v", len(got), ways, got)
		}
		<-time.After(keepFor + 1)
		p.Note(9*slots+7, 1, 1, 0) // they are idle now
		if got := p.List(); !slices.ContainsFunc(got, func(one Process) bool { return one.PID == 9*slots+7 && one.Group == one.PID }) {
			t.Errorf("a new thread has found no room among idle ones: %+v", got)
		}
	})
}

func TestSlowLog(t *testing.T) {
	l := &SlowLog{}
	l.Note("fast", SlowAfter-1, 1, 1)
	if got := l.List(); len(got) != 0 {
		t.Fatalf("an operation that was fast: %+v", got)
	}
	for i := range maxSlow + 3 {
		l.Note(strconv.Itoa(i), SlowAfter, i, 0)
	}
	got := l.List()
	if len(got) != maxSlow || got[0].Name != "3" || got[maxSlow-1].PID != maxSlow+2 {
		t.Errorf("%d operations, from %+v to %+v", len(got), got[0], got[len(got)-1])
	}
}

func TestFind(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, name := Find(syscall.Gettid())
	if pid != os.Getpid() || name == "" {
		t.Errorf("this thread is of process %d, program %q", pid, name)
	}
	if pid, name := Find(1 << 30); pid != 1<<30 || name != "" {
		t.Errorf("a thread that does not exist is of process %d, program %q", pid, name)
	}
}
