package collective

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// purpose is the purpose of a control message. Its values are used on the wire.
type purpose uint16

const (
	// forOptions compares options, forCall the arguments of a call, and forState exchanges
	// standings after an error.
	forOptions purpose = iota + 1
	forCall
	forState
	// forEnd announces that a rank has received everything.
	forEnd
	forSuspend
	forResume
	forVerify
	// forGroup and later values are for other agreements of the group.
	forGroup
)

// frameSize is the size, in bytes, of a frame:
//
//	0   kind
//	1   type
//	2   op
//	3   1 if strict
//	4   root
//	8   count
//	16  algorithm, padded with zeros
const frameSize = 32

// frame encodes a call for the comparison between ranks.
type frame [frameSize]byte

// kindControl and larger values are calls that have no plan.Kind.
const kindControl = 0xf0

func frameOf(t *plan.Task, a plan.Algorithm) (f frame) {
	f[0], f[1], f[2] = byte(t.Kind), byte(t.Type), byte(t.Op)
	if t.Strict {
		f[3] = 1
	}
	binary.LittleEndian.PutUint16(f[4:], uint16(t.Root))
	binary.LittleEndian.PutUint64(f[8:], t.Count)
	copy(f[16:], a)
	return f
}

// controlFrame returns the frame of an exchange that is a call of its own.
func controlFrame(why purpose) (f frame) {
	f[0] = kindControl
	binary.LittleEndian.PutUint16(f[4:], uint16(why))
	return f
}

// fields returns the frame's values in readable form.
func (f *frame) fields() []FieldDifference {
	if f[0] >= kindControl {
		return []FieldDifference{{Field: "kind", Local: purpose(binary.LittleEndian.Uint16(f[4:])).String()}}
	}
	return []FieldDifference{
		{Field: "kind", Local: plan.Kind(f[0]).String()},
		{Field: "type", Local: elem.Type(f[1]).String()},
		{Field: "op", Local: elem.Op(f[2]).String()},
		{Field: "strict", Local: strconv.FormatBool(f[3] != 0)},
		{Field: "root", Local: strconv.Itoa(int(binary.LittleEndian.Uint16(f[4:])))},
		{Field: "count", Local: strconv.FormatUint(binary.LittleEndian.Uint64(f[8:]), 10)},
		{Field: "algorithm", Local: string(bytes.TrimRight(f[16:], "\x00"))},
	}
}

// String returns the purpose as used in errors.
func (p purpose) String() string {
	names := map[purpose]string{forSuspend: "suspend", forResume: "resume", forVerify: "verify"}
	return cmp.Or(names[p], fmt.Sprintf("control %d", uint16(p)))
}

// differences compares our frame with a peer's. It returns nil if they are equal.
func differences(ours, theirs *frame) []FieldDifference {
	if *ours == *theirs {
		return nil
	}
	local, remote := ours.fields(), theirs.fields()
	if len(local) != len(remote) {
		return []FieldDifference{{Field: "kind", Local: local[0].Local, Remote: remote[0].Local}}
	}
	var out []FieldDifference
	for i, f := range local {
		if f.Local != remote[i].Local {
			f.Remote = remote[i].Local
			out = append(out, f)
		}
	}
	return out
}
