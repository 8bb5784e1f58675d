package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/keyworld"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// rank is a process with a session and one piece of memory, which the test can access, even
// after the process has ended.
type rank struct {
	t      *testing.T
	cmd    *exec.Cmd
	orders *json.Encoder
	stdin  io.Closer
	said   chan keyworld.Said
	device devices.Name
	size   int
	memory *os.File
}

// startRank starts a rank of a user, with n bytes of shared memory with the content of a seed.
func startRank(t *testing.T, m *mnt.M, uid uint32, device string, seed uint64, n int) *rank {
	t.Helper()
	r := &rank{t: t, device: devices.Name(device), size: n, memory: memfd(t, n)}
	r.fill(seed)
	r.start(m, uid, fmt.Sprintf("%s:%d", device, n))
	return r
}

// startFileRank starts a rank whose memory is a file of the mount: the device's own memory,
// which is as slow as the device.
func startFileRank(t *testing.T, m *mnt.M, device string, n int) *rank {
	t.Helper()
	f, err := os.CreateTemp(m.Path(device), "memory")
	must(t, err)
	t.Cleanup(func() { must(t, os.Remove(f.Name())) })
	must(t, f.Truncate(int64(n)))
	r := &rank{t: t, device: devices.Name(device), size: n, memory: f}
	r.start(m, 0, device+":file")
	return r
}

// start starts the process, and returns when it has registered its memory.
func (r *rank) start(m *mnt.M, uid uint32, memory string) {
	t := r.t
	t.Helper()
	t.Cleanup(func() { must(t, r.memory.Close()) })
	r.said = make(chan keyworld.Said, 1<<14)
	r.cmd = mnt.Itself(keyworld.RankName, socketOf(m), memory)
	r.cmd.ExtraFiles, r.cmd.Stderr, r.cmd.Dir = []*os.File{r.memory}, os.Stderr, "/"
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
	stdin, err := r.cmd.StdinPipe()
	must(t, err)
	stdout, err := r.cmd.StdoutPipe()
	must(t, err)
	must(t, r.cmd.Start())
	r.stdin, r.orders = stdin, json.NewEncoder(stdin)
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		defer close(r.said)
		lines := json.NewDecoder(stdout)
		for {
			var s keyworld.Said
			if lines.Decode(&s) != nil {
				return
			}
			r.said <- s
		}
	}()
	t.Cleanup(func() {
		_ = r.stdin.Close()
		<-heard
		_ = r.cmd.Wait() // it may have been killed
	})
	if s := r.hear(); !s.Ready {
		t.Fatalf("a rank begins with %+v", s)
	}
}

// kill kills the process, and returns when it has ended.
func (r *rank) kill() {
	r.t.Helper()
	must(r.t, r.cmd.Process.Kill())
	for range r.said { // to its end
	}
}

// hear returns the rank's next message.
func (r *rank) hear() keyworld.Said {
	r.t.Helper()
	select {
	case s, ok := <-r.said:
		if !ok {
			r.t.Fatal("a rank has gone")
		}
		return s
	case <-time.After(mntPatience):
		r.t.Fatal("a rank says nothing")
	}
	return keyworld.Said{}
}

// ends returns the end of a key's order: the message about the key, or about the whole order.
func (r *rank) ends() keyworld.Said {
	r.t.Helper()
	for {
		if s := r.hear(); s.Key != "" || s.Code != "" {
			return s
		}
	}
}

// hears checks the outcome of a key's order.
func (r *rank) hears(key, code string) {
	r.t.Helper()
	if s := r.hear(); s.Begun || s.Key != key || s.Code != code {
		r.t.Errorf("%+v, want key %q to end with code %q", s, key, code)
	}
}

// blobGap is the distance between two blobs, in bytes, so that they are copied separately.
const blobGap = 64

// list returns the rank's memory as a list of blobs.
func (r *rank) list(blobs int) hetero.DeviceBlobList {
	l, each := hetero.DeviceBlobList{Device: r.device}, r.size/blobs
	for i := range blobs {
		l.Blobs = append(l.Blobs, hetero.Blob{Memory: 1, Off: devices.Offset(i * each), Size: devices.Size(each - blobGap)})
	}
	return l
}

// order sends the rank an order for its whole memory, in the given number of blobs.
func (r *rank) order(verb adminapi.Verb, key string, blobs int) {
	r.t.Helper()
	r.send(verb, adminapi.Call{
		Keys: []string{key}, Lists: []hetero.DeviceBlobList{r.list(blobs)},
		Timeout: adminapi.Duration(mntPatience),
	})
}

// send sends the rank a call to make.
func (r *rank) send(verb adminapi.Verb, q adminapi.Call) {
	r.t.Helper()
	must(r.t, r.orders.Encode(keyworld.Order{Verb: verb, Call: q}))
}

// begin orders the rank to publish or subscribe, and returns when it has started.
func (r *rank) begin(verb adminapi.Verb, key string) {
	r.t.Helper()
	r.order(verb, key, rankBlobs)
	if s := r.hear(); !s.Begun || s.Code != "" {
		r.t.Fatalf("%s: %+v", verb, s)
	}
}

// do orders an operation on the rank's whole memory as one blob, which must succeed.
func (r *rank) do(verb adminapi.Verb, key string) {
	r.t.Helper()
	r.order(verb, key, 1)
	r.hears(key, "")
}

// fill writes a seed's content to the memory.
func (r *rank) fill(seed uint64) {
	r.t.Helper()
	_, err := r.memory.WriteAt(kit.Bytes(seed, 0, r.size), 0)
	must(r.t, err)
}

// has checks that the memory has a seed's content in the given number of blobs.
func (r *rank) has(seed uint64, blobs int) {
	r.t.Helper()
	if at := r.diff(seed, blobs); at >= 0 {
		r.t.Errorf("byte %d of the memory is not of seed %d", at, seed)
	}
}

// diff returns the index of the first byte of the memory's blobs that differs from a seed's
// content; -1 if there is none.
func (r *rank) diff(seed uint64, blobs int) int {
	r.t.Helper()
	for _, b := range r.list(blobs).Blobs {
		got := make([]byte, b.Size)
		_, err := r.memory.ReadAt(got, int64(b.Off))
		must(r.t, err)
		if at := kit.DiffAt(got, seed, int64(b.Off)); at >= 0 {
			return int(b.Off) + at
		}
	}
	return -1
}

// whole returns the rank's memory as one blob.
func (r *rank) whole() []hetero.DeviceBlobList {
	return []hetero.DeviceBlobList{{Device: r.device, Blobs: []hetero.Blob{{Memory: 1, Size: devices.Size(r.size)}}}}
}
