package admin

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/fs/activity"
	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// Activity returns the processes that move bytes, the sessions, and the operations that took long.
func (s *Server) Activity() adminapi.Activity {
	out := adminapi.Activity{Processes: []adminapi.Process{}, Sessions: []adminapi.Session{}, Slow: []adminapi.SlowOperation{}}
	if s.opts.Files != nil {
		threads, slow := s.opts.Files.Activity()
		out.Processes = append(out.Processes, processesOf(threads, false)...)
		out.Slow = append(out.Slow, slowOf(slow, false)...)
	}
	if c := s.opts.Calls; c != nil {
		out.Processes = append(out.Processes, processesOf(c.processes.List(), true)...)
		out.Slow = append(out.Slow, slowOf(c.slow.List(), true)...)
	}
	slices.SortStableFunc(out.Slow, func(a, b adminapi.SlowOperation) int { return a.At.Compare(b.At) })
	for _, one := range s.sessions.list() {
		_, one.Command = activity.Find(one.PID)
		out.Sessions = append(out.Sessions, one)
	}
	return out
}

// list returns the open sessions, the oldest first.
func (s *sessions) list() []adminapi.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []adminapi.Session
	for _, one := range s.open {
		out = append(out, adminapi.Session{PID: one.pid, UID: one.uid, Begun: one.begun})
	}
	slices.SortFunc(out, func(a, b adminapi.Session) int { return a.Begun.Compare(b.Begun) })
	return out
}

// showEnded is the time for which a process is listed after its last operation, if it has ended.
const showEnded = 10 * time.Second

// processesOf adds up the threads of each process.
func processesOf(threads []activity.Process, session bool) []adminapi.Process {
	var out []adminapi.Process
	for _, t := range threads {
		ended := t.Group != 0 && unix.Kill(t.Group, 0) == unix.ESRCH
		if ended && time.Since(t.Last) > showEnded {
			continue
		}
		at := slices.IndexFunc(out, func(p adminapi.Process) bool { return p.PID == t.Group && p.UID == t.UID })
		if at < 0 {
			at = len(out)
			out = append(out, adminapi.Process{PID: t.Group, UID: t.UID, Command: t.Command, Session: session, Ended: ended})
		}
		p := &out[at]
		p.Reads, p.ReadBytes = p.Reads+t.Reads, p.ReadBytes+t.ReadBytes
		p.Writes, p.WrittenBytes = p.Writes+t.Writes, p.WrittenBytes+t.WrittenBytes
		if t.Last.After(p.Last) {
			p.Last = t.Last
		}
	}
	slices.SortFunc(out, func(a, b adminapi.Process) int { return cmp.Compare(a.PID, b.PID) })
	return out
}

func slowOf(all []activity.Slow, session bool) []adminapi.SlowOperation {
	var out []adminapi.SlowOperation
	for _, one := range all {
		out = append(out, adminapi.SlowOperation{
			At: one.At, Name: one.Name, Seconds: one.Took.Seconds(), Session: session, PID: one.PID, UID: one.UID,
		})
	}
	return out
}
