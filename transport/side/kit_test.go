package side

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
	"github.com/hmcfs/hmcfs/transport/control"
	"github.com/hmcfs/hmcfs/transport/region"
	"github.com/hmcfs/hmcfs/transport/window"
	"github.com/hmcfs/hmcfs/transport/wire"
)

// patience is the time limit for events that must happen, however busy the
// machine is.
const patience = 30 * time.Second

// pair is the two ends of a Unix socket.
func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	near, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	a, _ = near.(*net.UnixConn)
	b, _ = far.(*net.UnixConn)
	return a, b
}

// files is a provider whose offers are a memfd, and whose windows read and write
// that file.
type files struct {
	done chan struct{}
	once sync.Once
	// refuse makes it reject every offer.
	refuse atomic.Bool
	// closing is called when an export is to be closed; nil does nothing.
	closing func()

	mu       sync.Mutex
	exported int
	opened   int
}

func newFiles() *files { return &files{done: make(chan struct{})} }

func (f *files) Done() <-chan struct{} { return f.done }
func (f *files) Err() error            { return errors.New("the provider has ended") }
func (f *files) Close()                { f.once.Do(func() { close(f.done) }) }

// open returns the numbers of exports and windows that are open.
func (f *files) open() (exported, opened int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.exported, f.opened
}

func (f *files) count(exported, opened int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.exported += exported
	f.opened += opened
}

type fileExport struct {
	provider *files
	buffer   *region.Buffer
	offer    window.Offer
}

func (x *fileExport) Offer() window.Offer { return x.offer }

func (x *fileExport) Close() error {
	if x.provider.closing != nil {
		x.provider.closing()
	}
	x.buffer.Drop()
	x.provider.count(-1, 0)
	return nil
}

func (f *files) Export(b *region.Buffer, _ wire.Rights) (window.Export, error) {
	src := b.Source()
	if src.File == nil {
		return nil, devices.ErrUnsupported
	}
	if err := b.Hold(); err != nil {
		return nil, err
	}
	f.count(1, 0)
	return &fileExport{provider: f, buffer: b, offer: window.Offer{Blob: []byte("blob"), Files: []*os.File{src.File}}}, nil
}

type fileWindow struct {
	provider *files
	file     *os.File
}

func (f *files) Import(o window.Offer, _ devices.Size, _ wire.Rights) (window.Window, error) {
	if string(o.Blob) == "no file" && len(o.Files) == 0 {
		f.count(0, 1)
		return &fileWindow{provider: f}, nil
	}
	if f.refuse.Load() || len(o.Files) != 1 || string(o.Blob) != "blob" {
		closeFiles(o.Files)
		return nil, errors.New("no such memory")
	}
	f.count(0, 1)
	return &fileWindow{provider: f, file: o.Files[0]}, nil
}

func (w *fileWindow) Start(op *window.Op, done window.Completer) {
	_, err := w.file.WriteAt(op.Local.Host(op.LocalOff, op.Size), int64(op.RemoteOff))
	done.Complete(err)
}

func (w *fileWindow) Close() error {
	w.provider.count(0, -1)
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

// one is a side connection with its provider and memory.
type one struct {
	*Side
	provider *files
	table    *region.Table
}

func start(t *testing.T, c net.Conn, timeout time.Duration) *one {
	t.Helper()
	e, err := transport.New(transport.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := &one{provider: newFiles(), table: region.NewTable(e)}
	o.Side = New(&control.Conn{Conn: c, Peer: 7}, o.provider, Options{Timeout: timeout, Logger: zap.NewNop()})
	t.Cleanup(func() {
		o.Close()
		if exported, opened := o.provider.open(); exported != 0 || opened != 0 {
			t.Errorf("%d exports and %d windows are left", exported, opened)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

// two is two ranks with a side connection.
func two(t *testing.T) (a, b *one) {
	t.Helper()
	near, far := pair(t)
	return start(t, near, patience), start(t, far, patience)
}

// buffer is registered memory with content.
func (o *one) buffer(t *testing.T, n int, seed uint64) *region.Buffer {
	t.Helper()
	b, err := o.table.Alloc(devices.Size(n))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	kit.FillAt(b.Host(0, b.Size()), seed, 0)
	return b
}

func within(t *testing.T) context.Context {
	t.Helper()
	return kit.Context(t, patience)
}

// completed is notified of the end of an operation.
type completed chan error

func (c completed) Complete(err error) { c <- err }
