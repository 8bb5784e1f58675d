package runner

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Place is a machine, and the number of ranks that it has room for.
type Place struct {
	// Name is the name used by the agent: a host name, an address, user@host.
	Name  string
	Slots int
	// Address is the IP address by which the other hosts reach it. If empty, the host
	// determines it.
	Address string
}

// Here is the name of the runner's machine, which needs no agent.
const Here = "localhost"

// ParseHosts parses "a:2,b:2": names with numbers of ranks, which default to 1. It reports
// all faults at once.
func ParseHosts(text string) ([]Place, error) {
	var all []Place
	var faults []error
	for entry := range strings.SplitSeq(text, ",") {
		p, err := parsePlace(strings.TrimSpace(entry))
		all, faults = append(all, p), append(faults, err)
	}
	return all, errors.Join(append(faults, checkPlaces(all))...)
}

// parsePlace parses NAME or NAME:SLOTS. An IPv6 address with slots is in brackets.
func parsePlace(text string) (Place, error) {
	name, slots, has := text, "", false
	if inside, ok := strings.CutPrefix(text, "["); ok {
		name, slots, ok = strings.Cut(inside, "]")
		if slots, has = strings.CutPrefix(slots, ":"); !ok || !has && slots != "" {
			return Place{Name: text, Slots: 1}, fmt.Errorf("host %q: use [IPv6]:RANKS", text)
		}
	} else if strings.Count(text, ":") == 1 {
		name, slots, has = strings.Cut(text, ":")
	}
	p := Place{Name: name, Slots: 1}
	if !has {
		return p, checkName(name)
	}
	var err error
	if p.Slots, err = parseSlots(slots); err != nil {
		err = fmt.Errorf("host %q: %w", name, err)
	}
	return p, errors.Join(err, checkName(name))
}

func parseSlots(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > MaxRanks {
		return 0, fmt.Errorf("%q ranks; use 1 to %d", text, MaxRanks)
	}
	return n, nil
}

// checkName checks the name of a host: an agent would treat a name that begins with - as an
// option.
func checkName(name string) error {
	odd := func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r) || strings.ContainsRune(`'"\$&;|<>()*?!#~`+"`", r)
	}
	if name == "" || len(name) > 255 || strings.HasPrefix(name, "-") || strings.ContainsFunc(name, odd) {
		return fmt.Errorf("host %q: not a host name", name)
	}
	return nil
}

// checkPlaces reports hosts that are listed twice.
func checkPlaces(all []Place) error {
	var faults []error
	for i := range all {
		if slices.ContainsFunc(all[:i], func(p Place) bool { return p.Name == all[i].Name }) {
			faults = append(faults, fmt.Errorf("host %q is listed twice; give it more ranks instead: %s:2", all[i].Name, all[i].Name))
		}
	}
	return errors.Join(faults...)
}

// ReadHosts reads a file of hosts: each line has a name, then slots=N and address=IP, both
// optional. NAME:N is also accepted. A # begins a comment.
func ReadHosts(path string) ([]Place, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var all []Place
	var faults []error
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		p, err := parsePlace(words[0])
		for _, word := range words[1:] {
			err = errors.Join(err, p.set(word))
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s:%d: %w", path, n, err))
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		faults = append(faults, fmt.Errorf("%s: no hosts", path))
	}
	return all, errors.Join(append(faults, lines.Err(), checkPlaces(all))...)
}

// set parses slots=N or address=IP.
func (p *Place) set(word string) (err error) {
	switch name, value, _ := strings.Cut(word, "="); name {
	case "slots":
		p.Slots, err = parseSlots(value)
	case "address":
		var at netip.Addr
		if at, err = netip.ParseAddr(value); err == nil && at.IsUnspecified() {
			err = fmt.Errorf("address %s: other hosts can't connect to it", value)
		}
		p.Address = value
	default:
		err = fmt.Errorf("%q: use slots=N and address=IP", word)
	}
	return err
}

// part is the ranks of one host.
type part struct {
	Place

	first int
	count int
}

// here reports that no agent is needed.
func (p *part) here() bool { return p.Name == Here }

// parts assigns the ranks to the hosts, in order, as many to each as it has slots.
func (p *Plan) parts() []part {
	if len(p.Hosts) == 0 {
		return []part{{Place: Place{Name: Here}, count: p.Ranks}}
	}
	var out []part
	for at := 0; at < p.Ranks && len(out) < len(p.Hosts); {
		place := p.Hosts[len(out)]
		n := min(place.Slots, p.Ranks-at)
		out = append(out, part{Place: place, first: at, count: n})
		at += n
	}
	return out
}

// slots returns the total number of slots.
func slots(all []Place) (n int) {
	for _, p := range all {
		n += p.Slots
	}
	return n
}

// checkHosts checks the hosts of a job.
func (p *Plan) checkHosts() error {
	var faults []error
	if n := slots(p.Hosts); len(p.Hosts) > 0 && p.Ranks > n {
		faults = append(faults, fmt.Errorf("nranks %d: the hosts have room for %d; give them more, as in HOST:%d", p.Ranks, n, p.Ranks))
	}
	several := len(p.parts()) > 1
	if several && p.Transport == "shm" {
		faults = append(faults, errors.New("transport shm: ranks on several hosts share no memory; use auto, which uses shm within a host"))
	}
	if slices.ContainsFunc(p.Hosts, func(h Place) bool { return h.Name != Here }) && (len(p.Agent) == 0 || len(p.RemoteCommand) == 0) {
		faults = append(faults, errors.New("agent: there is none to reach the hosts"))
	}
	return errors.Join(append(faults, checkPlaces(p.Hosts))...)
}
