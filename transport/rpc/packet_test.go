package rpc

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// The bytes of every packet, as docs/wire.md draws them.
func TestGoldenPackets(t *testing.T) {
	for _, c := range []struct {
		want string
		p    packet
	}{
		{"01 01 0302 e8030000 0500000000000000 6869", packet{opQuestion, 0x203, 1000, 5, []byte("hi")}},
		{"02 01 0000 00000000 0500000000000000", packet{opCancel, 0, 0, 5, nil}},
		{"03 01 0000 02000000 0500000000000000 6869", packet{opAnswer, 0, 2, 5, []byte("hi")}},
		{"03 01 0000 00000000 0500000000000000", packet{opAnswer, 0, 0, 5, nil}},
		{"04 01 0000 f0ff0000 0500000000000000 68", packet{opMore, 0, 0xfff0, 5, []byte("h")}},
		{"05 01 0400 00000000 0500000000000000 6f68", packet{opFailure, uint16(CodeDeadline), 0, 5, []byte("oh")}},
		{"06 01 0001 00000000 0000000000000000 6869", packet{opNotice, 0x100, 0, 0, []byte("hi")}},
		{"07 01 0000 00000000 0000000000000000", packet{opPing, 0, 0, 0, nil}},
		{"08 01 0000 00000000 0000000000000000", packet{opPong, 0, 0, 0, nil}},
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(c.want, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.p.encode(); !bytes.Equal(got, want) {
			t.Errorf("packet %d is % x, not % x", c.p.op, got, want)
		}
		got, err := parse(want)
		if err != nil || got.op != c.p.op || got.what != c.p.what || got.number != c.p.number || got.id != c.p.id ||
			!bytes.Equal(got.body, c.p.body) {
			t.Errorf("% x is %+v: %v", want, got, err)
		}
	}
}

func TestMalformedPackets(t *testing.T) {
	for name, p := range map[string]packet{
		"no packet":                  {0, 0, 0, 1, nil},
		"a packet of tomorrow":       {9, 0, 0, 0, nil},
		"a heartbeat with a number":  {opPing, 0, 0, 1, nil},
		"a heartbeat with a body":    {opPong, 0, 0, 0, []byte("x")},
		"a question without time":    {opQuestion, 1, 0, 1, nil},
		"a question without number":  {opQuestion, 1, 1, 0, nil},
		"a long question":            {opQuestion, 1, 1, 1, make([]byte, MaxQuestion+1)},
		"a cancel with a body":       {opCancel, 0, 0, 1, []byte("x")},
		"a cancel of nothing":        {opCancel, 0, 0, 0, nil},
		"a long answer":              {opAnswer, 0, MaxAnswer + 1, 1, []byte("x")},
		"more than the answer":       {opAnswer, 0, 1, 1, []byte("xx")},
		"nothing of an answer":       {opAnswer, 0, 1, 1, nil},
		"an answer with a method":    {opAnswer, 1, 1, 1, []byte("x")},
		"more at the beginning":      {opMore, 0, 0, 1, []byte("x")},
		"no more":                    {opMore, 0, 1, 1, nil},
		"more beyond the bound":      {opMore, 0, MaxAnswer, 1, []byte("x")},
		"a failure without a code":   {opFailure, 0, 0, 1, nil},
		"a failure that is a book":   {opFailure, 1, 0, 1, make([]byte, MaxText+1)},
		"a failure that is no text":  {opFailure, 1, 0, 1, []byte{0xff}},
		"a notice with a number":     {opNotice, 1, 0, 1, nil},
		"a long notice":              {opNotice, 1, 0, 0, make([]byte, MaxQuestion+1)},
		"a notice that has a length": {opNotice, 1, 1, 0, nil},
	} {
		if got, err := parse(p.encode()); !errors.Is(err, ErrProtocol) || !errors.Is(err, wire.ErrFrame) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	good := packet{op: opCancel, id: 1}
	b := good.encode()
	for i := range b {
		if _, err := parse(b[:i]); !errors.Is(err, ErrProtocol) {
			t.Errorf("%d bytes of a packet: %v", i, err)
		}
	}
	b[1] = 2
	if _, err := parse(b); !errors.Is(err, ErrProtocol) {
		t.Errorf("another version: %v", err)
	}
}

// A text is cut between two runes, and is always valid UTF-8.
func TestTextOfFailures(t *testing.T) {
	for _, text := range []string{
		"", "short", strings.Repeat("x", MaxText), strings.Repeat("x", MaxText-1) + "é", strings.Repeat("é", MaxText), "\xff\xfe",
	} {
		p, err := parse(failure(1, 0, text))
		if err != nil || Code(p.what) != CodeUnknown || !utf8.Valid(p.body) || len(p.body) < min(len(text), MaxText-1) {
			t.Errorf("%.20q: %q, %v", text, p.body, err)
		}
	}
}

func FuzzPacket(f *testing.F) {
	for _, p := range []packet{
		{opQuestion, 1, 1000, 5, []byte("hi")},
		{opCancel, 0, 0, 5, nil},
		{opAnswer, 0, 2, 5, []byte("hi")},
		{opMore, 0, maxPart, 5, []byte("h")},
		{opFailure, 4, 0, 5, []byte("oh")},
		{opNotice, 256, 0, 0, []byte("hi")},
	} {
		f.Add(p.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parse(b)
		if err != nil {
			return
		}
		if got := p.encode(); !bytes.Equal(got, b) {
			t.Errorf("% x is made of % x", got, b)
		}
	})
}
