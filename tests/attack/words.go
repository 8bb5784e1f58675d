package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// word is a message from another user's process to the program: one line of JSON.
type word struct {
	// Violation is set if a property does not hold.
	Violation string `json:"violation,omitempty"`
	// Phase is the phase that this word ends, and Latencies has the durations of its
	// operations.
	Phase     string             `json:"phase,omitempty"`
	Latencies map[string]latency `json:"latencies,omitempty"`
	// Tries is set in an attacker's last word.
	Tries map[string]tries `json:"tries,omitempty"`
	// Files lists the files that remain when a victim ends; it is set in its last word.
	Files []left `json:"files,omitempty"`
}

// latency summarizes the durations of operations of one kind.
type latency struct {
	Count         int
	P50, P99, Max time.Duration
}

// tries counts the attempts of one act, the successful ones, and the errors.
type tries struct {
	Tried, Done int
	Errors      map[string]int
}

// left is a file that a victim has left, with its expected content and mode.
type left struct {
	Path string
	Seed uint64
	Size int
	Mode os.FileMode
}

// speaker sends words to the program. It is safe for concurrent use.
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

// violation sends a violation.
func (s *speaker) violation(format string, a ...any) {
	s.say(word{Violation: fmt.Sprintf(format, a...)})
}

// stopwatch records the durations of operations.
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

// reset returns a summary of the recorded durations and clears them.
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
