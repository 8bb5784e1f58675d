package frames_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// channels returns both ends of a channel.
func channels(t testing.TB) (a, b *frames.Channel) {
	t.Helper()
	a, end, err := frames.NewChannel()
	if err == nil {
		b, err = frames.AdoptChannel(end)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

// memfds creates shared memory, each with content whose seed is its index.
func memfds(t testing.TB, n int) []*os.File {
	t.Helper()
	out := make([]*os.File, n)
	for i := range out {
		out[i] = kit.Memfd(t, uint64(i), 100)
	}
	return out
}

// openFiles counts the descriptors of this process.
func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestChannelKeepsTheOrder(t *testing.T) {
	kit.Check(t)
	a, b := channels(t)
	for id, n := range []int{1, 2, frames.MaxDescriptors} {
		if err := a.Send(uint64(id), memfds(t, n)); err != nil {
			t.Fatal(err)
		}
		got, err := b.Receive(uint64(id), n, nil, 0)
		if err != nil || len(got) != n {
			t.Fatalf("%d descriptors of %d, %v", len(got), n, err)
		}
		for i, f := range got {
			part := make([]byte, 100)
			if _, err := f.ReadAt(part, 0); err != nil || kit.DiffAt(part, uint64(i), 0) >= 0 {
				t.Errorf("descriptor %d is another: %v", i, err)
			}
			flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
			if err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("descriptor %d outlives an exec: %v", i, err)
			}
		}
		adminapi.CloseAll(got)
	}
	if err := a.Send(1, memfds(t, frames.MaxDescriptors+1)); !errors.Is(err, frames.ErrFrame) {
		t.Errorf("too many descriptors: %v", err)
	}
}

// TestChannelRefuses receives other descriptors than were announced, none of which may stay open.
func TestChannelRefuses(t *testing.T) {
	kit.Check(t)
	a, b := channels(t)
	files := memfds(t, 3)
	before := openFiles(t)
	refused := func(what string, id uint64, count int, want string) {
		t.Helper()
		got, err := b.Receive(id, count, nil, 0)
		if err == nil || got != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d descriptors, %v", what, len(got), err)
		}
	}
	send := func(id uint64, n int) {
		t.Helper()
		if err := a.Send(id, files[:n]); err != nil {
			t.Fatal(err)
		}
	}
	refused("none", 1, 1, "none were sent")
	send(2, 1)
	refused("fewer", 2, 2, "2 descriptors announced, 1 received")
	send(3, 3)
	refused("more", 3, 2, "2 descriptors announced, 3 received")
	send(4, 2)
	refused("those of another request", 5, 2, "none were sent")
	send(6, 1)
	send(7, 2)
	got, err := b.Receive(7, 2, nil, 0)
	if err != nil || len(got) != 2 {
		t.Errorf("behind those of another request: %d, %v", len(got), err)
	}
	adminapi.CloseAll(got)
	for range 65 {
		send(8, 1)
	}
	refused("many of another request", 9, 1, "more than 64 requests")
	if err = a.Close(); err != nil {
		t.Fatal(err)
	}
	got, err = b.Receive(8, 1, nil, 0)
	if err != nil {
		t.Errorf("the last one, behind the end: %v", err)
	}
	adminapi.CloseAll(got)
	refused("behind the end", 9, 1, "EOF")
	if after := openFiles(t); after != before-1 {
		t.Errorf("%d descriptors are open, %d were before, one of which is closed", after, before)
	}
}

// TestChannelWithoutRoom has a receiver whose limit of open files is reached.
func TestChannelWithoutRoom(t *testing.T) {
	kit.Check(t)
	a, b := channels(t)
	files := memfds(t, 20)
	if err := a.Send(1, files); err != nil {
		t.Fatal(err)
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	low := unix.Rlimit{Cur: uint64(files[19].Fd()) + 8, Max: old.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	got, err := b.Receive(1, 20, nil, 0)
	if rerr := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); rerr != nil {
		t.Fatal(rerr)
	}
	if err == nil || got != nil {
		t.Errorf("%d descriptors, %v", len(got), err)
	}
}

// FuzzChannel sends any message with any number of descriptors: either they are those of the request, or none is left open.
func FuzzChannel(f *testing.F) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = null.Close() })
	f.Add(binary.LittleEndian.AppendUint64(nil, 7), uint8(2), uint8(2))
	f.Add(binary.LittleEndian.AppendUint64(nil, 8), uint8(2), uint8(2))
	f.Add([]byte{7}, uint8(253), uint8(1))
	f.Add(make([]byte, 9), uint8(0), uint8(1))
	f.Fuzz(func(t *testing.T, message []byte, descriptors, count uint8) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		b, err := frames.AdoptChannel(os.NewFile(uintptr(fds[1]), "channel"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = b.Close() }()
		before := openFiles(t)
		err = unix.Sendmsg(fds[0], message, unix.UnixRights(repeated(int(null.Fd()), int(descriptors))...), nil, 0)
		if cerr := unix.Close(fds[0]); err != nil || cerr != nil {
			return // more descriptors than a message has
		}
		got, err := b.Receive(7, int(count), nil, 0)
		if err == nil && (len(got) != int(count) || descriptors != count || binary.LittleEndian.Uint64(message) != 7) {
			t.Errorf("%d descriptors of %d with %q, announced %d", len(got), descriptors, message, count)
		}
		adminapi.CloseAll(got)
		if after := openFiles(t); after != before-1 {
			t.Errorf("%d descriptors are open, %d were before, one of which is closed", after, before)
		}
	})
}

// repeated returns a number n times.
func repeated(number, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = number
	}
	return out
}

// ExampleChannel passes a pipe from one end to the other.
func ExampleChannel() {
	a, end, err := frames.NewChannel()
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := frames.AdoptChannel(end)
	if err != nil {
		fmt.Println(err)
		return
	}
	r, w, _ := os.Pipe()
	fmt.Println(a.Send(1, []*os.File{w}))
	files, err := b.Receive(1, 1, nil, 0)
	fmt.Println(len(files), err)
	fmt.Fprint(files[0], "through it")
	text := make([]byte, 10)
	_, _ = r.Read(text)
	fmt.Println(string(text))
	_, _, _ = a.Close(), b.Close(), files[0].Close()
	// Output:
	// <nil>
	// 1 <nil>
	// through it
}

// TestAdoptedChannel adopts what is no socket.
func TestAdoptedChannel(t *testing.T) {
	kit.Check(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = frames.AdoptChannel(null); err == nil {
		t.Error("a device is a channel")
	}
}
