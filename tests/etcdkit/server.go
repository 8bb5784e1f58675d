package etcdkit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// startTimeout bounds the start of the server, on a machine with much to do.
const startTimeout = 60 * time.Second

// Options describe a Server.
type Options struct {
	// Host is the address that it listens on. Default 127.0.0.1.
	Host string
	// Enter is called on the thread that starts the process, which is then
	// locked to it: there it may enter a network namespace. Nil is none. With
	// it there is no Password, which is set over the network from here.
	Enter func() error
	// TLS has clients show certificates, and the server its own.
	TLS bool
	// Dial connects to where Host is, for what a Cluster asks its members. Nil
	// is the network of this process.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Password, if not empty, is that of the users root and User, and nobody
	// gets in without.
	Password string
}

// Server is an etcd server.
type Server struct {
	options Options
	dir     string
	port    int
	proofs  *proofs
	// member is nil for a server that is alone.
	member *member

	mu sync.Mutex
	// +checklocks:mu
	running *process
}

// Start starts a server that is closed with the test. The test is skipped
// where there is no etcd.
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

// New starts a server, and returns when it serves. Close it.
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

// Close ends the server and removes all that it had.
func (s *Server) Close() error {
	s.Stop()
	return os.RemoveAll(s.dir)
}

// Endpoints returns its addresses, HOST:PORT. They stay the same.
func (s *Server) Endpoints() []string {
	return []string{net.JoinHostPort(s.options.Host, strconv.Itoa(s.port))}
}

// Stop kills the server. What it has confirmed is on its disk.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		s.running.kill()
		s.running = nil
	}
}

// Continue starts a server that was stopped, with what it had.
func (s *Server) Continue(ctx context.Context) error { return s.start(ctx) }

// Wipe has the server lose all that it had, and run again.
func (s *Server) Wipe(ctx context.Context) error {
	s.Stop()
	if err := os.RemoveAll(s.data()); err != nil {
		return err
	}
	return s.start(ctx)
}

// Pause stops the process without ending it, or lets it go on: nothing is
// answered, and no connection is told.
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

// Resident is the memory that the process has, in bytes; 0 if it does not run.
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

// Disk is the size of the database, in bytes.
func (s *Server) Disk() uint64 {
	info, err := os.Stat(filepath.Join(s.data(), "member", "snap", "db"))
	if err != nil {
		return 0
	}
	return uint64(info.Size())
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// start starts the process; the first time also to find a port.
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

// launch tries ports until it has one, and stays with it.
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

// run is one life of the process. It has a thread of its own, which is left
// behind wherever it was taken, and on whose end the process would end too.
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
		port, err := freePort(s.options.Host)
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

// freePort returns a port that nobody listens at. A server keeps it while it is stopped, and
// clients dial it meanwhile; so it is none that the kernel gives to others by itself, from
// 32768 on: another server would be taken for this one, or a client would connect to itself.
func freePort(host string) (int, error) {
	const lowest, above = 20_000, 32_000
	var err error
	for range 100 {
		port := lowest + rand.IntN(above-lowest)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("find a port: %w", err)
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
		// A short time to elect is also a short least time of leases.
		"--heartbeat-interval", "100", "--election-timeout", "500",
		// A member is asked to replace another one by HTTP.
		"--enable-grpc-gateway="+strconv.FormatBool(s.member != nil))
}

// process is one life of the server.
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

// Write takes what the server logs.
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

// await waits until the server serves, or ends it.
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

// kill ends the process and waits for that.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.exited
}
