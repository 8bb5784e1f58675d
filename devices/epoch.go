package devices

import "time"

// NextEpoch returns an epoch that has not been: neither before in this
// process, where each device passes its last one, nor in an earlier process,
// as long as the clock is not set back. The first epoch has no last: pass 0.
func NextEpoch(last Epoch) Epoch {
	return max(last+1, Epoch(max(time.Now().UnixNano(), 0)))
}
