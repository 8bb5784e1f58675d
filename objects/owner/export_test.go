package owner

import "time"

// SetLimit shortens a guard's wait.
func (g *Guard) SetLimit(d time.Duration) { g.limit = d }

// Confirmed reads as a guard reads the answers of its process.
func Confirmed(read func() error) error { return confirmed(read) }
