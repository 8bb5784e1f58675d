package fabric

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/hmcfs/hmcfs/transport/wire"
)

// FuzzPackets decodes packets of a peer: the result is an error, or encodes to the same
// bytes.
func FuzzPackets(f *testing.F) {
	good := packet{kind: kindPart, have: true, epoch: 2, seq: 3, from: 4, to: 5, name: "job", blob: []byte{1, 2}}
	f.Add(good.encode())
	f.Add([]byte{packetVersion, 2})
	f.Add(make([]byte, packetHead))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parsePacket(b)
		if err != nil {
			if !errors.Is(err, wire.ErrFrame) {
				t.Error(err)
			}
			return
		}
		if again := p.encode(); !bytes.Equal(again, b) {
			t.Errorf("% x became % x", b, again)
		}
	})
}

// TestFacts decodes the facts of other ranks.
func TestFacts(t *testing.T) {
	want := facts{streams: true, reach: 1 << 63, cpus: 5, host: "a"}
	if got, err := parseFacts(want.encode()); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range [][]byte{nil, make([]byte, factsSize-1), append([]byte{2}, make([]byte, factsSize)...), make([]byte, factsSize+maxHost+1)} {
		if _, err := parseFacts(bad); !errors.Is(err, ErrProtocol) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
}

// TestWrongCounters: a peer writes impossible values to the counters of a ring.
func TestWrongCounters(t *testing.T) {
	p := pipe{&flow{}, make([]byte, 64)}
	in, out := inlet{pipe: p}, outlet{pipe: p}
	p.flow.head.Store(65)
	if _, err := in.receive(make([]byte, 8)); !errors.Is(err, errRing) {
		t.Error(err)
	}
	if _, err := in.filled(); !errors.Is(err, errRing) {
		t.Error(err)
	}
	p.flow.tail.Store(1)
	if _, err := out.send(nil, make([]byte, 65)); !errors.Is(err, errRing) {
		t.Error(err)
	}
}
