package owner

import "time"

// SetLimit has a guard wait less than a hang would take.
func (g *Guard) SetLimit(d time.Duration) { g.limit = d }
