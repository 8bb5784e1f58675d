package rankserver

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices/elem"
	"github.com/hmcfs/hmcfs/objects/frames"
)

// sample is the call of docs/wire.md.
func sample() *Call {
	return &Call{
		Type: elem.Float32, Op: elem.Sum, Peer: 1, Number: 7, Timeout: 2 * time.Second,
		Source: Range{Memory: 1, Offset: 4096, Count: 256}, Result: Range{Memory: 2, Count: 256},
	}
}

// TestCall checks the bytes of a call, and that decoding restores it.
func TestCall(t *testing.T) {
	want := []byte{
		14, 1, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0x94, 0x35, 0x77, 0, 0, 0, 0,
		1, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0,
		2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0,
	}
	b := sample().Append(nil)
	if !bytes.Equal(b, want) {
		t.Errorf("% x, want % x", b, want)
	}
	c, err := ParseCall(b)
	if err != nil || *c != *sample() {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestBadCalls checks that malformed bodies are refused.
func TestBadCalls(t *testing.T) {
	good := sample().Append(nil)
	for name, b := range map[string][]byte{
		"empty": nil, "short": good[:71], "long": append(bytes.Clone(good), 0),
		"reserved": set(good, 2, 1), "negative timeout": set(good, 23, 0x80),
	} {
		if _, err := ParseCall(b); !errors.Is(err, frames.ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// set returns a copy with one byte changed.
func set(b []byte, at int, value byte) []byte {
	b = bytes.Clone(b)
	b[at] = value
	return b
}

// FuzzCall checks that a body is refused, or is what its call encodes to.
func FuzzCall(f *testing.F) {
	f.Add(sample().Append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := ParseCall(b); err == nil && !bytes.Equal(c.Append(nil), b) {
			t.Errorf("% x decodes to %+v", b, c)
		}
	})
}
