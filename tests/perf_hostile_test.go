package tests

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// ticks returns the processor time of a process, in hundredths of a second.
func (p *perfProcess) ticks() (int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The fields after the name in parentheses start with the third.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	var user, system int
	if _, err = fmt.Sscan(fields[11], &user); err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(fields[12], &system)
	return user + system, err
}

// works waits until the process has measured with its server for a while: the two must have
// used more processor time than the setup needs. Both are counted, because over UCX the server
// does nearly all of the work, and a runner alone may not get as much within perfPatience on a
// busy machine.
func (p *perfProcess) works(server *perfProcess) {
	p.t.Helper()
	p.says("measuring by")
	const enough = 50
	both := func() (int, error) {
		mine, err := p.ticks()
		if err != nil {
			return 0, err
		}
		its, err := server.ticks()
		return mine + its, err
	}
	before, err := both()
	must(p.t, err)
	kit.Eventually(p.t, perfPatience, func() error {
		now, err := both()
		if err == nil && p.ended() {
			p.t.Fatalf("it has ended: %s", p.said.String())
		}
		if err == nil && now-before < enough {
			err = fmt.Errorf("they have worked for %d ticks", now-before)
		}
		return err
	})
}

// resident returns the resident memory of a process, in bytes.
func (p *perfProcess) resident() (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), "VmRSS:")
	var kib int64
	_, err = fmt.Sscanf(rest, "%d kB", &kib)
	return kib << 10, err
}

// appendTo adds a text to a file.
func appendTo(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(text); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// strangers are clients that do not know the secret.
type strangers struct {
	t    *testing.T
	at   string
	stop chan struct{}
	all  sync.WaitGroup
	// visits counts the connections that were made.
	mu sync.Mutex
	// +checklocks:mu
	visits map[string]int
}

// invite lets strangers connect until the returned function is called, which returns the
// number of connections of each kind.
func invite(t *testing.T, at string) (leave func() map[string]int) {
	s := &strangers{t: t, at: at, stop: make(chan struct{}), visits: map[string]int{}}
	// Silent clients, and clients that stop in the middle of their first frame: together fewer
	// than control.DefaultMaxHandshakes. If there were more, chance would decide which others
	// are admitted.
	for range 20 {
		s.all.Go(func() { s.stay("silent", nil) })
		s.all.Go(func() { s.stay("half", []byte{2, 0, 0, 0x80, 64}) })
	}
	for i := range 4 {
		s.all.Go(func() { s.babble(uint64(i)) })
	}
	leave = sync.OnceValue(func() map[string]int {
		close(s.stop)
		s.all.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.visits
	})
	t.Cleanup(func() { leave() })
	return leave
}

// dial makes a connection; it returns nil when it is time to leave.
func (s *strangers) dial(kind string) net.Conn {
	for {
		select {
		case <-s.stop:
			return nil
		default:
		}
		c, err := net.DialTimeout("tcp", s.at, time.Second)
		if err != nil {
			continue
		}
		s.mu.Lock()
		s.visits[kind]++
		s.mu.Unlock()
		return c
	}
}

// stay sends little and waits, repeatedly.
func (s *strangers) stay(kind string, first []byte) {
	for c := s.dial(kind); c != nil; c = s.dial(kind) {
		_, _ = c.Write(first) // the server may have closed the connection
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			var p [64]byte
			for {
				if _, err := c.Read(p[:]); err != nil {
					return
				}
			}
		}()
		select {
		case <-gone:
		case <-s.stop:
		}
		_ = c.Close()
		<-gone
	}
}

// babble sends random bytes until it is disconnected, repeatedly: raw ones, and ones that
// follow the header of a frame of 4 GiB.
func (s *strangers) babble(seed uint64) {
	for c := s.dial("babbling"); c != nil; c = s.dial("babbling") {
		seed += 4
		p := kit.Bytes(seed, 0, 1<<16)
		if seed%8 < 4 {
			copy(p, []byte{2, 0, 0, 0x80, 0xff, 0xff, 0xff, 0xff})
		}
		_ = c.SetDeadline(time.Now().Add(2 * time.Second))
		for range 64 {
			if _, err := c.Write(p); err != nil {
				break
			}
		}
		_ = c.Close()
	}
}

// TestPerfAmongStrangers measures while clients that do not know the secret misbehave: the
// pair is not disturbed, and the server allocates no memory for them.
func TestPerfAmongStrangers(t *testing.T) {
	kit.Check(t)
	ends := hereEnds(t)
	server, at := ends.listen(t, []string{"127.0.0.1:0"})
	times := strconv.Itoa(kit.Rounds(300, 250, 1000))
	work := []string{"--transport", "tcp", "--sizes", "8,1MiB", "--iterations", times, "--rounds", times, at[0]}
	ends.measures(t, work...)
	before, err := server.resident()
	must(t, err)

	leave := invite(t, at[0])
	runner := ends.start(t, ends.run, "run", work...)
	var most int64
	kit.Eventually(t, 4*perfPatience, func() bool {
		now, err := server.resident()
		must(t, err)
		most = max(most, now)
		return runner.ended()
	})
	visits := leave()
	if code := runner.code(); code != 0 {
		t.Errorf("the runner: exit code %d, %s", code, runner.said.String())
	}
	for _, kind := range []string{"silent", "half", "babbling"} {
		if visits[kind] == 0 {
			t.Errorf("nobody was %s: %v", kind, visits)
		}
	}
	const room = 32 << 20
	if most > before+room && !kit.Race() {
		t.Errorf("the server has %d MiB, and had %d", most>>20, before>>20)
	}
	t.Logf("strangers %v, memory %d MiB before and %d MiB at most", visits, before>>20, most>>20)
	if strings.Contains(server.said.String(), "before its end") {
		t.Errorf("the server says %s", server.said.String())
	}
	ends.measures(t, append(little(), at[0])...)
}
