package devices

import "time"

// NextEpoch returns an epoch that was not used before: neither in this process, where each
// device passes its last one, nor in an earlier process, unless the clock was set back. For
// the first epoch, pass 0 as last.
func NextEpoch(last Epoch) Epoch {
	return max(last+1, Epoch(max(time.Now().UnixNano(), 0)))
}
