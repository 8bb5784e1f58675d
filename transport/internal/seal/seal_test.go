package seal

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// patience is the time limit for events that must happen, however busy the
// machine is.
const patience = 30 * time.Second

// tape is a connection that records what is written, and is read from a list of
// pieces.
type tape struct {
	net.Conn

	written bytes.Buffer
	pieces  [][]byte
}

func (c *tape) Write(p []byte) (int, error) { return c.written.Write(p) }

func (c *tape) Read(p []byte) (int, error) {
	for len(c.pieces) > 0 && len(c.pieces[0]) == 0 {
		c.pieces = c.pieces[1:]
	}
	if len(c.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.pieces[0])
	c.pieces[0] = c.pieces[0][n:]
	return n, nil
}

func (c *tape) Close() error { return nil }

// recorded is a sender's records, and what makes receivers of them.
//
// +checklocksignore: nobody else has the connection.
func recorded(t testing.TB, sizes ...int) (records [][]byte, receiver func(pieces [][]byte) *Conn) {
	t.Helper()
	one, two := shaken(t)
	out := &tape{}
	c, err := one.Conn(out)
	if err != nil {
		t.Fatal(err)
	}
	at := int64(0)
	for _, n := range sizes {
		out.written.Reset()
		if _, err = c.Write(kit.Bytes(7, at, n)); err != nil {
			t.Fatal(err)
		}
		at += int64(n)
		records = append(records, bytes.Clone(out.written.Bytes()))
	}
	end, err := c.out.seal(make([]byte, 0, Overhead), kindEnd, nil)
	if err != nil {
		t.Fatal(err)
	}
	return append(records, end), func(pieces [][]byte) *Conn {
		c, err := two.Conn(&tape{pieces: slices.Clone(pieces)})
		if err != nil {
			t.Fatal(err)
		}
		c.Ahead()
		return c
	}
}

// received reads everything, compares it with the bytes that were sent as far as
// it goes, and returns its length and the error that ended it.
func received(t testing.TB, name string, c *Conn) (int, error) {
	t.Helper()
	got, p := []byte{}, make([]byte, 100)
	for {
		n, err := c.Read(p)
		got = append(got, p[:n]...)
		if err == nil {
			continue
		}
		if i := kit.DiffAt(got, 7, 0); i >= 0 {
			t.Errorf("%s: byte %d was not sent", name, i)
		}
		if n, again := c.Read(p); n != 0 || !errors.Is(again, err) {
			t.Errorf("%s: behind the end: %d, %v after %v", name, n, again, err)
		}
		return len(got), err
	}
}

// TestChangedOnTheWay flips every bit of every record, cuts the stream at every
// byte, and drops, repeats and moves records: everything that is received was
// sent before the first change, and the error is not a clean end.
func TestChangedOnTheWay(t *testing.T) {
	sizes := []int{1, 40, 300}
	records, receiver := recorded(t, sizes...)
	ends := []int{0, 1, 41, 341}
	check := func(name string, whole int, want error, pieces [][]byte) {
		t.Helper()
		if n, err := received(t, name, receiver(pieces)); n != ends[whole] || !errors.Is(err, want) {
			t.Errorf("%s: %d bytes, %v; want %d, %v", name, n, err, ends[whole], want)
		}
	}
	check("as it was", 3, io.EOF, records)
	for i, r := range records {
		for bit := range 8 * len(r) {
			changed := bytes.Clone(r)
			changed[bit/8] ^= 1 << (bit % 8)
			pieces := append(append([][]byte{}, records[:i]...), changed)
			n, err := received(t, "a flipped bit", receiver(append(pieces, records[i+1:]...)))
			// A record with too large a length may wait for bytes that never
			// arrive.
			longer := errors.Is(err, ErrCut) && bit < 8*headSize
			if n != ends[i] || (!errors.Is(err, ErrForged) && !longer) {
				t.Errorf("bit %d of record %d flipped: %d bytes, %v", bit, i, n, err)
			}
		}
		for n := range len(r) {
			check("cut", i, ErrCut, append(append([][]byte{}, records[:i]...), r[:n]))
		}
		without := append(append([][]byte{}, records[:i]...), records[i+1:]...)
		if i < len(records)-1 {
			check("dropped", i, ErrForged, without)
			check("moved", i, ErrForged, append(without, r))
			check("repeated", i+1, ErrForged, append(append(append([][]byte{}, records[:i+1]...), r), records[i+1:]...))
		} else {
			check("without the end", i, ErrCut, without)
		}
	}
	other, _ := recorded(t, sizes...)
	check("of another connection", 0, ErrForged, other)
	check("of another connection, later", 1, ErrForged, append(append([][]byte{}, records[:1]...), other[1:]...))
}

// TestSentBack reflects a peer's own records to it.
func TestSentBack(t *testing.T) {
	one, _ := shaken(t)
	c := &tape{}
	conn, err := one.Conn(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = conn.Write(kit.Bytes(7, 0, 10)); err != nil {
		t.Fatal(err)
	}
	c.pieces = [][]byte{c.written.Bytes()}
	if n, err := conn.Read(make([]byte, 10)); n != 0 || !errors.Is(err, ErrForged) {
		t.Errorf("%d, %v", n, err)
	}
}

// TestAnyPieces delivers the same records in pieces of any length.
func TestAnyPieces(t *testing.T) {
	records, receiver := recorded(t, 1, MaxRecord, 5, 3*MaxRecord+77, lengthy, lengthy-1, smallBuffer)
	all := bytes.Join(records, nil)
	r := rand.New(rand.NewPCG(1, 2))
	for _, most := range []int{1, 7, 4096, 200 << 10} {
		var pieces [][]byte
		for p := all; len(p) > 0; {
			n := min(len(p), 1+r.IntN(most))
			pieces, p = append(pieces, p[:n]), p[n:]
		}
		if n, err := received(t, "in pieces", receiver(pieces)); n != 6+4*MaxRecord+77+2*lengthy-1+smallBuffer || !errors.Is(err, io.EOF) {
			t.Errorf("in pieces of up to %d: %d bytes, %v", most, n, err)
		}
	}
}

// TestNewKeys sends beyond the records at which the key changes.
//
// +checklocksignore: nobody else has the connections.
func TestNewKeys(t *testing.T) {
	kit.Check(t)
	a, b := sockets(t)
	from, to := sealed(t, a, b)
	from.out.count, to.in.count = rekeyEvery-3, rekeyEvery-3
	first := from.out.key
	for i := range byte(6) {
		if _, err := from.Write([]byte{i}); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 2)
		if n, err := to.Read(p); n != 1 || p[0] != i || err != nil {
			t.Fatalf("record %d: %d, %v, %v", i, n, p, err)
		}
	}
	if from.out.key == first || from.out.key != to.in.key {
		t.Error("the key is the old one, or not the same at both ends")
	}
}

// TestBothWays writes by all methods, to both sides at once, while both read.
func TestBothWays(t *testing.T) {
	kit.Check(t)
	a, b := sockets(t)
	left, right := sealed(t, a, b)
	const size = 3 << 20
	var running sync.WaitGroup
	for i, ends := range [][2]*Conn{{left, right}, {right, left}} {
		seed := uint64(i + 1)
		running.Go(func() { writeAll(t, ends[0], seed, size) })
		running.Go(func() {
			got, n := make([]byte, size), 0
			for n < size {
				k, err := ends[1].ReadNow(got[n:])
				if k == 0 && err == nil {
					k, err = ends[1].Read(got[n:min(size, n+5000)])
				}
				if n += k; err != nil {
					t.Errorf("after %d bytes: %v", n, err)
					return
				}
			}
			if at := kit.DiffAt(got, seed, 0); at >= 0 {
				t.Errorf("byte %d was not sent", at)
			}
		})
	}
	running.Wait()
}

func writeAll(t *testing.T, c *Conn, seed uint64, size int) {
	t.Helper()
	data := kit.Bytes(seed, 0, size)
	r := rand.New(rand.NewPCG(seed, 0))
	for at := 0; at < size; {
		n := min(size-at, 1+r.IntN(1<<(1+r.IntN(18))))
		p := data[at : at+n]
		cut := r.IntN(n)
		var err error
		switch r.IntN(4) {
		case 0:
			n, err = c.Try(p)
		case 1:
			n, err = c.TryParts([][]byte{p[:cut], nil, p[cut:]})
		case 2:
			var k int64
			k, err = c.WriteParts([][]byte{p[:cut/2], p[cut/2 : cut], p[cut:]})
			n = int(k)
		default:
			n, err = c.Write(p)
		}
		if err != nil {
			t.Errorf("write: %v", err)
			return
		}
		at += n
	}
}

// TestFull tries to write to a peer that does not read, until nothing fits: the
// bytes that were accepted arrive when it reads.
func TestFull(t *testing.T) {
	kit.Check(t)
	a, b := sockets(t)
	from, to := sealed(t, a, b)
	data := kit.Bytes(7, 0, 64<<20)
	taken := 0
	for {
		n, err := from.Try(data[taken:])
		if err != nil {
			t.Fatal(err)
		}
		if taken += n; n == 0 {
			break
		}
	}
	got := make([]byte, taken)
	if _, err := io.ReadFull(to, got); err != nil || taken == 0 || taken == len(data) {
		t.Fatalf("%d bytes: %v", taken, err)
	}
	if at := kit.DiffAt(got, 7, 0); at >= 0 {
		t.Errorf("byte %d was not sent", at)
	}
	if _, err := from.Write(data[:100]); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(to, got[:100]); err != nil || !bytes.Equal(got[:100], data[:100]) {
		t.Errorf("afterwards: %v", err)
	}
}

// TestDeadlines ends a read by its deadline, after which reading continues, and a
// write, after which there is no more writing.
//
// +checklocksignore: nobody else has the connections.
func TestDeadlines(t *testing.T) {
	kit.Check(t)
	a, b := sockets(t)
	from, to := sealed(t, a, b)
	record, err := from.out.seal(make([]byte, 0, 100), kindData, []byte("whole"))
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 10)
	for i := range record {
		if _, err = a.Write(record[i : i+1]); err != nil {
			t.Fatal(err)
		}
		if i == len(record)-1 {
			break
		}
		_ = to.SetReadDeadline(time.Unix(1, 0))
		if n, rerr := to.Read(p); n != 0 || !errors.Is(rerr, os.ErrDeadlineExceeded) {
			t.Fatalf("%d, %v", n, rerr)
		}
		_ = to.SetReadDeadline(time.Time{})
		if n, rerr := to.ReadNow(p); n != 0 || rerr != nil {
			t.Fatalf("%d, %v of half a record", n, rerr)
		}
	}
	if n, rerr := to.Read(p); string(p[:n]) != "whole" || rerr != nil {
		t.Errorf("%q, %v", p[:n], rerr)
	}
	_ = from.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err = from.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write that nobody reads: %v", err)
	}
	_ = from.SetWriteDeadline(time.Time{})
	if _, err = from.Write(p); err == nil {
		t.Error("a write behind half a record")
	}
	if _, err = from.Try(p); err == nil {
		t.Error("a try behind half a record")
	}
}

// TestEnd distinguishes a close from a cut, and ends pending reads and writes.
func TestEnd(t *testing.T) {
	kit.Check(t)
	for name, end := range map[string]struct {
		how  func(*Conn) error
		want error
	}{
		"closed": {(*Conn).Close, io.EOF},
		"cut":    {func(c *Conn) error { return c.NetConn().Close() }, ErrCut},
	} {
		a, b := sockets(t)
		from, to := sealed(t, a, b)
		if _, err := from.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := end.how(from); err != nil {
			t.Error(err)
		}
		p := make([]byte, 10)
		if n, err := to.Read(p); n != 1 || err != nil {
			t.Errorf("%s: %d, %v", name, n, err)
		}
		if n, err := to.Read(p); n != 0 || !errors.Is(err, end.want) || errors.Is(err, io.EOF) != (name == "closed") {
			t.Errorf("%s: %d, %v", name, n, err)
		}
		_ = from.Close()
		if _, err := from.Write(p); err == nil {
			t.Errorf("%s: and written to", name)
		}
	}
	a, b := sockets(t)
	from, _ := sealed(t, a, b)
	ended := make(chan error)
	go func() {
		_, err := from.Write(make([]byte, 64<<20))
		ended <- err
	}()
	go func() {
		_, err := from.Read(make([]byte, 1))
		ended <- err
	}()
	kit.Eventually(t, patience, func() bool { return !from.writing.TryLock() || unlocked(&from.writing) })
	_ = from.Close()
	for range 2 {
		if err := <-ended; err == nil {
			t.Error("it went on behind the end")
		}
	}
}

// +checklocksignore: the checker does not know TryLock.
func unlocked(m *sync.Mutex) bool {
	m.Unlock()
	return false
}

// TestAllocations moves small and large pieces without allocating memory.
func TestAllocations(t *testing.T) {
	if kit.Race() {
		t.Skip("the race detector allocates")
	}
	a, b := sockets(t)
	from, to := sealed(t, a, b)
	p := kit.Bytes(1, 0, 100<<10)
	parts := [][]byte{p[:32], p[32:]}
	for name, move := range map[string]func() (int, error){
		"Write":      func() (int, error) { return from.Write(p) },
		"WriteParts": func() (int, error) { n, err := from.WriteParts(parts); return int(n), err },
		"Try":        func() (int, error) { return from.Try(p[:4000]) },
		"TryParts":   func() (int, error) { return from.TryParts([][]byte{p[:10], p[10:4000]}) },
	} {
		got := make([]byte, len(p))
		once := func() {
			n, err := move()
			if err == nil {
				_, err = io.ReadFull(to, got[:n])
			}
			if err != nil || !bytes.Equal(got[:n], p[:n]) {
				t.Fatalf("%s: %d bytes, %v", name, n, err)
			}
		}
		once()
		if n := testing.AllocsPerRun(20, once); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestSecrets rejects another secret, another use of it, and another prologue.
func TestSecrets(t *testing.T) {
	secret := kit.Bytes(1, 0, 32)
	for name, other := range map[string]struct {
		key      Key
		prologue string
	}{
		"another secret":   {NewKey(kit.Bytes(2, 0, 32), "test"), "p"},
		"another use":      {NewKey(secret, "tests"), "p"},
		"another prologue": {NewKey(secret, "test"), "q"},
	} {
		one, err := NewHandshake(other.key, other.prologue, true)
		if err != nil {
			t.Fatal(err)
		}
		two, err := NewHandshake(NewKey(secret, "test"), "p", false)
		if err != nil {
			t.Fatal(err)
		}
		m, err := one.Write([]byte("hello"))
		if err != nil {
			t.Fatal(err)
		}
		if p, err := two.Read(m); !errors.Is(err, ErrHandshake) {
			t.Errorf("%s: %q, %v", name, p, err)
		}
		if _, err := two.Conn(&tape{}); err == nil {
			t.Errorf("%s: goes on", name)
		}
	}
}

// FuzzRecords feeds a receiver arbitrary bytes after the first record: it accepts
// none of them.
func FuzzRecords(f *testing.F) {
	records, receiver := recorded(f, 10, 20)
	f.Add(records[1], uint16(0))
	f.Add(records[2], uint16(1))
	f.Add(append(bytes.Clone(records[0]), records[1]...), uint16(7))
	f.Fuzz(func(t *testing.T, p []byte, piece uint16) {
		if bytes.HasPrefix(p, records[1]) {
			return
		}
		var pieces [][]byte
		for rest := p; len(rest) > 0; {
			n := min(len(rest), int(piece)+1)
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		n, err := received(t, "anything", receiver(append([][]byte{records[0]}, pieces...)))
		if n != 10 || errors.Is(err, io.EOF) || !errors.Is(err, ErrForged) && !errors.Is(err, ErrCut) {
			t.Errorf("%d bytes, %v", n, err)
		}
	})
}
