package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/hmcfs/hmcfs/tests/kit"
)

func TestGoldenBytes(t *testing.T) {
	nonce := [NonceSize]byte(kit.Bytes(1, 0, NonceSize))
	put := make([]byte, DataHeaderSize)
	(&DataHeader{Kind: KindPut, Length: 0x01020304, ID: 5, Key: 6, Off: 7}).Encode(put)
	for name, tc := range map[string]struct {
		got  []byte
		want string
	}{
		"tag 1":      {AppendTag(nil, 1), "1002000008000000" + "0100000000000000"},
		"tag 2^64-1": {AppendTag(nil, 1<<64-1), "1002000008000000" + "ffffffffffffffff"},
		"packet":     {append(AppendPacket(nil, 7, 2), 0xab, 0xcd), "1302000006000000" + "07000000" + "abcd"},
		"put":        {put, "20020000" + "04030201" + "0500000000000000" + "0600000000000000" + "0700000000000000"},
		"hello": {
			(&Hello{From: 1, To: 2, Epoch: 3, Role: RoleControl, Channel: 4, Chunk: 0x100000, Cover: CoverSecret, Nonce: nonce}).Append(nil),
			"0102000048000000" + hex.EncodeToString([]byte(magic)) + "01000000" + "02000000" + "0300000000000000" +
				"0000000000000000" + "01040200" + "00001000" + hex.EncodeToString(nonce[:]),
		},
		"proposal": {
			Ways{{Transport: TransportRDMA, Facts: []byte("no")}, {Transport: TransportSHM, Usable: true, Facts: []byte{9}}}.Append(nil, KindProposal),
			"060200000b000000" + "01000200" + "6e6f" + "02010100" + "09",
		},
		"start": {(&Start{Files: 2, Blob: []byte{7, 8}}).Append(nil), "300200000a000000" + "0200000000000000" + "0708"},
		"offer": {
			(&Offer{Descriptor: Descriptor{Key: 1, Size: 2, Rights: Readable}, Files: 3, Blob: []byte{4}}).Append(nil),
			"3102000019000000" + "0100000000000000" + "0200000000000000" + "0103000000000000" + "04",
		},
		"accept":    {AppendKey(nil, KindAccept, 5), "3202000008000000" + "0500000000000000"},
		"decline":   {(&Decline{Key: 6, Reason: "no"}).Append(nil), "330200000a000000" + "0600000000000000" + "6e6f"},
		"withdraw":  {AppendKey(nil, KindWithdraw, 7), "3402000008000000" + "0700000000000000"},
		"withdrawn": {AppendKey(nil, KindWithdrawn, 8), "3502000008000000" + "0800000000000000"},
		"refusal":   {(&Refusal{Code: RefusedTaken, Reason: "no"}).Append(nil), "0502000004000000" + "0100" + "6e6f"},
	} {
		if hex.EncodeToString(tc.got) != tc.want {
			t.Errorf("%s: got %x, want %s", name, tc.got, tc.want)
		}
	}
}

// body removes the header of a frame and checks it.
func body(t *testing.T, frame []byte, kind Kind) []byte {
	t.Helper()
	h, err := ParseHeader(frame)
	if err != nil || h.Kind != kind || int(h.Length) != len(frame)-HeaderSize {
		t.Fatalf("header of %x: %+v, %v", frame, h, err)
	}
	return frame[HeaderSize:]
}

func TestRoundTrips(t *testing.T) {
	hello := Hello{From: 9, To: 1 << 31, Epoch: 1 << 63, Session: 77, Role: RoleData, Channel: 15, Chunk: MaxChunk, Cover: CoverLocal}
	copy(hello.Nonce[:], kit.Bytes(2, 0, NonceSize))
	if got, err := ParseHello(body(t, hello.Append(nil), KindHello)); err != nil || got != hello {
		t.Errorf("HELLO: %+v, %v", got, err)
	}
	challenge := Challenge{From: 3, Epoch: 4, Cover: CoverTLS}
	copy(challenge.Nonce[:], kit.Bytes(3, 0, NonceSize))
	if got, err := ParseChallenge(body(t, challenge.Append(nil), KindChallenge)); err != nil || got != challenge {
		t.Errorf("CHALLENGE: %+v, %v", got, err)
	}
	proof := Proof(kit.Bytes(4, 0, ProofSize))
	if got, err := ParseProof(body(t, proof.Append(nil), KindProof)); err != nil || got != proof {
		t.Errorf("PROOF: %x, %v", got, err)
	}
	welcome := Welcome{Session: 5, Chunk: MinChunk, Proof: proof}
	if got, err := ParseWelcome(body(t, welcome.Append(nil), KindWelcome)); err != nil || got != welcome {
		t.Errorf("WELCOME: %+v, %v", got, err)
	}
	refusal := Refusal{Code: RefusedSession, Reason: strings.Repeat("ä", maxReason)}
	got, err := ParseRefusal(body(t, refusal.Append(nil), KindRefusal))
	if err != nil || got.Code != refusal.Code || got.Reason != strings.Repeat("ä", maxReason/2) {
		t.Errorf("REFUSAL: %+v, %v", got, err)
	}
	for _, tag := range []Tag{0, 1, 1<<64 - 1} {
		if got, err := ParseTag(body(t, AppendTag(nil, tag), KindTag)); err != nil || got != tag {
			t.Errorf("TAG %d: %d, %v", tag, got, err)
		}
	}
	for _, n := range []int{0, 1, MaxPacket} {
		want := kit.Bytes(5, 0, n)
		port, b, err := ParsePacket(body(t, append(AppendPacket(nil, 1<<32-1, n), want...), KindPacket))
		if err != nil || port != 1<<32-1 || !bytes.Equal(b, want) {
			t.Errorf("PACKET of %d bytes: port %d, %d bytes, %v", n, port, len(b), err)
		}
	}
	if _, _, err := ParsePacket(make([]byte, 4)); !errors.Is(err, ErrFrame) {
		t.Errorf("PACKET without a port: %v", err)
	}
	d := Descriptor{Key: 1 << 63, Size: 1<<63 - 1, Rights: Writable}
	if got, err := ParseDescriptor(d.Append(nil)); err != nil || got != d {
		t.Errorf("descriptor: %+v, %v", got, err)
	}
}

func TestDataHeaders(t *testing.T) {
	const chunk = 1 << 20
	for _, h := range []DataHeader{
		{Kind: KindPut, Length: chunk, ID: 1<<64 - 1, Key: 1, Off: 1 << 63},
		{Kind: KindGet, Length: 1, Key: 3},
		{Kind: KindAck, Status: StatusRange, ID: 4},
		{Kind: KindData, Length: 5, ID: 6},
		{Kind: KindData, Status: StatusKey, ID: 6},
	} {
		var p [DataHeaderSize]byte
		h.Encode(p[:])
		var got DataHeader
		if err := got.Decode(p[:], chunk); err != nil || got != h {
			t.Errorf("%+v: got %+v, %v", h, got, err)
		}
	}
	for _, h := range []DataHeader{
		{Kind: KindPut, Length: chunk + 1},
		{Kind: KindPut, Length: 1<<32 - 1},
		{Kind: KindPut},
		{Kind: KindPut, Length: 1, Status: StatusKey},
		{Kind: KindAck, Length: 1},
		{Kind: KindAck, Key: 1},
		{Kind: KindAck, Off: 1},
		{Kind: KindAck, Status: StatusDevice + 1},
		{Kind: KindData},
		{Kind: KindData, Status: StatusKey, Length: 1},
		{Kind: KindGet},
		{Kind: KindTag},
		{Kind: 36},
		{},
	} {
		var p [DataHeaderSize]byte
		h.Encode(p[:])
		var got DataHeader
		if err := got.Decode(p[:], chunk); !errors.Is(err, ErrFrame) {
			t.Errorf("%+v is taken: %v", h, err)
		}
	}
	var p [DataHeaderSize]byte
	(&DataHeader{Kind: KindGet, Length: 1}).Encode(p[:])
	p[1]++
	if err := new(DataHeader).Decode(p[:], chunk); !errors.Is(err, ErrVersion) {
		t.Errorf("another version is taken: %v", err)
	}
}

func TestHeadersThatAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		p    string
		want error
	}{
		"4 GiB message":   {"11020000ffffffff", ErrFrame},
		"message + 1":     {"1102000001000100", ErrFrame},
		"packet + 1":      {"1302000005000100", ErrFrame},
		"packet - 1":      {"1302000003000000", ErrFrame},
		"short tag":       {"1002000007000000", ErrFrame},
		"data kind":       {"2002000008000000", ErrFrame},
		"reserved":        {"1002010008000000", ErrFrame},
		"version 1":       {"1001000008000000", ErrVersion},
		"another service": {hex.EncodeToString([]byte("GET / HT")), ErrFrame},
		"short":           {"100200", ErrFrame},
		"4 GiB offer":     {"31020000ffffffff", ErrFrame},
		"offer + 1":       {"3102000019100000", ErrFrame},
		"long proposal":   {"0602000011080000", ErrFrame},
		"start + 1":       {"3002000009400000", ErrFrame},
	} {
		p, err := hex.DecodeString(tc.p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseHeader(p); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHellosThatAreRefused(t *testing.T) {
	good := Hello{From: 1, To: 2, Epoch: 3, Role: RoleControl, Channel: 1, Chunk: MinChunk, Cover: CoverPlain}
	for name, change := range map[string]func(*Hello){
		"no epoch":             func(h *Hello) { h.Epoch = 0 },
		"no role":              func(h *Hello) { h.Role = 0 },
		"control with session": func(h *Hello) { h.Session = 1 },
		"data without session": func(h *Hello) { h.Role = RoleData },
		"no channels":          func(h *Hello) { h.Channel = 0 },
		"too many channels":    func(h *Hello) { h.Channel = MaxChannels + 1 },
		"small chunk":          func(h *Hello) { h.Chunk = MinChunk - 1 },
		"large chunk":          func(h *Hello) { h.Chunk = MaxChunk + 1 },
		"no cover":             func(h *Hello) { h.Cover = 0 },
		"unknown cover":        func(h *Hello) { h.Cover = CoverLocal + 1 },
		"side without session": func(h *Hello) { h.Role, h.Channel = RoleSide, 0 },
		"side with a channel":  func(h *Hello) { h.Role, h.Session = RoleSide, 1 },
	} {
		h := good
		change(&h)
		if _, err := ParseHello(h.Append(nil)[HeaderSize:]); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzControl feeds every decoder of the control connection: an accepted value
// must encode to the same bytes.
func FuzzControl(f *testing.F) {
	f.Add(AppendTag(nil, 1))
	f.Add((&Hello{From: 1, Epoch: 1, Role: RoleControl, Channel: 1, Chunk: MinChunk, Cover: CoverTLS}).Append(nil))
	f.Add((&Challenge{Epoch: 1, Cover: CoverTLS}).Append(nil))
	f.Add((&Proof{1}).Append(nil))
	f.Add((&Welcome{Session: 1, Chunk: MinChunk}).Append(nil))
	f.Add((&Refusal{Code: 1, Reason: "r"}).Append(nil))
	f.Add(Header{Kind: KindMessage, Length: 3}.Append(nil))
	f.Add(Ways{{Transport: TransportSHM, Usable: true, Facts: []byte{1}}, {Transport: TransportTCP}}.Append(nil, KindProposal))
	f.Add((&Start{Files: 1, Blob: []byte{2}}).Append(nil))
	f.Add((&Offer{Descriptor: Descriptor{Key: 1, Size: 1, Rights: 1}, Files: 1, Blob: []byte{2}}).Append(nil))
	f.Add((&Decline{Key: 1, Reason: "r"}).Append(nil))
	f.Add(AppendKey(nil, KindWithdraw, 1))
	f.Add(append(AppendPacket(nil, 1, 3), 1, 2, 3))
	f.Fuzz(func(t *testing.T, p []byte) {
		h, err := ParseHeader(p)
		if err != nil || len(p)-HeaderSize != int(h.Length) {
			return
		}
		again, err := reencode(h.Kind, p[HeaderSize:])
		if err == nil && !bytes.Equal(again, p) {
			t.Errorf("% x is read as % x", p, again)
		}
	})
}

// reencode decodes a body and encodes it again.
func reencode(k Kind, body []byte) ([]byte, error) {
	switch k {
	case KindHello:
		h, err := ParseHello(body)
		return h.Append(nil), err
	case KindChallenge:
		c, err := ParseChallenge(body)
		return c.Append(nil), err
	case KindProof:
		m, err := ParseProof(body)
		return m.Append(nil), err
	case KindWelcome:
		w, err := ParseWelcome(body)
		return w.Append(nil), err
	case KindRefusal:
		r, err := ParseRefusal(body)
		return r.Append(nil), err
	case KindTag:
		g, err := ParseTag(body)
		return AppendTag(nil, g), err
	case KindProposal, KindChoice:
		w, err := ParseWays(body)
		return w.Append(nil, k), err
	case KindStart:
		s, err := ParseStart(body)
		return s.Append(nil), err
	case KindOffer:
		o, err := ParseOffer(body)
		return o.Append(nil), err
	case KindDecline:
		d, err := ParseDecline(body)
		return d.Append(nil), err
	case KindAccept, KindWithdraw, KindWithdrawn:
		key, err := ParseKey(body)
		return AppendKey(nil, k, key), err
	case KindPacket:
		port, b, err := ParsePacket(body)
		return append(AppendPacket(nil, port, len(b)), b...), err
	default:
		return append(Header{Kind: k, Length: uint32(len(body))}.Append(nil), body...), nil
	}
}

func FuzzData(f *testing.F) {
	var p [DataHeaderSize]byte
	for _, k := range []Kind{KindPut, KindAck, KindGet, KindData} {
		(&DataHeader{Kind: k, Length: 1}).Encode(p[:])
		f.Add(bytes.Clone(p[:]))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		var h DataHeader
		if h.Decode(p, MinChunk) != nil {
			return
		}
		var again [DataHeaderSize]byte
		h.Encode(again[:])
		if h.Length > MinChunk || !bytes.Equal(again[:], p[:DataHeaderSize]) {
			t.Errorf("% x is read as %+v", p, h)
		}
	})
}

func FuzzDescriptor(f *testing.F) {
	f.Add(Descriptor{Key: 1, Size: 2, Rights: Readable}.Append(nil))
	f.Fuzz(func(t *testing.T, p []byte) {
		d, err := ParseDescriptor(p)
		if err == nil && !bytes.Equal(d.Append(nil), p) {
			t.Errorf("% x is read as %+v", p, d)
		}
	})
}

func TestNames(t *testing.T) {
	for k := range Kind(60) {
		_, _, control := k.lengths()
		known := control || (&DataHeader{Kind: k}).known()
		if named := !strings.HasPrefix(k.String(), "kind"); named != known {
			t.Errorf("kind %d is called %s", uint8(k), k)
		}
	}
	for r, want := range map[Rights]string{0: "none", Readable: "read", Writable | Readable: "read,write"} {
		if r.String() != want {
			t.Errorf("rights %d: %s", r, r)
		}
	}
	if reflect.TypeFor[Rank]().Size() != 4 || binary.Size(DataHeader{}) > DataHeaderSize {
		t.Error("a field is larger than its place in the frame")
	}
}
