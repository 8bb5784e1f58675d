package tests

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/sessions"
)

// TestHeldHalfRead has sessions read one half of a publication from a daemon that dies, and the other one from the next: they have received it.
func TestHeldHalfRead(t *testing.T) {
	kit.Require(t, "numpy")
	h := heldMount(t)
	w := &heldUser{t: t, dir: h.m.Path("sim0", "half"), mount: h.m.Dir, socket: socketOf(h.m), rng: rand.New(rand.NewPCG(1, 2))}
	must(t, os.Mkdir(w.dir, 0o755))
	s, err := client.OpenSession(t.Context(), w.socket)
	must(t, err)
	published, data, err := w.publish(2)
	must(t, err)
	f, err := s.Files().OpenFile("publish/"+filepath.Base(published), os.O_RDONLY, 0)
	must(t, err)
	got, half := make([]byte, len(data)), len(data)/2
	_, err = f.ReadAt(got[:half], 0)
	must(t, err)
	h.kill()
	_, err = f.ReadAt(got[half:], int64(half))
	must(t, err)
	must(t, errors.Join(f.Close(), kit.Same(published, got, data), isReceived(published), s.Close()))
	w.round++
	published, data, err = w.publish(2)
	must(t, err)
	program := exec.Command(kit.Python(), "-B", "-c", halfReader, filepath.Base(published))
	program.Env = append(os.Environ(), "PYTHONPATH="+pythonFolder(t)+":"+os.Getenv("PYTHONPATH"), "HMCFS_MOUNT="+h.m.Dir)
	stdin, err := program.StdinPipe()
	must(t, err)
	out, err := program.StdoutPipe()
	must(t, err)
	must(t, program.Start())
	must(t, readThrough(out, "half\n"))
	h.kill()
	must(t, stdin.Close())
	rest, err := io.ReadAll(out)
	must(t, errors.Join(err, program.Wait()))
	want := sha256.Sum256(data)
	if got := strings.TrimSpace(string(rest)); got != hex.EncodeToString(want[:]) {
		t.Errorf("the program in Python has read %q", got)
	}
	must(t, isReceived(published))
}

// TestHeldReceivedName has the daemon die between the publication of a file and its receipt: the name, which the kernel still knows
// from before, is gone for all while the receiver has the file open.
func TestHeldReceivedName(t *testing.T) {
	h := heldMount(t)
	w := &heldUser{t: t, dir: h.m.Path("sim0", "names"), mount: h.m.Dir, rng: rand.New(rand.NewPCG(1, 3))}
	must(t, os.Mkdir(w.dir, 0o755))
	published, data, err := w.publish(2)
	must(t, err)
	h.kill()
	f, err := os.Open(published)
	must(t, err)
	got, err := io.ReadAll(f)
	must(t, errors.Join(err, kit.Same(published, got, data)))
	other, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	must(t, err)
	must(t, f.Close())
	must(t, errors.Join(isReceived(published), unix.Close(other)))
	must(t, isReceived(published))
}

// halfReader reads one half of a file of publish/, and the other one when its standard input ends.
const halfReader = `
import hashlib, hmcfs, hmcfs._remote, sys
fs = hmcfs.connect()
f = hmcfs._remote.Tree(*fs._open(), fs._registered).open("publish/" + sys.argv[1])  # as without a mount
size = f.seek(0, 2)
f.seek(0)
data = f.read(size // 2)
print("half", flush=True)
sys.stdin.read()
while piece := f.read(size):
    data += piece
f.close()
fs.close()
print(hashlib.sha256(data).hexdigest())
`

// readThrough reads a stream until it has had a text.
func readThrough(r io.Reader, text string) error {
	var had []byte
	for one := make([]byte, 1); !bytes.HasSuffix(had, []byte(text)); {
		n, err := r.Read(one)
		if had = append(had, one[:n]...); err != nil {
			return fmt.Errorf("after %q: %w", had, err)
		}
	}
	return nil
}

// pair opens the sessions of a user, once.
func (w *heldUser) pair() (*sessions.Pair, error) {
	if w.own == nil {
		device := filepath.Base(filepath.Dir(w.dir))
		own, err := sessions.NewPair(context.Background(), device+"-"+filepath.Base(w.dir), devices.Name(device), w.rng, w.socket, w.socket)
		if err != nil {
			return nil, err
		}
		w.own = own
	}
	w.own.Round = w.round
	return w.own, nil
}

// pairs has a program use the sessions.
func pairs(use func(*sessions.Pair) error) func(*heldUser) error {
	return func(w *heldUser) error {
		p, err := w.pair()
		if err != nil {
			return err
		}
		return use(p)
	}
}

// standing reads keys that were set once, and whose memory changes.
func (w *heldUser) standing() error {
	const many = 16
	p, err := w.pair()
	if err != nil {
		return err
	}
	size := sessions.Bytes / many
	i := w.rng.IntN(many)
	if w.round == 0 {
		for i := range many {
			if _, err = p.A.DevMSet(context.Background(), p.Key(fmt.Sprint(i)), p.A.List(i*size, size)); err != nil {
				return err
			}
		}
	}
	data := w.fresh(size)
	copy(p.A.Memory[i*size:], data)
	return p.Get(p.B, p.Key(fmt.Sprint(i)), data)
}

// memory registers memory for each round.
func (w *heldUser) memory() error {
	p, err := w.pair()
	if err != nil {
		return err
	}
	ctx, key, data := context.Background(), p.Key("memory"), w.fresh(10_000)
	bytes, id, err := p.A.Register(ctx, len(data))
	if err != nil {
		return err
	}
	copy(bytes, data)
	err = kit.InOrder(
		func() error { _, err = p.A.DevMSet(ctx, key, p.A.ListOf(id, 0, len(data))); return err },
		func() error { return p.Get(p.B, key, data) },
		func() error { return p.A.Unregister(ctx, id) },
		func() error {
			found, failure := p.B.Exist(ctx, key)
			if failure == nil && found[0] {
				failure = fmt.Errorf("%s outlives its memory", key[0])
			}
			return failure
		},
	)
	return errors.Join(err, unix.Munmap(bytes))
}

// bound makes memory of this process the content of a file.
func (w *heldUser) bound() error {
	const size = 1 << 16
	name := filepath.Join(w.dir, "bound")
	if w.file == nil {
		fd, err := unix.MemfdCreate("bound", unix.MFD_CLOEXEC)
		if err != nil {
			return err
		}
		w.binds, w.file = name, os.NewFile(uintptr(fd), "memfd:bound")
		if err = w.file.Truncate(size); err != nil {
			return err
		}
		first := 0
		if err = kit.WriteNew(name, nil); err != nil {
			return err
		}
		bound, err := client.Bind(context.Background(), name, share.Memory{
			Family: "host", PID: os.Getpid(), Size: size, Pieces: []share.Piece{{Kind: devices.HandleMemfd, FD: &first, Size: size}},
		}, w.file)
		if err != nil {
			return err
		}
		if bound.Ino == 0 || bound.Size != size || bound.Device != "host" || bound.State != "bound" {
			return fmt.Errorf("bound as %+v", bound)
		}
	}
	data, got := w.fresh(size), make([]byte, size)
	if _, err := w.file.WriteAt(data, 0); err != nil {
		return err
	}
	return kit.InOrder(
		func() (err error) { got, err = os.ReadFile(name); return err },
		func() error { return kit.Same(name, got, data) },
		func() error { data = w.fresh(size); return overwrite(name, data) },
		func() error { got = make([]byte, size); _, err := w.file.ReadAt(got, 0); return err },
		func() error { return kit.Same("the memory of "+name, got, data) },
	)
}

// files uses files through a session, and one that is open all the time.
func (w *heldUser) files() error {
	p, err := w.pair()
	if err != nil {
		return err
	}
	files, dir := p.A.Files(), filepath.Join("sim0", filepath.Base(w.dir))
	if w.open == nil {
		if w.open, err = files.Create(dir+"/open", 0o600); err != nil {
			return err
		}
	}
	one, two, sub := dir+"/one", dir+"/two", fmt.Sprintf("%s/%d", dir, w.round)
	data, got := w.fresh(1+w.rng.IntN(100_000)), []byte(nil)
	return kit.InOrder(
		func() error { _, err := w.open.WriteAt(data, 100); return err },
		func() error { got = make([]byte, len(data)); _, err := w.open.ReadAt(got, 100); return err },
		func() error { return kit.Same(w.open.Name(), got, data) },
		func() error { return files.Mkdir(sub, 0o700) }, func() error { return files.WriteFile(one, data, 0o600) },
		func() error { return files.Rename(one, two) },
		func() (err error) { got, err = files.ReadFile(two); return err },
		func() error { return kit.Same(two, got, data) },
		func() error { return files.Remove(two) }, func() error { return files.Remove(sub) },
	)
}

// overwrite writes to the start of a file.
func overwrite(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	return errors.Join(err, f.Close())
}

// leave ends the sessions.
func (w *heldUser) leave() error {
	var errs []error
	if w.open != nil {
		errs = append(errs, w.open.Close())
	}
	if w.own != nil {
		errs = append(errs, w.own.Close())
	}
	return errors.Join(errs...)
}
