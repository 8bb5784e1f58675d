package domain

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/devices/elem"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// announced returns a message of two buffers that must be fetched.
func announced() *envelope {
	at := place{wire.Descriptor{Key: 0x1122334455667788, Size: 4096, Rights: wire.Readable}, 8}
	return &envelope{
		tag: 7, id: 9, streams: true, extents: []extent{{elem.Float32, 3}, {elem.Uint8, 1}}, remote: []place{at, at},
	}
}

func TestGoldenPackets(t *testing.T) {
	const at = "8877665544332211" + "0010000000000000" + "01020000" + "00000000" + "0800000000000000"
	for name, tc := range map[string]struct {
		got  []byte
		want string
	}{
		"join": {
			(&join{name: "ab", ranks: []wire.Rank{2, 0}, window: 1 << 20}).encode(opJoin, 5),
			"01010000" + "05000000" + "0000100000000000" + "02000000" + "02000000" + "6162" + "02000000" + "00000000",
		},
		"leave": {appendHead(nil, opLeave, 5), "0301000005000000"},
		"eager message": {
			append((&envelope{tag: 7, id: 9, eager: true, extents: []extent{{elem.Uint8, 2}}}).append(nil, 5), 0xab, 0xcd),
			"04010000" + "05000000" + "0700000000000000" + "0900000000000000" + "01000000" + "01000000" + "0200000000000003" + "abcd",
		},
		"message to fetch": {
			announced().append(nil, 5),
			"04010000" + "05000000" + "0700000000000000" + "0900000000000000" + "02000000" + "02000000" +
				"030000000000000e" + "0100000000000003" + at + at,
		},
		"data": {append(appendNumber(nil, opData, 5, 9), 0xab), "0501000005000000" + "0900000000000000" + "ab"},
		"done": {
			(&done{id: 9, outcome: outcomeMismatch, tag: 7, param: ParamCount, buffer: 1, local: 2, remote: 3}).encode(5),
			"06010000" + "05000000" + "0900000000000000" + "01030000" + "01000000" + "0700000000000000" + "0200000000000000" + "0300000000000000",
		},
		"credit":   {appendNumber(nil, opCredit, 5, 4096), "07010000050000000010000000000000"},
		"withdraw": {appendNumber(nil, opWithdraw, 5, 9), "08010000050000000900000000000000"},
		"flush":    {appendNumber(nil, opFlush, 5, 9), "09010000050000000900000000000000"},
		"probe":    {(&chase{nonce: 3, path: []wire.Rank{4, 1}}).encode(opProbe), "0a01000000000000" + "0300000000000000" + "0200000000000000" + "04000000" + "01000000"},
		"cycle":    {(&chase{nonce: 3, path: []wire.Rank{4}}).encode(opCycle), "0b01000000000000" + "0300000000000000" + "0100000000000000" + "04000000"},
		"ask":      {appendNumber(nil, opAsk, 5, 9), "0c010000050000000900000000000000"},
		"accept":   {appendNumber(nil, opAccept, 5, 9), "0d010000050000000900000000000000"},
	} {
		if hex.EncodeToString(tc.got) != tc.want {
			t.Errorf("%s: got %x, want %s", name, tc.got, tc.want)
		}
		if again, err := reencode(tc.got); err != nil || !bytes.Equal(again, tc.got) {
			t.Errorf("%s: read and written again it is %x, %v", name, again, err)
		}
	}
}

// reencode decodes a packet and encodes it again.
func reencode(p []byte) ([]byte, error) {
	o, index, err := parseHead(p)
	if err != nil {
		return nil, err
	}
	switch o {
	case opJoin, opReject:
		j, err := parseJoin(p)
		return j.encode(o, index), err
	case opLeave:
		return appendHead(nil, o, index), nil
	case opMessage:
		var e envelope
		err := e.parse(p)
		return append(e.append(nil, index), e.rest...), err
	case opDone:
		d, err := parseDone(p)
		return d.encode(index), err
	case opProbe, opCycle:
		c, err := parseChase(p)
		return c.encode(o), err
	default:
		n, rest, err := parseNumber(p)
		return append(appendNumber(nil, o, index, n), rest...), err
	}
}

func TestPacketsThatAreRefused(t *testing.T) {
	good := announced().append(nil, 5)
	change := func(at int, to ...byte) []byte {
		p := slices.Clone(good)
		copy(p[at:], to)
		return p
	}
	long := join{name: strings.Repeat("n", MaxName+1), ranks: []wire.Rank{0}}
	many := join{name: "n", ranks: make([]wire.Rank, MaxRanks+1)}
	huge := envelope{eager: true, extents: []extent{{elem.Float64, 1<<typeShift - 1}, {elem.Float64, math.MaxInt64 >> 8}}}
	for i := range huge.extents {
		huge.extents[i].count = 1<<typeShift - 1
	}
	for range 62 {
		huge.extents = append(huge.extents, huge.extents[0])
	}
	for name, p := range map[string][]byte{
		"empty":                 nil,
		"short head":            good[:7],
		"op 0":                  change(0, 0),
		"unknown op":            change(0, byte(opAccept)+1),
		"version 2":             change(1, 2),
		"reserved":              change(2, 1),
		"flags":                 change(24, 3),
		"unknown flag":          change(24, 4),
		"no views":              change(28, 0, 0, 0, 0),
		"more views":            change(28, 3),
		"4 Gi views":            change(28, 0xff, 0xff, 0xff, 0xff),
		"no type":               change(39, 0),
		"unknown type":          change(39, 0xff),
		"count out of place":    change(32, 0xff, 0xff),
		"more than 2^63":        huge.append(nil, 5),
		"offset out of place":   change(72, 0xff, 0xff),
		"offset that wraps":     change(72, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
		"no key":                change(48, 0, 0, 0, 0, 0, 0, 0, 0),
		"key to write":          change(64, 2),
		"cut":                   good[:len(good)-1],
		"longer":                append(slices.Clone(good), 0),
		"eager longer":          append((&envelope{eager: true, extents: []extent{{elem.Uint8, 1}}}).append(nil, 5), 1, 2),
		"long name":             long.encode(opJoin, 1),
		"many ranks":            many.encode(opJoin, 1),
		"no ranks":              (&join{name: "n"}).encode(opJoin, 1),
		"no name":               (&join{ranks: []wire.Rank{1}}).encode(opJoin, 1),
		"path of 0":             (&chase{}).encode(opProbe),
		"long path":             (&chase{path: make([]wire.Rank, maxPath+1)}).encode(opProbe),
		"done without param":    (&done{outcome: outcomeMismatch}).encode(1),
		"done with param":       (&done{param: ParamType}).encode(1),
		"done with values":      (&done{local: 1}).encode(1),
		"unknown outcome":       (&done{outcome: outcomeFailed + 1}).encode(1),
		"credit and more":       append(appendNumber(nil, opCredit, 1, 1), 0),
		"withdraw without a id": appendHead(nil, opWithdraw, 1),
	} {
		if again, err := reencode(p); err == nil {
			t.Errorf("%s is taken: %x", name, again)
		} else if !errors.Is(err, wire.ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzPacket feeds every decoder: an accepted packet must encode to the same bytes.
func FuzzPacket(f *testing.F) {
	f.Add(announced().append(nil, 5))
	f.Add(append((&envelope{eager: true, extents: []extent{{elem.Uint8, 2}}}).append(nil, 5), 1, 2))
	f.Add((&join{name: "ab", ranks: []wire.Rank{2, 0}}).encode(opJoin, 5))
	f.Add((&done{id: 1, outcome: outcomeMismatch, param: ParamType}).encode(5))
	f.Add((&chase{nonce: 3, path: []wire.Rank{4, 1}}).encode(opProbe))
	f.Add(append(appendNumber(nil, opData, 5, 9), 1))
	f.Add(appendHead(nil, opLeave, 5))
	f.Fuzz(func(t *testing.T, p []byte) {
		o, _, err := parseHead(p)
		if err != nil || o == opLeave {
			return
		}
		again, err := reencode(p)
		if o == opProbe || o == opCycle {
			// The index of such packets is ignored.
			p = append(append([]byte(nil), p[:4]...), append(make([]byte, 4), p[min(8, len(p)):]...)...)
		}
		if err == nil && !bytes.Equal(again, p) {
			t.Errorf("% x is read as % x", p, again)
		}
	})
}

func TestNames(t *testing.T) {
	for typ := range elem.Type(255) {
		if named := !strings.HasPrefix(typ.String(), "type "); named != (typ.Size() != 0) {
			t.Errorf("type %d is called %s and has %d bytes", typ, typ, typ.Size())
		}
	}
	e := &MismatchError{Domain: "d", Peer: 3, Tag: 4, Param: ParamType, Local: uint64(elem.Float32), Remote: uint64(elem.Int32)}
	if got, want := e.Error(), `domain "d": receive from rank 3, tag 4: type of buffer 0 is float32 here and int32 there`; got != want {
		t.Errorf("got %s", got)
	}
	l := &ListError{Domain: "d", Peer: 1, Ours: []wire.Rank{0, 1}, Theirs: make([]wire.Rank, 100)}
	if got := l.Error(); !strings.Contains(got, "[0 1] here and [0 0") || !strings.Contains(got, "and 36 more at rank 1") {
		t.Errorf("got %s", got)
	}
}
