package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// word is a message of another user's process to the program: a line of JSON.
type word struct {
	// Violation is set where a property does not hold.
	Violation string `json:"violation,omitempty"`
	// Phase ends with this word, and Latencies has what its operations took.
	Phase     string             `json:"phase,omitempty"`
	Latencies map[string]latency `json:"latencies,omitempty"`
	// Tries are an attacker's, at its end.
	Tries map[string]tries `json:"tries,omitempty"`
	// Files lists the files that the victim leaves at its end.
	Files []left `json:"files,omitempty"`
}

// latency sums up the times of operations of one kind.
type latency struct {
	Count         int
	P50, P99, Max time.Duration
}

// tries counts what was tried of one kind, what of it was done, and the errors.
type tries struct {
	Tried, Done int
	Errors      map[string]int
}

// left is a file that the victim has left, and what is in it.
type left struct {
	Path string
	Seed uint64
	Size int
	Mode os.FileMode
}

// speaker tells the program words, from any goroutine.
type speaker struct {
	mu sync.Mutex
	// +checklocks:mu
	out *json.Encoder
}

func (s *speaker) say(w word) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.out.Encode(w); err != nil {
		fmt.Fprintln(os.Stderr, "attack: tell:", err)
	}
}

// violation tells that a property does not hold.
func (s *speaker) violation(format string, a ...any) {
	s.say(word{Violation: fmt.Sprintf(format, a...)})
}

// stopwatch keeps what operations took.
type stopwatch struct {
	mu sync.Mutex
	// +checklocks:mu
	took map[string][]time.Duration
}

func (s *stopwatch) add(kind string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.took == nil {
		s.took = map[string][]time.Duration{}
	}
	s.took[kind] = append(s.took[kind], d)
}

// reset returns what was kept, and begins again.
func (s *stopwatch) reset() map[string]latency {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]latency{}
	for kind, all := range s.took {
		slices.Sort(all)
		out[kind] = latency{Count: len(all), P50: all[len(all)/2], P99: all[len(all)*99/100], Max: all[len(all)-1]}
	}
	s.took = nil
	return out
}
