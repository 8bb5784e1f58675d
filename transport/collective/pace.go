package collective

// quantum is the number of bytes that must move within Options.Timeout, unless a step ends
// or no more bytes remain: a rank that trickles bytes times out like one that sends none.
const quantum = 64 << 10

// pace distinguishes progress from a trickle.
type pace struct {
	left  int
	bytes uint64
}

// advanced reports whether there was enough progress since it last reported true: the
// number of steps left has changed, or quantum more bytes have moved.
func (p *pace) advanced(left int, bytes uint64) bool {
	if left == p.left && bytes-p.bytes < quantum {
		return false
	}
	*p = pace{left, bytes}
	return true
}
