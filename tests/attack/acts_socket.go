package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/frames"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// answerLimit bounds the wait for an answer.
const answerLimit = 10 * time.Second

// asking returns a context for one request.
func asking() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), answerLimit)
}

// bind tries to bind invalid descriptors and paths, and binds memory that it then
// truncates.
func (h *hand) bind(dir string) error {
	memory, err := memfd(64 << 10)
	if err != nil {
		return err
	}
	defer func() { _ = memory.Close() }() // no longer needed
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _, _ = read.Close(), write.Close() }() // no longer needed
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer func() { _ = self.Close() }() // only read
	own, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = own.Close() }() // only read
	var errs []error
	n := 0
	target := func() string {
		n++
		path := filepath.Join(dir, fmt.Sprint("bound", n))
		errs = append(errs, os.WriteFile(path, nil, 0o644))
		return path
	}
	whole := share.Piece{Kind: "memfd", FD: new(int), Size: 64 << 10}
	for _, f := range []*os.File{memory, read, self, own} {
		for _, p := range []share.Piece{whole, {Kind: "memfd", FD: new(int), Offset: 1<<63 - 1, Size: 1 << 62}, {Kind: "vmm-fd", FD: new(int), Size: 4096}, {Kind: "ipc", Handle: "00ff", Size: 4096}, {Kind: "none"}} {
			if h.over() {
				break
			}
			ctx, cancel := asking()
			_, failed := client.Bind(ctx, target(), share.Memory{Family: "host", Size: p.Size, PID: os.Getpid(), Pieces: []share.Piece{p}}, f)
			cancel()
			errs = append(errs, failed)
		}
	}
	for _, text := range []string{
		fmt.Sprintf(`{"family":"host","pid":%d,"size":65536,"pieces":[{"kind":"memfd","fd":%d,"size":65536}]}`, os.Getpid(), memory.Fd()),
		`{"family":"host","pid":1,"size":4096,"pieces":[{"kind":"memfd","fd":0,"size":4096}]}`, `{"family":"host","size":4096,"pieces":[{"kind":"memfd","path":"/etc/shadow","size":4096}]}`,
		`{"family":"host","size":4096,"pieces":[{"kind":"memfd","path":"/proc/1/mem","size":4096}]}`, `{"family":"host","size":1,"pieces":[{"kind":"memfd","path":"` + filepath.Join(h.Mount, ".hmcfs", "events") + `","size":1}]}`,
	} {
		errs = append(errs, unix.Setxattr(target(), "user.hmc.bind", []byte(text), 0))
	}
	// The owner truncates the bound memory, and reads it through the mount.
	errs = append(errs, memory.Truncate(1))
	for i := range n {
		_, failed := os.ReadFile(filepath.Join(dir, fmt.Sprint("bound", i+1)))
		errs = append(errs, failed)
	}
	if path := h.prey(); path != "" {
		ctx, cancel := asking()
		defer cancel()
		_, failed := client.Bind(ctx, path, share.Memory{Family: "host", Size: 1, Pieces: []share.Piece{{Kind: "memfd", FD: new(int), Size: 1}}}, memory)
		errs = append(errs, h.spare(path, "bind", failed))
	}
	return errors.Join(errs...)
}

// memfd creates shared memory of the given size, in bytes.
func memfd(size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate("attack", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "memfd")
	return f, f.Truncate(size)
}

// export exports its own file, sets flags on the descriptor, and checks that the daemon's
// later writes go to the right offset. It also tries to export victims' files.
func (h *hand) export(dir string) error {
	path, other := filepath.Join(dir, "f"), filepath.Join(dir, "other")
	if err := errors.Join(os.WriteFile(path, kit.Bytes(4, 0, 8192), 0o644), os.WriteFile(other, kit.Bytes(5, 0, 8192), 0o644)); err != nil {
		return err
	}
	ctx, cancel := asking()
	defer cancel()
	var errs []error
	e, err := client.OpenExport(ctx, path, "")
	if err == nil {
		errs = append(errs, h.withFlags(e, path, other), e.Close())
	}
	if prey := h.prey(); prey != "" {
		e, stolen := client.OpenExport(ctx, prey, devices.HandleMemfd)
		if stolen == nil {
			errs = append(errs, e.Close())
		}
		errs = append(errs, h.spare(prey, "export", stolen))
	}
	return errors.Join(append(errs, err)...)
}

// withFlags sets flags on the descriptor of an export, and checks what the daemon writes
// afterwards.
func (h *hand) withFlags(e *client.Export, path, other string) error {
	if e.File == nil {
		return nil
	}
	raw, err := e.File.SyscallConn()
	if err != nil {
		return err
	}
	var flagged error
	err = raw.Control(func(fd uintptr) {
		_, flagged = unix.FcntlInt(fd, unix.F_SETFL, unix.O_APPEND|unix.O_NONBLOCK)
	})
	if err = errors.Join(err, flagged); err != nil {
		return err
	}
	content := kit.Bytes(6, 0, 4096)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 1000)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	got, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	want := kit.Bytes(4, 0, 8192)
	copy(want[1000:], content)
	if !bytes.Equal(got, want) {
		h.say.violation("export: %s is wrong from byte %d on after a write behind O_APPEND on its export", path, kit.FirstDiff(got, want))
	}
	return os.Remove(other)
}

// ownersVerbs tries the requests that only root and the mounting user may make.
func (h *hand) ownersVerbs(string) error {
	c := client.New(h.socket)
	ctx, cancel := asking()
	defer cancel()
	_, umount := c.Umount(ctx, adminapi.UmountRequest{Lazy: true})
	_, fsck := c.Fsck(ctx, adminapi.FsckRequest{RemoveLost: true, Repair: true})
	_, forget := c.Forget(ctx, "none")
	_, object := c.Object(ctx, metadata.Ino(1+h.random.IntN(1000)))
	_, status := c.Status(ctx, true)
	_, config := c.Config(ctx)
	_, metrics := c.Metrics(ctx)
	return errors.Join(h.forbid("unmount", umount), h.forbid("repair", fsck), h.forbid("forget a node", forget), h.forbid("look at any object", object),
		h.forbid("see the status", status), h.forbid("see the options", config), h.forbid("see the metrics", metrics))
}

// session uses a session on the socket to access victims' keys.
func (h *hand) session(string) error {
	ctx, cancel := asking()
	defer cancel()
	s, err := client.OpenSession(ctx, h.socket)
	if err != nil {
		return err
	}
	names := append(h.victims(filepath.Join(h.Mount, "keys")), h.name+"-none", "a/b", "..", "")
	_, err = s.Expire(ctx, names, time.Second)
	errs := []error{err}
	_, err = s.DevDelete(ctx, names)
	errs = append(errs, err)
	_, err = s.Exist(ctx, names)
	errs = append(errs, err)
	_, err = s.GetMetaInfo(ctx, names, h.random.IntN(2) == 0)
	return errors.Join(append(errs, err, s.Close())...)
}

// hostile returns beginnings of requests that are malformed, oversized or incomplete.
func hostile() [][]byte {
	return [][]byte{
		nil, []byte("GET"), []byte("GET / HTTP/1.1\r\n"), []byte("POST /v1/umount HTTP/1.1\r\nHost: hmcfs\r\nContent-Length: 9999999999\r\n\r\n{"),
		[]byte("POST /v1/session HTTP/1.1\r\nHost: hmcfs\r\nConnection: Upgrade\r\nUpgrade: " + frames.Protocol + "\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff"),
		[]byte("POST /v1/session HTTP/1.1\r\nHost: hmcfs\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n"), append([]byte("GET /v1/version HTTP/1.1\r\nHost: "), bytes.Repeat([]byte("h"), 1<<20)...),
		bytes.Repeat([]byte{0xff}, 4096), make([]byte, 65536), kit.Bytes(7, 0, 10000),
	}
}

// pour sends the hostile beginnings, each on a connection of its own, and waits briefly for
// a reply.
func (h *hand) pour(network string, addresses []string) error {
	var errs []error
	for _, begin := range hostile() {
		if h.over() {
			break
		}
		addr := addresses[h.random.IntN(len(addresses))]
		c, err := net.DialTimeout(network, addr, answerLimit)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		err = c.SetDeadline(time.Now().Add(time.Duration(h.random.Int64N(int64(100 * time.Millisecond)))))
		_, sent := c.Write(begin)
		_, got := c.Read(make([]byte, 4096))
		errs = append(errs, err, sent, got, c.Close())
	}
	return errors.Join(errs...)
}

// hold opens many connections, sends nothing or a part of a request, and keeps them open
// for a while.
func (h *hand) hold(network string, addresses []string, most int) error {
	var open []net.Conn
	var errs []error
	for len(open) < most && !h.over() {
		c, err := net.DialTimeout(network, addresses[h.random.IntN(len(addresses))], answerLimit)
		if err != nil {
			errs = append(errs, err)
			break
		}
		open = append(open, c)
		if h.random.IntN(2) == 0 {
			_, err = c.Write([]byte("GET /v1/ver"))
			errs = append(errs, err)
		}
	}
	h.linger(300 * time.Millisecond)
	for _, c := range open {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

func (h *hand) socketGarbage(string) error { return h.pour("unix", []string{h.socket}) }
func (h *hand) socketMany(string) error    { return h.hold("unix", []string{h.socket}, 64) }
func (h *hand) netGarbage(string) error    { return h.pour("tcp", h.Addresses) }
func (h *hand) netMany(string) error       { return h.hold("tcp", h.Addresses, 100) }

// squat creates the paths at which hmcfs looks for a user's mounts, with a pipe that blocks
// and a socket that never answers.
func (h *hand) squat(string) error {
	var errs []error
	for _, uid := range []int{0, h.VictimUID} {
		base := filepath.Join(os.TempDir(), fmt.Sprint("hmcfs-", uid))
		if err := os.Mkdir(base, 0o755); err != nil {
			errs = append(errs, err)
			continue
		}
		place := filepath.Join(base, "mnt")
		errs = append(errs, os.Mkdir(place, 0o755), unix.Mkfifo(filepath.Join(place, "lock"), 0o666))
		trap, err := net.Listen("unix", filepath.Join(place, "admin.sock"))
		if err == nil {
			h.linger(200 * time.Millisecond)
			err = trap.Close()
		}
		for _, runtime := range h.Runtime {
			errs = append(errs, os.Symlink(runtime, filepath.Join(base, filepath.Base(runtime))))
		}
		errs = append(errs, err, os.RemoveAll(base))
	}
	for _, runtime := range h.Runtime {
		_, err := os.ReadDir(runtime)
		errs = append(errs, h.forbid("list the runtime directory", err))
		errs = append(errs, h.forbid("make a file in the runtime directory", os.WriteFile(filepath.Join(runtime, "x"), nil, 0o644)))
	}
	return errors.Join(errs...)
}
