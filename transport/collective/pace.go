package collective

// quantum is the number of bytes that have to move in Options.Timeout, unless a step ends
// or there are no more: a rank that trickles bytes is waited for no longer than
// one that sends none.
const quantum = 64 << 10

// pace tells what goes on from what trickles.
type pace struct {
	left  int
	bytes uint64
}

// advanced says whether enough has gone on since it last did: another number of
// steps is left, or quantum more bytes have moved.
func (p *pace) advanced(left int, bytes uint64) bool {
	if left == p.left && bytes-p.bytes < quantum {
		return false
	}
	*p = pace{left, bytes}
	return true
}
