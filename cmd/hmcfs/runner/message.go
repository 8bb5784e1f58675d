package runner

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/transport/control"
)

// brief is the first message to a host. Apart from the job's secret it could be on a
// command line, but command lines are visible to everyone.
type brief struct {
	// Job is the job's id, and Secret the secret that authenticates its ranks to each
	// other.
	Job    string
	Secret string
	// Config is the whole job, including the effect of options.
	Config  Config
	Program []word
	Window  devices.Size
	Grace   time.Duration
	// First and Count give the ranks of the host; Host is its index among Hosts.
	First int
	Count int
	Host  int
	Hosts int
	// WorkDir is the current directory of ranks; empty means that of the host.
	WorkDir word
	// Env holds variables of the runner, in addition to those of the config.
	Env       []word
	Dir       word
	Transport string
	Unbound   bool
	// Name and Address are the host's, as specified by the user; Address may be empty.
	Name    string
	Address string
	// Peers are the names of other hosts.
	Peers []string
	// Silence bounds the time in which the host hears nothing from the runner; 0 means no
	// limit.
	Silence time.Duration
}

// word is a system string, such as a path or an argument. It may not be valid UTF-8, which
// JSON would modify in a string.
type word []byte

// wordsOf converts strings to words.
func wordsOf(all []string) []word {
	out := make([]word, len(all))
	for i, text := range all {
		out[i] = word(text)
	}
	return out
}

// stringsOf converts words to strings.
func stringsOf(all []word) (out []string) {
	for _, w := range all {
		out = append(out, string(w))
	}
	return out
}

// addressBook holds the addresses at which ranks listen: those of one host when it is ready,
// then those of all hosts. It is empty if there is one host.
type addressBook struct{ Addresses []string }

// departure announces a rank that no longer waits at a barrier.
type departure struct{ ID uint64 }

// passage is the answer to an arrival.
type passage struct {
	ID     uint64
	Answer answer
}

// numberedArrival is an arrival with its number at the host.
type numberedArrival struct {
	ID      uint64
	Arrival arrival
}

// fault is the reason why a host can't continue.
type fault struct {
	Class string
	Text  string
}

// done reports the result of a host's cleanup.
type done struct{ Fault string }

// classes returns the classes of faults that callers distinguish.
func classes() map[string]error {
	return map[string]error{"absent": fs.ErrNotExist, "program": ErrProgram, "place": ErrPlace, "size": ErrSize, "stopped": ErrStopped, "host": ErrHost}
}

// faultOf converts an error for the runner.
func faultOf(err error) *fault {
	f := &fault{Text: err.Error()}
	all := classes()
	for _, name := range sortedKeys(all) {
		// A program that does not exist also matches ErrProgram, which is checked later.
		if errors.Is(err, all[name]) {
			f.Class = name
		}
	}
	return f
}

// faultError is an error with a text of its own, such as a host's fault at the runner.
type faultError struct {
	text  string
	class error
}

func (e *faultError) Error() string { return e.text }

func (e *faultError) Unwrap() error { return e.class }

// plan returns the plan of a host's part, checked like the runner's.
func (b *brief) plan(o *HostOptions) (*Plan, error) {
	p, err := NewPlan(Options{
		Program: stringsOf(b.Program), Grace: b.Grace, Window: b.Window, Dir: string(b.Dir), Transport: b.Transport, Unbound: b.Unbound,
		HostOptions: *o,
	}, &b.Config)
	if err != nil {
		return nil, err
	}
	if b.Count < 1 || b.First < 0 || b.First > p.Ranks-b.Count || b.Host < 0 || b.Host >= b.Hosts || b.Hosts > p.Ranks {
		return nil, fmt.Errorf("ranks %d to %d of %d on host %d of %d: %w", b.First, b.First+b.Count-1, p.Ranks, b.Host, b.Hosts, ErrProtocol)
	}
	return p, nil
}

// sent returns a config that makes the same plan on a host.
func (p *Plan) sent() Config {
	c := p.config
	c.Ranks, c.Atol, c.Rtol, c.Verify = &p.Ranks, &p.Atol, &p.Rtol, cmp.Or(c.Verify, verifyRoot)
	c.Program, c.Timeout, c.Window = nil, "", ""
	return c
}

// checkAddresses checks the addresses of some ranks: each must be an IP address and a port.
func checkAddresses(all []string, ranks int) error {
	if len(all) != ranks {
		return fmt.Errorf("%d addresses for %d ranks: %w", len(all), ranks, ErrProtocol)
	}
	for i, text := range all {
		at, err := netip.ParseAddrPort(text)
		if err != nil || at.Port() == 0 || slices.Contains(all[:i], text) {
			return fmt.Errorf("address %q: %w", shorten(text), ErrProtocol)
		}
	}
	return nil
}

// tcpAddress converts an address of an addressBook to the form that ranks parse.
func tcpAddress(at string) string {
	return control.Address{Network: control.TCP, Addr: at}.String()
}

// check validates a host's report of the end of one of its ranks.
func (e *Ending) check() error {
	if e.Code < -1 || e.Code > 255 {
		return fmt.Errorf("rank %d ended with exit code %d: %w", e.Rank, e.Code, ErrProtocol)
	}
	e.Signal, e.Error, e.Host = shorten(e.Signal), shorten(e.Error), ""
	if e.Code == 0 && (e.Signal != "" || e.Error != "") {
		return fmt.Errorf("rank %d both succeeded and failed: %w", e.Rank, ErrProtocol)
	}
	return nil
}

// checkVerdict validates a verdict about one buffer of a host's ranks.
func (p *Plan) checkVerdict(v *Verdict, first, count int) error {
	var largest uint64 // a larger count would overflow the sum over hosts
	for _, name := range p.config.Outputs {
		largest = max(largest, p.buffer(name).Count)
	}
	if v.Compared > largest || v.Wrong > v.Compared || uint64(len(v.First)) != min(v.Wrong, shown) {
		return fmt.Errorf("%d of %d elements differ, and %d are shown: %w", v.Wrong, v.Compared, len(v.First), ErrProtocol)
	}
	for i := range v.First {
		m := &v.First[i]
		b := p.buffer(m.Buffer)
		if b == nil || m.Rank < first || m.Rank >= first+count || m.Index >= b.Count || !slices.Contains(p.config.Outputs, m.Buffer) {
			return fmt.Errorf("a difference in %q of rank %d: %w", shorten(m.Buffer), m.Rank, ErrProtocol)
		}
		m.Got, m.Want = shorten(m.Got), shorten(m.Want)
	}
	return nil
}
