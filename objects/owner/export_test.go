package owner

import "time"

// SetLimit has a guard wait less than a hang would take.
func (g *Guard) SetLimit(d time.Duration) { g.limit = d }

// Confirmed reads as a guard reads the answers of its process.
func Confirmed(read func() error) error { return confirmed(read) }
