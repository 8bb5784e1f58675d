package runner

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
)

// HostOptions are the options of a host's part of a job that are set locally.
type HostOptions struct {
	// TempDir is the parent of the job's directory. Its path must be short, for the sockets
	// in it.
	TempDir string
	// Supervisor is the command that calls Supervise, without the program, and Executable
	// the file that is executed for it.
	Supervisor []string
	Executable string
	// Getenv returns variables of the environment; nil means an empty one.
	Getenv func(string) string
}

// serving is the part of a job on one host: it executes the runner's orders and reports
// their results. Without a runner it ends everything.
type serving struct {
	opts  *HostOptions
	to    sender
	brief *brief
	plan  *Plan
	// held holds the ports of the ranks, until they have sockets of their own on them.
	held    []*os.File
	job     *job
	barrier *hostBarrier
	// ranks are supervisors; running counts the waits for their programs.
	ranks   []*child
	started bool
	running sync.WaitGroup
	// work is the current step, one at a time; leave cancels it.
	work  sync.WaitGroup
	leave context.CancelFunc
}

// ServeHost runs a host's part of a job: it reads orders of the runner, and writes messages
// to it. It returns when nothing is left of the part, at the latest shortly after the
// runner or the context has ended.
func ServeHost(ctx context.Context, in io.Reader, out io.Writer, o *HostOptions) error {
	s := &serving{opts: o, to: sender{to: out}, leave: func() {}}
	if c, ok := in.(io.Closer); ok {
		defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	}
	_, err := io.WriteString(out, greeting+version+"\n")
	if err != nil {
		return fmt.Errorf("the runner has exited: %w", err)
	}
	listens := &timedReader{from: in, limit: DefaultHostTimeout}
	if _, pipe := in.(*io.PipeReader); pipe {
		listens.limit = 0 // the runner is in this process
	}
	err = s.obey(ctx, bufio.NewReader(listens), listens)
	s.leave()
	if err != nil {
		// Do not block on a runner that no longer reads.
		if c, ok := out.(io.Closer); ok {
			_ = c.Close()
		}
	}
	cerr := s.close(err != nil)
	if err == nil {
		var d done
		if cerr != nil {
			d.Fault = cerr.Error()
		}
		return s.to.send(kindDone, &d)
	}
	if errors.Is(err, io.EOF) && !s.started {
		return cerr // the runner did not use this host
	}
	return errors.Join(err, cerr)
}

// beat sends heartbeats to the runner.
func (s *serving) beat(stop <-chan struct{}) {
	t := time.NewTicker(pulse(s.brief.Silence))
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if s.to.send(kindBeat, nil) != nil {
				return
			}
		case <-stop:
			return
		}
	}
}

// obey executes the runner's orders, until the runner ends the part.
func (s *serving) obey(ctx context.Context, from *bufio.Reader, listens *timedReader) error {
	f, room, err := readFrame(from, nil)
	if err == nil && f.kind != kindBrief {
		err = fmt.Errorf("a message of kind %d: %w", f.kind, ErrProtocol)
	}
	if err == nil {
		s.brief, err = decode[brief](f)
	}
	if err != nil {
		return fmt.Errorf("the runner has exited: %w", err)
	}
	if listens.limit = s.brief.Silence; listens.limit > 0 {
		stop := make(chan struct{})
		defer close(stop)
		go s.beat(stop)
	}
	if err = s.prepare(ctx); err != nil {
		err = s.to.send(kindFault, faultOf(err))
	}
	for err == nil {
		if f, room, err = readFrame(from, room); err != nil {
			return fmt.Errorf("the runner has exited: %w", err)
		}
		if f.kind == kindBye {
			return nil
		}
		err = s.order(ctx, f)
	}
	return err
}

// order executes one order, in the background if it may take long.
func (s *serving) order(ctx context.Context, f frame) error {
	switch f.kind {
	case kindBeat:
	case kindSoon, kindNow:
		s.end(f.kind)
	case kindAnswer:
		p, err := decode[passage](f)
		if err != nil {
			return err
		}
		if s.barrier != nil {
			s.barrier.answer(p.ID, p.Answer)
		}
	case kindBook:
		b, err := decode[addressBook](f)
		if err != nil {
			return err
		}
		s.do(ctx, kindLoaded, func(ctx context.Context) error { return s.enter(ctx, b) })
	case kindStart:
		return s.start()
	case kindVerify:
		s.do(ctx, kindVerified, func(ctx context.Context) error {
			return s.job.verify(ctx, func(v *Verdict) error { return s.to.send(kindVerdict, v) })
		})
	case kindSave:
		s.do(ctx, kindSaved, func(ctx context.Context) error {
			return s.job.save(func(head, p []byte) error {
				return errors.Join(ctx.Err(), s.to.sendPiece(kindData, head, p))
			})
		})
	default:
		return fmt.Errorf("an order of kind %d: %w", f.kind, ErrProtocol)
	}
	return nil
}

// do executes a step in the background, and reports its success or error.
func (s *serving) do(ctx context.Context, answer kind, what func(ctx context.Context) error) {
	s.work.Wait() // the runner has waited too
	ctx, cancel := context.WithCancel(ctx)
	s.leave = cancel
	s.work.Go(func() {
		defer cancel()
		err := what(ctx)
		if ctx.Err() != nil {
			err = ErrStopped
		}
		if err != nil {
			_ = s.to.send(kindFault, faultOf(err)) // the end of the other direction reveals it too
			return
		}
		_ = s.to.send(answer, nil) // as above
	})
}

// prepare checks whether the job can run here, and reserves the ports of its ranks. It
// creates no files.
func (s *serving) prepare(ctx context.Context) (err error) {
	b := s.brief
	if s.plan, err = b.plan(s.opts); err != nil {
		return err
	}
	if len(b.WorkDir) > 0 {
		if err = os.Chdir(string(b.WorkDir)); err != nil {
			return fmt.Errorf("the ranks' current directory: %w; %w, with --workdir", err, ErrPlace)
		}
	}
	program, err := findProgram(s.plan.Program[0])
	if err != nil {
		return err
	}
	s.plan.Program = append([]string{program}, s.plan.Program[1:]...)
	var r addressBook
	if b.Hosts > 1 {
		getenv := s.opts.Getenv
		if getenv == nil {
			getenv = func(string) string { return "" }
		}
		at, err := ownAddress(ctx, b, getenv)
		if err != nil {
			return err
		}
		if s.held, r.Addresses, err = reserve(at, b.Count); err != nil {
			return err
		}
	}
	return s.to.send(kindReady, &r)
}

// enter creates the job's memory, starts the supervisors and loads the inputs.
func (s *serving) enter(ctx context.Context, all *addressBook) (err error) {
	if s.brief.Hosts > 1 {
		if err = checkAddresses(all.Addresses, s.plan.Ranks); err != nil {
			return err
		}
	} else {
		all.Addresses = nil
	}
	if s.job, err = newJob(s.plan, s.brief, all.Addresses); err != nil {
		return err
	}
	if s.barrier, err = newHostBarrier(filepath.Join(s.job.dir, barrierSock), s.brief.First, s.brief.Count, s.to.send); err != nil {
		return err
	}
	// The supervisors are started first: from now on they clean up if this process is
	// killed.
	for rank := s.brief.First; rank < s.brief.First+s.brief.Count; rank++ {
		env, err := s.job.environment(rank)
		if err != nil {
			return err
		}
		c, err := s.job.begin(&order{
			rank: rank, program: append(append([]string{}, s.plan.Program...), s.job.args(rank)...), env: env,
			pass: func(stream int, from io.Reader) error { return s.pass(rank, stream, from) },
		})
		if err != nil {
			return err
		}
		s.ranks = append(s.ranks, c)
	}
	return s.job.load(ctx)
}

// pass passes on the output of a rank, until no process can write any more.
func (s *serving) pass(rank, stream int, from io.Reader) error {
	room, head := make([]byte, piece/2), outputHead(rank, stream)
	for {
		n, err := from.Read(room)
		if n > 0 {
			if serr := s.to.sendPiece(kindOutput, head, room[:n]); serr != nil {
				return serr
			}
		}
		if err != nil {
			return nil //nolint:nilerr // the output has ended, or the rank is no longer supervised
		}
	}
}

// start starts the programs.
func (s *serving) start() error {
	s.work.Wait()
	if s.started || len(s.ranks) < s.brief.Count {
		return fmt.Errorf("unexpected request to start: %w", ErrProtocol)
	}
	s.started = true
	s.tell(start)
	for _, c := range s.ranks {
		s.running.Go(func() {
			e := c.wait()
			_ = s.to.send(kindEnded, &e) // the end of the other direction reveals it too
		})
	}
	return nil
}

func (s *serving) tell(order byte) {
	for _, c := range s.ranks {
		c.tell(order)
	}
}

// end ends the programs, or the current step if they have not started.
func (s *serving) end(how kind) {
	s.leave()
	switch {
	case !s.started:
	case how == kindSoon:
		s.tell(endSoon)
	default:
		s.tell(endNow)
	}
}

// close ends all that is left. The supervisors are last: they remove the job's directory if
// this process dies.
func (s *serving) close(now bool) error {
	s.work.Wait()
	if now && s.started {
		s.tell(endNow)
	}
	s.running.Wait()
	adminapi.CloseAll(s.held)
	if s.job == nil {
		return nil
	}
	for _, c := range s.ranks {
		if c.lost.Load() {
			sweep(s.job.dir)
			break
		}
	}
	if s.barrier != nil {
		s.barrier.close()
	}
	err := s.job.close()
	for _, c := range s.ranks {
		c.close()
	}
	return err
}
