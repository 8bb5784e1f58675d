package domain

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hmcfs/hmcfs/devices/elem"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// What callers tell apart, beside devices.ErrRange, devices.ErrClosed, the
// errors of comm and control, and the context's.
var (
	// ErrNotMember is a rank that is not in the list of a domain.
	ErrNotMember = errors.New("domain: not a member")
	// ErrName is a name that is malformed, or that another domain has.
	ErrName = errors.New("domain: name not usable")
	// ErrList is a list of ranks that is malformed, or not the one that a
	// peer has for the same name.
	ErrList = errors.New("domain: list of ranks not usable")
	// ErrSelf is an operation with ourselves that has no counterpart and, as
	// whoever began it waits, never will.
	ErrSelf = errors.New("domain: no matching operation with ourselves")
	// ErrMismatch is a send and a receive that don't agree: see MismatchError.
	ErrMismatch = errors.New("domain: send and receive don't agree")
	// ErrTruncated is a mismatch where the receive is too small.
	ErrTruncated = errors.New("domain: receive is smaller than the message")
	// ErrWithdrawn is a message whose sender gave up, and a send whose receiver
	// did.
	ErrWithdrawn = errors.New("domain: withdrawn by the peer")
	// ErrPeer is a send whose receiver could not get the bytes.
	ErrPeer = errors.New("domain: failed at the peer")
	// ErrLeft is a peer that has destroyed the domain.
	ErrLeft = errors.New("domain: the peer has left")
	// ErrDestroyed is a domain that was destroyed here.
	ErrDestroyed = errors.New("domain: destroyed")
	// ErrProtocol is a peer that breaks the rules. Its session ends.
	ErrProtocol = errors.New("domain: the peer breaks the protocol")
)

// Param is something that a send and a receive must agree on.
type Param uint8

// The parameters.
const (
	// ParamBuffers is the number of buffers.
	ParamBuffers Param = 1
	// ParamType is the type of the elements; its values are Types.
	ParamType Param = 2
	// ParamCount is the number of elements.
	ParamCount Param = 3
)

// String names the parameter.
func (p Param) String() string {
	switch p {
	case ParamBuffers:
		return "number of buffers"
	case ParamType:
		return "type"
	case ParamCount:
		return "count"
	}
	return fmt.Sprintf("parameter %d", uint8(p))
}

// MismatchError is a send and a receive that met and don't agree. Both sides
// get it, each with its own value as Local. It is ErrMismatch, and where the
// receive is too small also ErrTruncated.
type MismatchError struct {
	Domain string
	Peer   wire.Rank
	Tag    wire.Tag
	Param  Param
	// Buffer is the place of one of several; 0 for ParamBuffers.
	Buffer uint32
	// Local and Remote are this side's and the peer's value.
	Local, Remote uint64
	// Sending is true on the side that sends.
	Sending bool
}

// Error names the parameter and both values.
func (e *MismatchError) Error() string {
	verb := "receive from"
	if e.Sending {
		verb = "send to"
	}
	show := func(v uint64) string { return fmt.Sprint(v) }
	if e.Param == ParamType {
		show = func(v uint64) string { return elem.Type(v).String() }
	}
	return fmt.Sprintf("domain %q: %s %s, tag %d: %s of buffer %d is %s here and %s there",
		e.Domain, verb, e.Peer, e.Tag, e.Param, e.Buffer, show(e.Local), show(e.Remote))
}

// Is makes the error ErrMismatch and, where it is that, ErrTruncated.
func (e *MismatchError) Is(target error) bool {
	receives, sends := e.Local, e.Remote
	if e.Sending {
		receives, sends = sends, receives
	}
	return target == ErrMismatch || target == ErrTruncated && e.Param == ParamCount && receives < sends
}

// TimeoutError is an operation whose time is over.
type TimeoutError struct {
	Domain string
	// Sending is true for a send.
	Sending bool
	Peer    wire.Rank
	Tag     wire.Tag
	// Cycle is the ranks that wait for each other, from this one back to it;
	// nil where none was found.
	Cycle []wire.Rank
	// Err is the context's.
	Err error
}

// Error names the peer and the cycle.
func (e *TimeoutError) Error() string {
	what := "receive from"
	if e.Sending {
		what = "send to"
	}
	text := fmt.Sprintf("domain %q: %s %s, tag %d", e.Domain, what, e.Peer, e.Tag)
	if len(e.Cycle) > 0 {
		text += ": waiting in a cycle, " + showCycle(e.Cycle)
	}
	return text + ": " + e.Err.Error()
}

// Unwrap returns the context's error.
func (e *TimeoutError) Unwrap() error { return e.Err }

// showCycle writes "rank 0 → 1 → 0".
func showCycle(ranks []wire.Rank) string {
	names := make([]string, len(ranks))
	for i, r := range ranks {
		names[i] = fmt.Sprint(uint32(r))
	}
	return "rank " + strings.Join(names, " → ")
}

// MissingError is a domain that could not be made because ranks are missing.
type MissingError struct {
	Domain string
	// Ranks are those that have not come, in ascending order.
	Ranks []wire.Rank
	// Err is the context's, and what kept each of them away, as far as known.
	Err error
}

// Error lists the missing ranks.
func (e *MissingError) Error() string {
	return fmt.Sprintf("make domain %q: missing %v: %v", e.Domain, e.Ranks, e.Err)
}

// Unwrap returns what kept them away.
func (e *MissingError) Unwrap() error { return e.Err }

// ListError is two ranks that make the domain of one name with different
// lists. It is ErrList.
type ListError struct {
	Domain string
	Peer   wire.Rank
	// Ours and Theirs are the two lists.
	Ours, Theirs []wire.Rank
}

// Error names both lists.
func (e *ListError) Error() string {
	return fmt.Sprintf("make domain %q: its ranks are %s here and %s at %s", e.Domain, showList(e.Ours), showList(e.Theirs), e.Peer)
}

// Is makes the error ErrList.
func (e *ListError) Is(target error) bool { return target == ErrList }

// shownRanks is the most ranks of a list in an error.
const shownRanks = 64

func showList(ranks []wire.Rank) string {
	var numbers []uint32
	for _, r := range ranks[:min(len(ranks), shownRanks)] {
		numbers = append(numbers, uint32(r))
	}
	if len(ranks) > shownRanks {
		return fmt.Sprintf("%v and %d more", numbers, len(ranks)-shownRanks)
	}
	return fmt.Sprint(slices.Clip(numbers))
}
