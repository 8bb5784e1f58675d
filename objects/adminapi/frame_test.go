package adminapi_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// pair returns two connected sockets.
func pair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "socket")
		defer func() { _ = f.Close() }()
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		u, ok := c.(*net.UnixConn)
		if !ok {
			t.Fatalf("a %T", c)
		}
		t.Cleanup(func() { _ = u.Close() })
		return u
	}
	return conn(fds[0]), conn(fds[1])
}

// memfds creates shared memory, each with content whose seed is its index.
func memfds(t testing.TB, n int) []*os.File {
	t.Helper()
	var out []*os.File
	for i := range n {
		fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "memfd")
		t.Cleanup(func() { _ = f.Close() })
		if _, err := f.Write(kit.Bytes(uint64(i), 0, 100)); err != nil {
			t.Fatal(err)
		}
		out = append(out, f)
	}
	return out
}

func TestFrameCarriesDescriptorsInOrder(t *testing.T) {
	kit.Check(t)
	for _, n := range []int{0, 1, 2, adminapi.MaxDescriptors} {
		a, b := pair(t)
		// The frame is larger than what a socket accepts at once.
		want := map[string]string{"text": strings.Repeat("x", 900<<10)}
		sent := make(chan error, 1)
		go func() { sent <- adminapi.WriteFrame(a, want, memfds(t, n)) }()
		data, got, err := adminapi.ReadFrame(b)
		if err = errors.Join(err, <-sent); err != nil {
			t.Fatal(err)
		}
		var value map[string]string
		if err := json.Unmarshal(data, &value); err != nil || value["text"] != want["text"] {
			t.Errorf("with %d descriptors the text is another: %v", n, err)
		}
		if len(got) != n {
			t.Errorf("%d descriptors of %d", len(got), n)
		}
		for i, f := range got {
			part := make([]byte, 100)
			if _, err := f.ReadAt(part, 0); err != nil || kit.DiffAt(part, uint64(i), 0) >= 0 {
				t.Errorf("descriptor %d is another: %v", i, err)
			}
			raw, err := f.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			err = raw.Control(func(fd uintptr) {
				if flags, ferr := unix.FcntlInt(fd, unix.F_GETFD, 0); ferr != nil || flags&unix.FD_CLOEXEC == 0 {
					t.Errorf("descriptor %d outlives an exec: %v", i, ferr)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		adminapi.CloseAll(got)
	}
}

func TestFrameIsBounded(t *testing.T) {
	kit.Check(t)
	a, b := pair(t)
	if err := adminapi.WriteFrame(a, strings.Repeat("x", adminapi.MaxFrame), nil); !errors.Is(err, adminapi.ErrFrame) {
		t.Errorf("too long a text: %v", err)
	}
	if err := adminapi.WriteFrame(a, 1, memfds(t, adminapi.MaxDescriptors+1)); !errors.Is(err, adminapi.ErrFrame) {
		t.Errorf("too many descriptors: %v", err)
	}
	if err := b.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := adminapi.ReadFrame(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("nothing was sent, and read: %v", err)
	}
}

// TestFrameWithoutRoom has a reader whose limit of open files is reached: it receives less than
// was sent.
func TestFrameWithoutRoom(t *testing.T) {
	kit.Check(t)
	a, b := pair(t)
	files := memfds(t, 20)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := adminapi.WriteFrame(a, 1, files); err != nil {
		t.Fatal(err)
	}
	raw, err := files[len(files)-1].SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	if err = raw.Control(func(fd uintptr) { last = uint64(fd) }); err != nil {
		t.Fatal(err)
	}
	low := unix.Rlimit{Cur: last + 8, Max: old.Max}
	if err = unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	_, got, err := adminapi.ReadFrame(b)
	if rerr := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); rerr != nil {
		t.Fatal(rerr)
	}
	if !errors.Is(err, adminapi.ErrFrame) || got != nil {
		t.Errorf("%d descriptors, %v", len(got), err)
	}
}

func TestUnmarshalIsStrict(t *testing.T) {
	var r adminapi.ExportRequest
	for _, bad := range []string{``, `{`, `[]`, `{"hol":true}`, `{} {}`, `{"holder":"x"}`, `{"ino":-1}`} {
		if err := adminapi.Unmarshal([]byte(bad), &r); !errors.Is(err, adminapi.ErrJSON) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := adminapi.Unmarshal([]byte(`{"path":"a","hold":true}`), &r); err != nil || r.Path != "a" || !r.Hold {
		t.Errorf("%+v, %v", r, err)
	}
}

// FuzzReadFrame sends any bytes in any pieces with any number of descriptors:
// either it is one whole frame, or nothing is left open.
func FuzzReadFrame(f *testing.F) {
	whole := func(text string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	}
	f.Add(whole(`{"hold":true}`), uint8(1), uint8(0))
	f.Add(whole(`{"hold":true}`), uint8(3), uint8(5))
	f.Add(whole(``), uint8(2), uint8(1))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, '{'}, uint8(250), uint8(2))
	f.Add(append(whole(`{}`), "more"...), uint8(1), uint8(6))
	f.Add([]byte{0, 0}, uint8(9), uint8(1))
	null, err := os.Open(os.DevNull)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = null.Close() })
	f.Fuzz(func(t *testing.T, data []byte, descriptors, cut uint8) {
		a, b := pair(t)
		before := openFiles(t)
		fds := make([]int, descriptors)
		for i := range fds {
			fds[i] = int(null.Fd())
		}
		sent := make(chan error, 1)
		go func() {
			// Descriptors need a byte that carries them.
			var werr error
			for part := range slices.Chunk(data, 1+int(cut)) {
				if _, _, werr = a.WriteMsgUnix(part, unix.UnixRights(fds...), nil); werr != nil {
					break
				}
			}
			sent <- errors.Join(werr, a.CloseWrite())
		}()
		text, files, err := adminapi.ReadFrame(b)
		// Data that a second message adds after the frame is left in the socket.
		if err == nil && !bytes.HasPrefix(data, whole(string(text))) {
			t.Errorf("%q was read as %q", data, text)
		}
		if err != nil && files != nil {
			t.Errorf("%d descriptors with %v", len(files), err)
		}
		adminapi.CloseAll(files)
		_ = b.Close() // the writer may be blocked on it
		<-sent        //nolint:errcheck // it fails if the reader refuses the frame
		if after := openFiles(t); after > before-1 {
			t.Errorf("%d descriptors are open, %d were before, one of which is closed", after, before)
		}
	})
}

// openFiles counts the descriptors of this process.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// ExampleWriteFrame passes a file from one end of a socket to the other.
func ExampleWriteFrame() {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		c, _ := net.FileConn(f)
		ends[i], _ = c.(*net.UnixConn)
		_ = f.Close()
	}
	r, w, _ := os.Pipe()
	if err = adminapi.WriteFrame(ends[0], "a pipe", []*os.File{w}); err != nil {
		fmt.Println(err)
	}
	text, files, err := adminapi.ReadFrame(ends[1])
	fmt.Println(string(text), len(files), err)
	fmt.Fprint(files[0], "through it")
	_, _ = files[0].Close(), w.Close()
	got, _ := io.ReadAll(r)
	fmt.Println(string(got))
	// Output:
	// "a pipe" 1 <nil>
	// through it
}
