package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/devices/sim"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/share"
	devfaulty "github.com/hmcfs/hmcfs/tests/fault/devices/faulty"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// Content that attends to a region which has ended already is notified at once.
func TestRegionHasEnded(t *testing.T) {
	r := twoDevices(t)
	u := r.user(0, 1, 1000)
	told := make(chan struct{})
	ended, err := u.Attend(u.keyed("k", 0, 100).Blobs, func() { close(told) })
	if err != nil {
		t.Fatal(err)
	}
	if err = u.region.Close(r.ctx()); err != nil {
		t.Fatal(err)
	}
	ended()
	select {
	case <-told:
	case <-time.After(long):
		t.Error("nobody was told")
	}
}

// Ranges are of the region and nothing else.
func TestRegionRanges(t *testing.T) {
	r := twoDevices(t)
	u := r.user(0, 1, 1000)
	_, file := u.file("f", 2, 1000)
	for _, reg := range []*objects.Region{u.region, file} {
		for _, at := range [][2]uint64{{0, 1001}, {1000, 1}, {1001, 0}, {1 << 63, 1 << 63}, {1, 1<<64 - 1}} {
			wantErr(t, fmt.Sprint(at), reg.Find(r.ctx(), at[0], at[1]), devices.ErrRange)
		}
		for _, at := range [][2]uint64{{0, 1000}, {999, 1}, {10, 500}} {
			wantErr(t, fmt.Sprint(at), reg.Find(r.ctx(), at[0], at[1]), nil)
		}
		wantErr(t, "write", reg.Write(r.ctx(), 999, []byte("xy")), devices.ErrRange)
	}
}

// Keys made of a region are lost with it, at once; the holder's others remain, and any
// user can set a lost key again.
func TestRegionEnds(t *testing.T) {
	r := twoDevices(t)
	u := r.user(0, 1, 10_000)
	second, err := u.Adopt(r.ctx(), "sim0", u.mem)
	if err != nil {
		t.Fatal(err)
	}
	kept := u.mustBind(u.keyed("kept", 0, 100))
	both := u.keyed("both", 0, 100)
	both.Blobs = append(both.Blobs, objects.Blob{Region: second, Off: 5000, Len: 100})
	ino := u.mustBind(both)
	f := r.open(ino)
	events := r.store.Listen()
	defer events.Close()
	if err = errors.Join(second.Close(r.ctx()), second.Close(r.ctx())); err != nil {
		t.Fatal(err)
	}
	r.wantState(ino, objects.StateLost)
	r.wantState(kept, objects.StateBound)
	_, err = f.ReadAt(r.ctx(), make([]byte, 1), 0)
	wantErr(t, "read", err, objects.ErrLost)
	_, err = f.WriteAt(r.ctx(), make([]byte, 1), objects.Write{})
	wantErr(t, "write", err, objects.ErrLost)
	r.close(f)
	if e := nextEvent(t, events); e.Kind != objects.EventLost || e.Key != "both" {
		t.Errorf("event %v of %q", e.Kind, e.Key)
	}
	other := r.user(1, 2, 1000)
	again := other.mustBind(other.keyed("both", 0, 1000))
	if again == ino {
		t.Error("the lost object lives again")
	}
	r.wantBytes("both", kit.Bytes(2, 0, 1000))
	r.wantPath("both", "sim1/.keys/both")
	r.wantBytes("kept", kit.Bytes(1, 0, 100))
}

func nextEvent(t *testing.T, events *objects.Events) objects.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	e, err := events.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// A holder that has ended does nothing more, and its keys are lost.
func TestHolderEnds(t *testing.T) {
	r := twoDevices(t)
	u := r.user(0, 1, 10_000)
	ino := u.mustBind(u.keyed("k", 0, 100))
	u.close()
	u.close()
	r.wantState(ino, objects.StateLost)
	wantErr(t, "set", u.bind(u.keyed("l", 0, 100)), objects.ErrClosed)
	_, err := u.Adopt(r.ctx(), "sim0", u.mem)
	wantErr(t, "adopt", err, objects.ErrClosed)
	f := r.create("sim0", "file")
	defer r.close(f)
	r.write(f, 0, []byte("x"))
	_, err = u.RegisterFile(r.ctx(), f.Ino())
	wantErr(t, "register a file", err, objects.ErrClosed)
	wantErr(t, "drop", u.DropLocal(r.ctx(), []string{"k"})[0], objects.ErrClosed)
}

// stopping is a rig whose first device pauses in a copy to the host on request.
type stopping struct {
	*rig
	inside chan struct{}
	// armed has, for the copy that is to stop, what lets it go on.
	armed chan chan struct{}
}

func newStopping(t *testing.T) *stopping {
	t.Helper()
	kit.Check(t)
	s := &stopping{inside: make(chan struct{}), armed: make(chan chan struct{}, 1)}
	s.rig = wrapped(t, devfaulty.Wrap(sim.New(0, small(false)), func(op devfaulty.Op) error {
		if op.Kind != devfaulty.CopyOut {
			return nil
		}
		select {
		case goOn := <-s.armed:
			s.inside <- struct{}{}
			<-goOn
		default:
		}
		return nil
	}), sim.New(1, small(false)))
	return s
}

// reading starts a read of a key that is paused inside the device. The returned
// function resumes it, and checks that it gets all of the bytes.
func (s *stopping) reading(key string, want []byte) (finish func()) {
	s.t.Helper()
	f := s.open(s.keyIno(key))
	got := make([]byte, len(want))
	result := make(chan error, 1)
	goOn := make(chan struct{})
	s.armed <- goOn
	go func() {
		_, err := f.ReadAt(context.Background(), got, 0)
		result <- err
	}()
	<-s.inside
	return func() {
		s.t.Helper()
		close(goOn)
		if err := <-result; err != nil || !bytes.Equal(got, want) {
			s.t.Errorf("the reader gets other bytes, and %v", err)
		}
		s.close(f)
	}
}

// A read under way when the owner ends gets its bytes, and the owner waits for it.
func TestOwnerEndsInMidRead(t *testing.T) {
	r := newStopping(t)
	u := r.user(0, 1, 4096)
	ino := u.mustBind(u.keyed("k", 0, 4096))
	finish := r.reading("k", kit.Bytes(1, 0, 4096))
	hurried, cancel := context.WithTimeout(r.ctx(), 50*time.Millisecond)
	defer cancel()
	wantErr(t, "end in a hurry", u.Close(hurried), context.DeadlineExceeded)
	closed := make(chan error, 1)
	go func() { closed <- u.region.Close(context.Background()) }()
	kit.Eventually(t, long, func() bool { return r.attr(ino).State == objects.StateLost })
	f := r.open(ino)
	_, err := f.ReadAt(r.ctx(), make([]byte, 1), 0)
	wantErr(t, "a read that comes now", err, objects.ErrLost)
	r.close(f)
	finish()
	if err = <-closed; err != nil {
		t.Error(err)
	}
}

// A removal does not affect two reads under way, and the key is free at once.
func TestTwoReadersAndADrop(t *testing.T) {
	r := newStopping(t)
	u := r.user(0, 1, 4096)
	u.mustBind(u.keyed("k", 0, 4096))
	first, second := r.reading("k", kit.Bytes(1, 0, 4096)), r.reading("k", kit.Bytes(1, 0, 4096))
	if err := u.Drop(r.ctx(), []string{"k"})[0]; err != nil {
		t.Fatal(err)
	}
	r.wantGone("k")
	u.mustBind(u.keyed("k", 100, 100))
	first()
	second()
	r.wantBytes("k", kit.Bytes(1, 100, 100))
}

// Keys that a session has set are lost in the next run, and free.
func TestBoundKeysInTheNextRun(t *testing.T) {
	r := twoDevices(t)
	u := r.user(0, 1, 1000)
	ino := u.mustBind(u.keyed("k", 0, 1000))
	if err := r.store.Close(context.Background(), objects.CloseOptions{Keep: true}); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "memory of a holder whose store was closed", u.region.Find(r.ctx(), 0, 1), objects.ErrLost)
	r.reopen()
	r.wantState(ino, objects.StateLost)
	r.wantPath("k", "sim0/.keys/k")
	again := r.user(1, 2, 1000)
	again.mustBind(again.keyed("k", 0, 1000))
	r.wantBytes("k", kit.Bytes(2, 0, 1000))
	r.wantPath("k", "sim1/.keys/k")
}

// After a crash the same holds, and no bindings remain in the records.
func TestBoundKeysAfterADeath(t *testing.T) {
	r := twoDevices(t)
	u := r.user(0, 1, 1000)
	ino := u.mustBind(u.keyed("k", 0, 1000))
	dead := r.store
	r.reopen()
	r.wantState(ino, objects.StateLost)
	if left, err := r.meta.Bindings(r.ctx()); err != nil || len(left) != 0 {
		t.Errorf("%d bindings of nothing, %v", len(left), err)
	}
	if err := dead.Close(context.Background(), objects.CloseOptions{}); err != nil {
		t.Error(err)
	}
}

// Memory of another process ends with it, or with the holder.
func TestRegisteredMemoryOfAProcess(t *testing.T) {
	r := twoDevices(t)
	pid, kill := kit.Process(t)
	h := r.store.NewHolder(objects.Caller{UID: uint32(os.Getuid())})
	memory := func(pid int) *objects.Region {
		t.Helper()
		m := share.Memory{Family: "sim", PID: pid, Size: 9000, Pieces: []share.Piece{
			{Kind: devices.HandleMemfd, Offset: 100, Size: 4000}, {Kind: devices.HandleMemfd, Size: 5000},
		}}
		var handles []devices.Handle
		for i := range m.Pieces {
			f := kit.Memfd(t, uint64(i), 10_000)
			n := i
			m.Pieces[i].FD = &n
			again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			handles = append(handles, devices.Handle{Kind: devices.HandleMemfd, File: again, Size: m.Pieces[i].Size})
		}
		reg, err := h.Register(r.ctx(), "sim0", objects.BindRequest{Memory: m, Handles: handles})
		if err != nil {
			t.Fatal(err)
		}
		if reg.Size() != 9000 || reg.Device() != "sim0" {
			t.Errorf("%d bytes of %s", reg.Size(), reg.Device())
		}
		return reg
	}
	blob := func(reg *objects.Region) []objects.Blob { return []objects.Blob{{Region: reg, Off: 3000, Len: 3000}} }
	set := []objects.Keyed{{Key: "his", Blobs: blob(memory(pid))}, {Key: "ours", Blobs: blob(memory(0))}}
	if err := errors.Join(h.Bind(r.ctx(), set)...); err != nil {
		t.Fatal(err)
	}
	his, ours := r.keyIno("his"), r.keyIno("ours")
	want := append(kit.Bytes(0, 3100, 1000), kit.Bytes(1, 0, 2000)...)
	r.wantBytes("his", want)
	r.wantBytes("ours", want)
	kill()
	kit.Eventually(t, long, func() bool { return r.attr(his).State == objects.StateLost })
	r.wantState(ours, objects.StateBound)
	if err := h.Close(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.wantState(ours, objects.StateLost)
}

// Memory that its owner has truncated is not extended by a write.
func TestRegisteredMemoryIsCut(t *testing.T) {
	r := twoDevices(t)
	h := r.store.NewHolder(objects.Caller{UID: uint32(os.Getuid())})
	defer func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	shared := kit.Memfd(t, 1, 10_000)
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), shared.Fd())
	again, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	m := share.Memory{Family: "sim", Size: 10_000, Pieces: []share.Piece{{Kind: devices.HandleMemfd, FD: &n, Size: 10_000}}}
	reg, err := h.Register(r.ctx(), "sim0", objects.BindRequest{
		Memory: m, Handles: []devices.Handle{{Kind: devices.HandleMemfd, File: again, Size: 10_000}},
	})
	if err == nil {
		err = h.Bind(r.ctx(), []objects.Keyed{of(reg, "k", 1000, 1000, 5000, 5000)})[0]
	}
	if err != nil {
		t.Fatal(err)
	}
	if err = shared.Truncate(6000); err != nil {
		t.Fatal(err)
	}
	f := r.open(r.keyIno("k"))
	defer r.close(f)
	_, err = f.WriteAt(r.ctx(), kit.Bytes(2, 0, 100), objects.Write{Off: 5000})
	wantErr(t, "a write where it is cut", err, devices.ErrRange)
	r.write(f, 990, kit.Bytes(2, 0, 100))
	want := kit.Bytes(1, 0, 6000)
	copy(want[1990:2000], kit.Bytes(2, 0, 10))
	copy(want[5000:], kit.Bytes(2, 10, 90))
	got, err := os.ReadFile(path)
	if i := kit.FirstDiff(got, want); i >= 0 || err != nil {
		t.Errorf("byte %d of the memory is not what it should be, %v", i, err)
	}
}

// Invalid memory can't be registered, and the descriptors are closed.
func TestRegisterRefuses(t *testing.T) {
	r := twoDevices(t)
	u := r.user(0, 1, 1000)
	_, err := u.Adopt(r.ctx(), "sim1", u.mem)
	wantErr(t, "memory of another device", err, objects.ErrInvalid)
	_, err = u.Adopt(r.ctx(), "sim7", u.mem)
	wantErr(t, "of no device", err, objects.ErrInvalid)
	m := share.Memory{Family: "sim", Size: 1, Pieces: []share.Piece{{Kind: devices.HandleMemfd, Path: "/dev/null", Size: 1}}}
	_, err = u.Register(r.ctx(), "sim0", objects.BindRequest{Memory: m})
	wantErr(t, "no memory", err, devices.ErrHandle)
	m.Family = "cuda"
	_, err = u.Register(r.ctx(), "sim0", objects.BindRequest{Memory: m})
	wantErr(t, "memory of another family", err, devices.ErrHandle)
	_, err = u.Register(r.ctx(), "", objects.BindRequest{Memory: m})
	wantErr(t, "for no device", err, objects.ErrInvalid)
}
