package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/control"
)

// brief is told to a host first. It has nothing that a command line could
// not have, but the job's secret, and is not on one: everybody sees those.
type brief struct {
	// Job is the job's id, and Secret what its ranks know each other by.
	Job    string
	Secret string
	// Config is the whole job, with what the options said put in.
	Config  Config
	Program words
	Window  devices.Size
	Grace   time.Duration
	// First and Count are the ranks of the host; Host is its place among Hosts.
	First int
	Count int
	Host  int
	Hosts int
	// WorkDir is the current directory of ranks; empty is that of the host.
	WorkDir word
	// Env are variables of the runner, besides those of the config.
	Env       words
	Dir       word
	Transport string
	Unbound   bool
	// Name and Address are the host's as the user knows it; Address may be empty.
	Name    string
	Address string
	// Peers are the names of other hosts.
	Peers []string
	// Silence bounds the time in which the host hears nothing of the runner; 0 is for ever.
	Silence time.Duration
}

// word is a text of the system, such as a path or an argument, which may be no
// UTF-8: JSON would change it.
type word string

// MarshalJSON keeps the bytes.
func (w word) MarshalJSON() ([]byte, error) { return json.Marshal([]byte(w)) }

// UnmarshalJSON is the other direction.
func (w *word) UnmarshalJSON(p []byte) error {
	var b []byte
	err := json.Unmarshal(p, &b)
	*w = word(b)
	return err
}

// words are several.
type words []string

// MarshalJSON keeps the bytes.
func (w words) MarshalJSON() ([]byte, error) {
	all := make([]word, len(w))
	for i, text := range w {
		all[i] = word(text)
	}
	return json.Marshal(all)
}

// UnmarshalJSON is the other direction.
func (w *words) UnmarshalJSON(p []byte) error {
	var all []word
	err := json.Unmarshal(p, &all)
	*w = nil
	for _, text := range all {
		*w = append(*w, string(text))
	}
	return err
}

// ready says where a host's ranks will listen: nowhere if there is one host.
type ready struct{ Addresses []string }

// book has the addresses at which the ranks of all hosts listen.
type book struct{ Addresses []string }

// departure is a rank that waits at a barrier no longer.
type departure struct{ ID uint64 }

// passage is the answer to an arrival.
type passage struct {
	ID     uint64
	Answer answer
}

// visit is an arrival that has a number at its host.
type visit struct {
	ID      uint64
	Arrival arrival
}

// fault is why a host can't go on.
type fault struct {
	Class string
	Text  string
}

// done tells how a host has cleaned up.
type done struct{ Fault string }

// The classes of faults, by what callers tell apart.
func classes() map[string]error {
	return map[string]error{"absent": fs.ErrNotExist, "program": ErrProgram, "place": ErrPlace, "size": ErrSize, "stopped": ErrStopped, "host": ErrHost}
}

// faultOf is an error for the runner.
func faultOf(err error) *fault {
	f := &fault{Text: err.Error()}
	all := classes()
	for _, name := range sortedKeys(all) {
		// A program that does not exist is ErrProgram: that comes later.
		if errors.Is(err, all[name]) {
			f.Class = name
		}
	}
	return f
}

// faultError is a host's fault at the runner.
type faultError struct {
	text  string
	class error
}

func (e *faultError) Error() string { return e.text }

func (e *faultError) Unwrap() error { return e.class }

// plan is the plan of a host's part, checked as that of the runner is.
func (b *brief) plan(o *HostOptions) (*Plan, error) {
	p, err := NewPlan(Options{
		Program: b.Program, Grace: b.Grace, Window: b.Window, Dir: string(b.Dir), Transport: b.Transport, Unbound: b.Unbound,
		TempDir: o.TempDir, Supervisor: o.Supervisor, Executable: o.Executable,
	}, &b.Config)
	if err != nil {
		return nil, err
	}
	if b.Count < 1 || b.First < 0 || b.First > p.Ranks-b.Count || b.Host < 0 || b.Host >= b.Hosts || b.Hosts > p.Ranks {
		return nil, fmt.Errorf("ranks %d to %d of %d on host %d of %d: %w", b.First, b.First+b.Count-1, p.Ranks, b.Host, b.Hosts, ErrTalk)
	}
	return p, nil
}

// config is a plan as a config that makes the same plan.
func (p *Plan) config() Config {
	verify := "root"
	if p.VerifyAll {
		verify = "all"
	}
	return Config{
		Ranks: &p.Ranks, Root: p.Root, WinSyncPrefix: p.WinSyncPrefix, Buffers: p.Buffers, Inputs: p.Inputs, Outputs: p.Outputs,
		Args: p.Args, Env: p.Env, Generate: p.Generate, Golden: p.Golden, Atol: &p.Atol, Rtol: &p.Rtol, Verify: verify,
	}
}

// check says what is wrong with the addresses of some ranks: each is an IP
// address and a port.
func checkAddresses(all []string, ranks int) error {
	if len(all) != ranks {
		return fmt.Errorf("%d addresses for %d ranks: %w", len(all), ranks, ErrTalk)
	}
	for i, text := range all {
		at, err := netip.ParseAddrPort(text)
		if err != nil || at.Port() == 0 || slices.Contains(all[:i], text) {
			return fmt.Errorf("address %q: %w", shorten(text), ErrTalk)
		}
	}
	return nil
}

// tcpAddress is an address of a book as ranks read it.
func tcpAddress(at string) string {
	return control.Address{Network: control.TCP, Addr: at}.String()
}

// check says what is wrong with the word of a host about one of its ranks.
func (e *Ending) check() error {
	if e.Code < -1 || e.Code > 255 {
		return fmt.Errorf("rank %d ended with exit code %d: %w", e.Rank, e.Code, ErrTalk)
	}
	e.Signal, e.Error, e.Host = shorten(e.Signal), shorten(e.Error), ""
	if e.Code == 0 && (e.Signal != "" || e.Error != "") {
		return fmt.Errorf("rank %d both succeeded and failed: %w", e.Rank, ErrTalk)
	}
	return nil
}

// checkVerdict says what is wrong with a verdict about one buffer of a host with
// some ranks.
func (p *Plan) checkVerdict(v *Verdict, first, count int) error {
	var largest uint64 // what more hosts say could not be added
	for _, name := range p.Outputs {
		largest = max(largest, p.buffer(name).Count)
	}
	if v.Compared > largest || v.Wrong > v.Compared || uint64(len(v.First)) != min(v.Wrong, shown) {
		return fmt.Errorf("%d of %d elements differ, and %d are shown: %w", v.Wrong, v.Compared, len(v.First), ErrTalk)
	}
	for i := range v.First {
		m := &v.First[i]
		b := p.buffer(m.Buffer)
		if b == nil || m.Rank < first || m.Rank >= first+count || m.Index >= b.Count || !slices.Contains(p.Outputs, m.Buffer) {
			return fmt.Errorf("a difference in %q of rank %d: %w", shorten(m.Buffer), m.Rank, ErrTalk)
		}
		m.Got, m.Want = shorten(m.Got), shorten(m.Want)
	}
	return nil
}
