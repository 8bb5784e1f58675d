package activity

import (
	"os"
	"runtime"
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
		got := map[int]Process{}
		for _, one := range p.List() {
			one.Last, one.Group, one.Command = time.Time{}, 0, ""
			got[one.PID] = one
		}
		want := map[int]Process{
			7: {PID: 7, UID: 1, Reads: 2, ReadBytes: 105, Writes: 2, WrittenBytes: 35},
			8: {PID: 8, UID: 3, Reads: 1, ReadBytes: 2},
		}
		if len(got) != 2 || got[7] != want[7] || got[8] != want[8] {
			t.Errorf("got %+v, want %+v", got, want)
		}
		<-time.After(time.Nanosecond)
		if got := p.List(); len(got) != 1 || got[0].PID != 8 {
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
