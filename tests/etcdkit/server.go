package etcdkit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/tests/kit"
)

// startTimeout bounds the start of the server on a busy machine.
const startTimeout = 60 * time.Second

// Options describe a Server.
type Options struct {
	// Host is the address at which the server listens. Default 127.0.0.1.
	Host string
	// Enter is called on the thread that starts the process, which stays locked to that
	// goroutine, so that it may enter a network namespace. Nil does nothing. It excludes
	// Password, which is set over the network of this process.
	Enter func() error
	// TLS makes the server and its clients use certificates.
	TLS bool
	// Dial connects to Host for requests to the members of a Cluster. Nil uses the network
	// of this process.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Password, if not empty, is the password of the users root and User; access without it
	// is denied.
	Password string
}

// Server is an etcd server, running or stopped.
type Server struct {
	options Options
	dir     string
	port    int
	proofs  *proofs
	// member is nil for a server outside of a Cluster.
	member *member

	mu sync.Mutex
	// +checklocks:mu
	running *process
}

// Start starts a server that is closed at the end of the test. The test is skipped if etcd
// is not installed.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	kit.Require(t, "tool:etcd")
	s, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close etcd: %v", err)
		}
	})
	return s
}

// New starts a server, and returns when it serves. The caller closes it.
func New(ctx context.Context, o Options) (_ *Server, err error) {
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	s := &Server{options: o}
	if s.dir, err = os.MkdirTemp("", "hmcfs-etcd-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("etcd: %w", err), s.Close())
		}
	}()
	if o.TLS {
		if s.proofs, err = newProofs(s.dir, o.Host); err != nil {
			return nil, err
		}
	}
	return s, s.start(ctx)
}

// Close ends the server and removes its data.
func (s *Server) Close() error {
	s.Stop()
	return os.RemoveAll(s.dir)
}

// Endpoints returns the addresses of the server, HOST:PORT. They don't change.
func (s *Server) Endpoints() []string {
	return []string{net.JoinHostPort(s.options.Host, strconv.Itoa(s.port))}
}

// Stop kills the server. Everything that it has acknowledged is on its disk.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		s.running.kill()
		s.running = nil
	}
}

// Continue starts a stopped server again, with its data.
func (s *Server) Continue(ctx context.Context) error { return s.start(ctx) }

// Wipe deletes all data of the server and starts it again.
func (s *Server) Wipe(ctx context.Context) error {
	s.Stop()
	if err := os.RemoveAll(s.data()); err != nil {
		return err
	}
	return s.start(ctx)
}

// Pause stops the process without ending it, or continues it: a stopped process answers
// nothing, and its connections stay open.
func (s *Server) Pause(pause bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return errors.New("etcd does not run")
	}
	if pause {
		return kit.StopProcess(s.running.cmd.Process.Pid)
	}
	return s.running.cmd.Process.Signal(syscall.SIGCONT)
}

// Resident returns the resident memory of the process, in bytes; 0 if it is not running.
func (s *Server) Resident() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.running.cmd.Process.Pid))
	var all, resident uint64
	if _, scanErr := fmt.Sscan(string(text), &all, &resident); err != nil || scanErr != nil {
		return 0
	}
	return resident * uint64(os.Getpagesize())
}

// Disk returns the size of the database, in bytes.
func (s *Server) Disk() uint64 {
	info, err := os.Stat(filepath.Join(s.data(), "member", "snap", "db"))
	if err != nil {
		return 0
	}
	return uint64(info.Size())
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// start starts the process. The first start also chooses a port.
func (s *Server) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		return errors.New("etcd runs already")
	}
	_, err := os.Stat(s.data())
	fresh := err != nil
	if s.running, err = s.launch(ctx); err != nil {
		return err
	}
	if fresh && s.options.Password != "" {
		if err = s.protect(ctx); err != nil {
			s.running.kill()
			s.running = nil
			return err
		}
	}
	return nil
}

// launch tries ports until the server can use one, which it keeps.
func (s *Server) launch(ctx context.Context) (*process, error) {
	var faults []error
	for range 5 {
		fixed := s.port != 0
		p := &process{exited: make(chan struct{}), serving: make(chan struct{})}
		started := make(chan error)
		go s.run(p, started)
		err := <-started
		if err == nil {
			if err = p.await(ctx); err == nil {
				return p, nil
			}
		}
		faults = append(faults, err)
		if !fixed {
			s.port = 0
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(faults...)
}

// run runs the process until it exits, on a thread of its own: the thread may have entered
// a namespace, and the process ends with it.
func (s *Server) run(p *process, started chan<- error) {
	runtime.LockOSThread()
	err := s.begin(p)
	started <- err
	if err == nil {
		p.err = p.cmd.Wait()
		close(p.exited)
	}
}

func (s *Server) begin(p *process) error {
	if s.options.Enter != nil {
		if err := s.options.Enter(); err != nil {
			return err
		}
	}
	if s.port == 0 {
		port, err := kit.FreePort(s.options.Host)
		if err != nil {
			return err
		}
		s.port = port
	}
	p.cmd = exec.Command("etcd", s.args()...)
	p.cmd.Dir = s.dir
	p.cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	p.cmd.Stderr = p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return p.cmd.Start()
}

func (s *Server) args() []string {
	client := "http://" + s.Endpoints()[0]
	var proof []string
	if s.proofs != nil {
		client = "https://" + s.Endpoints()[0]
		proof = []string{
			"--cert-file", s.proofs.serverCert, "--key-file", s.proofs.serverKey,
			"--trusted-ca-file", s.proofs.CA, "--client-cert-auth",
		}
	}
	m := s.member
	if m == nil {
		const nowhere = "http://127.0.0.1:0"
		m = &member{name: "test", peer: nowhere, initial: "test=" + nowhere, state: "new"}
	}
	return append(proof,
		"--data-dir", s.data(), "--name", m.name, "--logger", "zap", "--log-outputs", "stderr",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", m.peer, "--initial-advertise-peer-urls", m.peer,
		"--initial-cluster", m.initial, "--initial-cluster-state", m.state,
		// The election timeout also determines the shortest TTL of leases.
		"--heartbeat-interval", "100", "--election-timeout", "500",
		// Members are replaced through HTTP requests.
		"--enable-grpc-gateway="+strconv.FormatBool(s.member != nil))
}

// process is one running instance of the server.
type process struct {
	cmd     *exec.Cmd
	exited  chan struct{}
	err     error // after exited
	serving chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	log bytes.Buffer
	// +checklocks:mu
	served bool
}

// Write receives the log of the server.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log.Write(b)
	if !p.served && bytes.Contains(p.log.Bytes(), []byte("serving client traffic")) {
		p.served = true
		close(p.serving)
	}
	if p.served && p.log.Len() > 1<<20 {
		p.log.Reset()
	}
	return len(b), nil
}

// await waits until the server serves; if that fails, it ends the process.
func (p *process) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var err error
	select {
	case <-p.serving:
		return nil
	case <-p.exited:
		err = p.err
	case <-ctx.Done():
		err = ctx.Err()
		p.kill()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("etcd does not start: %w\n%s", err, p.log.Bytes())
}

// kill kills the process and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.exited
}
