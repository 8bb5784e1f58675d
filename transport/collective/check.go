package collective

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"sort"
	"strconv"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/transport/collective/plan"
)

// frameSize is the bytes of a frame:
//
//	0   kind
//	1   type
//	2   op
//	3   1 where it is strict
//	4   root
//	8   count
//	16  algorithm, filled up with zeros
const frameSize = 32

// frame is a call as the ranks compare it.
type frame [frameSize]byte

// kindControl and what follows are calls that are no plan.Kind.
const kindControl = 0xf0

// frameOf is the frame of a call.
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

// controlFrame is the frame of an exchange that is a call of its own.
func controlFrame(why purpose) (f frame) {
	f[0] = kindControl
	binary.LittleEndian.PutUint16(f[4:], uint16(why))
	return f
}

// fields are the frame's values as a person reads them.
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

// String is the purpose as an error names it.
func (p purpose) String() string {
	switch p {
	case forSuspend:
		return "suspend"
	case forResume:
		return "resume"
	case forVerify:
		return "verify"
	default:
		return fmt.Sprintf("control %d", uint16(p))
	}
}

// differences compares our frame with a peer's. Nil is none.
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

// compare has the ranks compare what they ask for, where Options.Check says so.
//
// Errors: an InconsistentError, at every rank and before any element moves.
func (g *Group) compare(ctx context.Context, d *duty) error {
	gd := &g.guard
	if g.opts.Check == CheckOff || g.Size() == 1 || d.run == nil || d.run.resumed {
		return nil
	}
	// A Barrier has no arguments, and one that is given up can go on where it was:
	// frames that some ranks have sent would be in its way.
	if d.run.task.Kind == plan.Barrier {
		return nil
	}
	if gd.ident.agreed && g.opts.Check == CheckFirst {
		return nil
	}
	if err := g.exchange(ctx, forCall, gd.ident.frame[:], gd.frames); err != nil {
		return err
	}
	for r := range gd.frames {
		theirs := frame(gd.frames[r])
		if diff := differences(&gd.ident.frame, &theirs); diff != nil {
			return &InconsistentError{Call: gd.call, Rank: plan.Rank(r), Fields: diff}
		}
	}
	gd.agree()
	return nil
}

// optionsSize is the bytes that options are compared in.
const optionsSize = 2048

// protocolVersion is that of what ranks say to each other.
const protocolVersion = 1

// compareOptions has the ranks compare what their groups are made with.
//
// Errors: an InconsistentError, at every rank.
func (g *Group) compareOptions(ctx context.Context) error {
	if g.Size() == 1 {
		return nil
	}
	o := &g.opts
	mine := make([]byte, optionsSize)
	own := map[string]string{
		"version": strconv.Itoa(protocolVersion), "algorithm": string(o.Algorithm), "strict": strconv.FormatBool(o.Strict),
		"algorithms": fmt.Sprint(o.Algorithms), "check": string(o.Check), "order": fmt.Sprint(o.Order), "topology": o.Topology, "buffer": strconv.FormatUint(uint64(o.Buffer), 10),
		"timeout": o.Timeout.String(), "stuck": o.Stuck.String(), "retry": strconv.Itoa(o.Retry), "keep-source": strconv.FormatBool(o.KeepSource),
		"settle": strconv.FormatUint(uint64(o.Settle), 10),
	}
	text, err := json.Marshal(own)
	if err != nil {
		return fmt.Errorf("write options: %w", err)
	}
	if len(text) > optionsSize {
		// An order or a hash of such length is compared by its digest.
		own["order"], own["topology"] = digestOf(own["order"]), digestOf(own["topology"])
		if text, err = json.Marshal(own); err != nil {
			return fmt.Errorf("write options: %w", err)
		}
	}
	copy(mine, text)
	all := g.rows(optionsSize)
	if err := g.exchange(ctx, forOptions, mine, all); err != nil {
		return fmt.Errorf("compare options: %w", err)
	}
	for r := range all {
		theirs := map[string]string{}
		if err := json.Unmarshal(bytes.TrimRight(all[r], "\x00"), &theirs); err != nil {
			return fmt.Errorf("options of rank %d: %w: %w", r, ErrInconsistent, err)
		}
		if diff := differMaps(own, theirs); diff != nil {
			return &InconsistentError{Rank: plan.Rank(r), Fields: diff}
		}
	}
	return nil
}

// digestOf stands for a long text.
func digestOf(text string) string {
	return fmt.Sprintf("%d bytes, crc %08x", len(text), crc32.ChecksumIEEE([]byte(text)))
}

// differMaps lists the names that have different values.
func differMaps(ours, theirs map[string]string) []FieldDifference {
	var out []FieldDifference
	for name, local := range ours {
		if remote := theirs[name]; remote != local {
			out = append(out, FieldDifference{Field: name, Local: strconv.Quote(local), Remote: strconv.Quote(remote)})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Field < out[j].Field })
	return out
}
