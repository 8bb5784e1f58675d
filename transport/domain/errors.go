package domain

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hmcfs/hmcfs/devices/elem"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// Errors that callers distinguish, in addition to devices.ErrRange, devices.ErrClosed, the
// errors of comm and control, and the context's.
var (
	// ErrNotMember reports a rank that is not in the list of a domain.
	ErrNotMember = errors.New("domain: not a member")
	// ErrName reports a name that is malformed, or already in use.
	ErrName = errors.New("domain: name malformed or in use")
	// ErrList reports a list of ranks that is malformed, or differs from the one of a peer
	// for the same name.
	ErrList = errors.New("domain: invalid list of ranks")
	// ErrSelf reports an operation with our own rank that has no counterpart and, as its
	// caller blocks, never will.
	ErrSelf = errors.New("domain: no matching operation of this rank with itself")
	// ErrMismatch reports a send and a receive that don't match: see MismatchError.
	ErrMismatch = errors.New("domain: send and receive don't match")
	// ErrTruncated reports a mismatch in which the receive is too small.
	ErrTruncated = errors.New("domain: receive is smaller than the message")
	// ErrWithdrawn reports a message that its sender has withdrawn, or a send whose
	// receiver has withdrawn.
	ErrWithdrawn = errors.New("domain: withdrawn by the peer")
	// ErrPeer reports a send whose receiver could not get the bytes.
	ErrPeer = errors.New("domain: failed at the peer")
	// ErrLeft reports a peer that has destroyed the domain.
	ErrLeft = errors.New("domain: the peer has left")
	// ErrDestroyed reports that the domain was destroyed locally.
	ErrDestroyed = errors.New("domain: destroyed")
	// ErrProtocol reports a peer that violates the protocol. Its session ends.
	ErrProtocol = errors.New("domain: the peer violates the protocol")
)

// Param is a parameter on which a send and a receive must agree.
type Param uint8

// The parameters.
const (
	// ParamBuffers is the number of buffers.
	ParamBuffers Param = 1
	// ParamType is the type of the elements; its values are elem.Types.
	ParamType Param = 2
	// ParamCount is the number of elements.
	ParamCount Param = 3
)

// String returns the name of the parameter.
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

// MismatchError reports a matched send and receive that differ. Both sides get it, each
// with its own value as Local. It matches ErrMismatch, and if the receive is too small also
// ErrTruncated.
type MismatchError struct {
	Domain string
	Peer   wire.Rank
	Tag    wire.Tag
	Param  Param
	// Buffer is the index of the buffer; 0 for ParamBuffers.
	Buffer uint32
	// Local and Remote are this side's value and the peer's.
	Local, Remote uint64
	// Sending is true on the sending side.
	Sending bool
}

// Error names the parameter and both values.
func (e *MismatchError) Error() string {
	show := func(v uint64) string { return fmt.Sprint(v) }
	if e.Param == ParamType {
		show = func(v uint64) string { return elem.Type(v).String() }
	}
	return fmt.Sprintf("domain %q: %s %s, tag %d: %s of buffer %d is %s here and %s there",
		e.Domain, verb(e.Sending), e.Peer, e.Tag, e.Param, e.Buffer, show(e.Local), show(e.Remote))
}

// verb returns the operation of an error's text.
func verb(sending bool) string {
	if sending {
		return "send to"
	}
	return "receive from"
}

// Is makes the error ErrMismatch and, if the receive is too small, ErrTruncated.
func (e *MismatchError) Is(target error) bool {
	receives, sends := e.Local, e.Remote
	if e.Sending {
		receives, sends = sends, receives
	}
	return target == ErrMismatch || target == ErrTruncated && e.Param == ParamCount && receives < sends
}

// TimeoutError reports an operation that timed out.
type TimeoutError struct {
	Domain string
	// Sending is true for a send.
	Sending bool
	Peer    wire.Rank
	Tag     wire.Tag
	// Cycle lists the ranks that wait for each other, from this one back to it; nil if no
	// cycle was found.
	Cycle []wire.Rank
	// Err is the context's error.
	Err error
}

// Error names the peer and the cycle.
func (e *TimeoutError) Error() string {
	text := fmt.Sprintf("domain %q: %s %s, tag %d", e.Domain, verb(e.Sending), e.Peer, e.Tag)
	if len(e.Cycle) > 0 {
		text += ": deadlock, the ranks wait in a cycle, " + showCycle(e.Cycle)
	}
	return text + ": " + e.Err.Error()
}

// Unwrap returns the context's error.
func (e *TimeoutError) Unwrap() error { return e.Err }

// showCycle formats a cycle, as "rank 0 → 1 → 0".
func showCycle(ranks []wire.Rank) string {
	names := make([]string, len(ranks))
	for i, r := range ranks {
		names[i] = fmt.Sprint(uint32(r))
	}
	return "rank " + strings.Join(names, " → ")
}

// MissingError reports a domain that could not be made because ranks are missing.
type MissingError struct {
	Domain string
	// Ranks lists the missing ranks, in ascending order.
	Ranks []wire.Rank
	// Err is the context's error, with the reasons of the missing ranks as far as known.
	Err error
}

// Error lists the missing ranks.
func (e *MissingError) Error() string {
	return fmt.Sprintf("make domain %q: no answer from %v: %v", e.Domain, e.Ranks, e.Err)
}

// Unwrap returns the cause.
func (e *MissingError) Unwrap() error { return e.Err }

// ListError reports two ranks that use different lists for the same domain name. It matches
// ErrList.
type ListError struct {
	Domain string
	Peer   wire.Rank
	// Ours and Theirs are the two lists.
	Ours, Theirs []wire.Rank
}

// Error shows both lists.
func (e *ListError) Error() string {
	return fmt.Sprintf("make domain %q: its ranks are %s here and %s at %s", e.Domain, showList(e.Ours), showList(e.Theirs), e.Peer)
}

// Is makes the error ErrList.
func (e *ListError) Is(target error) bool { return target == ErrList }

// shownRanks bounds the ranks of a list that an error shows.
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
