package judge

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Receipt is one attempt to receive a publication.
type Receipt struct {
	// By is the node and the method of receiving, for a report.
	By string
	// Outcome is Done if the program reported success.
	Outcome Outcome
	// Whole is set if all of the correct bytes are in the target; Wrong describes bytes
	// that are not correct. Neither is set if a part is there, or nothing.
	Whole bool
	Wrong string `json:",omitempty"`
	// Call and Return are the times since the beginning of the run.
	Call, Return time.Duration
	Error        string `json:",omitempty"`
}

// String describes the attempt in one line.
func (r Receipt) String() string {
	text := fmt.Sprintf("%8.3f–%8.3f s  by %s", r.Call.Seconds(), r.Return.Seconds(), r.By)
	switch {
	case r.Outcome == Done:
		text += ": received"
	case r.Whole:
		text += ": failed, all bytes are there"
	default:
		text += ": failed"
	}
	if r.Error != "" {
		text += ": " + r.Error
	}
	return text
}

// publication holds the operations on one object.
type publication struct {
	ID       int
	By       string
	Offered  Outcome
	Receipts []Receipt
}

// Publications is the history of all publications.
type Publications struct {
	mu sync.Mutex
	// +checklocks:mu
	all []*publication
}

// New adds a publication that is about to be offered and returns its number.
func (p *Publications) New(by string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, &publication{ID: len(p.all), By: by})
	return len(p.all) - 1
}

// Offered records that the program that published it has succeeded.
func (p *Publications) Offered(id int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all[id].Offered = Done
}

// Received adds an attempt to receive it.
func (p *Publications) Received(id int, r Receipt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all[id].Receipts = append(p.all[id].Receipts, r)
}

// Open returns the publications that no program has reported as received.
func (p *Publications) Open() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var open []int
	for _, one := range p.all {
		if one.received() == 0 {
			open = append(open, one.ID)
		}
	}
	return open
}

// PublicationCounts holds the totals of a history.
type PublicationCounts struct {
	Offered, Acknowledged, Received, Lost, Twice, Wrong int
}

// Check returns the publications that were lost, or were received twice or with wrong
// bytes. It must be called after all faults have ended and one more attempt was made for
// each open publication: one that was published and can't be received by then is lost,
// unless a program that failed has all of it.
func (p *Publications) Check() (bad []Violation, n PublicationCounts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.all {
		n.Offered++
		if one.Offered == Done {
			n.Acknowledged++
		}
		got := one.received()
		if got > 0 {
			n.Received++
		}
		if got > 1 {
			n.Twice++
			bad = append(bad, Violation{"publication received twice", one.tell()})
		}
		if got == 0 && one.Offered == Done && !one.held() {
			n.Lost++
			bad = append(bad, Violation{"publication lost", one.tell()})
		}
		for _, r := range one.Receipts {
			if r.Wrong != "" || r.Outcome == Done && !r.Whole {
				n.Wrong++
				bad = append(bad, Violation{"publication with wrong bytes", r.Wrong + "; " + one.tell()})
			}
		}
	}
	return bad, n
}

func (o *publication) received() int {
	n := 0
	for _, r := range o.Receipts {
		if r.Outcome == Done {
			n++
		}
	}
	return n
}

// held reports whether a program that failed has left all of the bytes.
func (o *publication) held() bool {
	for _, r := range o.Receipts {
		if r.Whole {
			return true
		}
	}
	return false
}

func (o *publication) tell() string {
	var text strings.Builder
	fmt.Fprintf(&text, "publication %d of %s, acknowledged: %t", o.ID, o.By, o.Offered == Done)
	for _, r := range o.Receipts {
		fmt.Fprintf(&text, "\n  %v", r)
	}
	return text.String()
}

// Write writes the history, one publication in each line, in JSON.
func (p *Publications) Write(to io.Writer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := json.NewEncoder(to)
	for _, one := range p.all {
		if err := lines.Encode(one); err != nil {
			return fmt.Errorf("write the history of publications: %w", err)
		}
	}
	return nil
}
