package admin

import (
	"context"
	"sync"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// lineSink sends the lines of an answer to a client. Only one goroutine may use it.
type lineSink interface {
	// line adds a line, which is sent by flush, or earlier.
	line(one adminapi.Line) error
	// plain is line for a key of which there is nothing to say but its index in the call: a success.
	plain(n int, key string) error
	// flush sends all lines at once.
	flush() error
	// end adds no more lines; the rest is sent when the call has returned.
	end()
}

// answer is the answer to a call. Only one goroutine may use it.
type answer struct {
	to lineSink
	// failed is the error after which nothing more is sent.
	failed error
	// keysFailed is the number of keys that failed.
	keysFailed int
	// room is memory for results, which a later answer uses again.
	room hetero.Results
	// splits is true if the caller of the verb runs rest, which is set for an answer that is not
	// complete when the verb returns.
	splits bool
	rest   func()
}

// put adds a line.
func (a *answer) put(line adminapi.Line) {
	if line.Code != "" && !line.Begun {
		a.keysFailed++
	}
	if a.failed == nil {
		a.failed = a.to.line(line)
	}
}

// flush sends all lines at once.
func (a *answer) flush() error {
	if a.failed == nil {
		a.failed = a.to.flush()
	}
	return a.failed
}

// end adds no more lines.
func (a *answer) end() {
	if a.failed == nil {
		a.to.end()
	}
}

// lineOf returns the line of a key and its error.
func lineOf(n int, key string, err error) adminapi.Line {
	line := adminapi.Line{N: n, Key: key}
	if err != nil {
		line.Error, line.Code = err.Error(), hetero.StatusOf(err).Name
	}
	return line
}

// results sends results, or the error of the whole call.
func (a *answer) results(r hetero.Results, err error) error {
	if r == nil && err != nil {
		return err
	}
	for i := range r {
		one := &r[i]
		if one.Err == nil && !one.Skipped {
			if a.failed == nil {
				a.failed = a.to.plain(i, one.Key)
			}
			continue
		}
		line := lineOf(i, one.Key, one.Err)
		line.Skipped = one.Skipped
		a.put(line)
	}
	a.end()
	if clear(r); len(r) <= mostIdle {
		a.room = r
	}
	return nil
}

// batch sends the results of a background operation.
func (a *answer) batch(ctx context.Context, b *hetero.Batch, err error) error {
	if err != nil {
		return err
	}
	a.put(adminapi.Line{Begun: true})
	if a.flush() != nil {
		return nil
	}
	<-b.Done() // it also ends when the connection does
	r, err := b.Wait(ctx)
	return a.results(r, err)
}

// futures sends the results of futures as they complete: first those that are complete,
// then a line that the others are in progress. Closing left ends the wait; nil never does.
func (a *answer) futures(futures []*hetero.Future, err error, left <-chan struct{}) error {
	if futures == nil && err != nil {
		return err
	}
	e := newEndings()
	for i, f := range futures {
		f.Then(func() { e.add(lineOf(i, f.Key(), f.Err())) })
	}
	todo := len(futures) - a.putAll(e.take())
	begun := lineOf(0, "", err)
	begun.Begun = true
	a.put(begun)
	if a.flush() != nil || todo == 0 {
		return nil
	}
	a.rest = func() { a.await(e, todo, left) }
	if !a.splits {
		a.rest()
	}
	return nil
}

// await sends the rest of the lines as they come, the last of them with the end of the answer: to wake
// a client twice takes longer than all the rest.
func (a *answer) await(e *endings, todo int, left <-chan struct{}) {
	for {
		select {
		case <-e.came:
			todo -= a.putAll(e.take())
		case <-left:
			return
		}
		if todo == 0 {
			a.end()
			return
		}
		if a.flush() != nil {
			return
		}
	}
}

// putAll puts several lines, and returns their number.
func (a *answer) putAll(all []adminapi.Line) int {
	for _, line := range all {
		a.put(line)
	}
	return len(all)
}

// endings holds lines of keys that are not sent yet. Any goroutine may add to it.
type endings struct {
	// came has a buffer of one: it signals that there are lines to send.
	came chan struct{}

	mu sync.Mutex
	// +checklocks:mu
	lines []adminapi.Line
}

func newEndings() *endings { return &endings{came: make(chan struct{}, 1)} }

func (e *endings) add(line adminapi.Line) {
	e.mu.Lock()
	e.lines = append(e.lines, line)
	e.mu.Unlock()
	select {
	case e.came <- struct{}{}:
	default:
	}
}

// write sends lines in the background until end is called, which may be called more than
// once. If the client does not read, the end of the connection ends the call.
func (e *endings) write(out *answer) (end func()) {
	over, written := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(written)
		for {
			select {
			case <-e.came:
				out.putAll(e.take())
				_ = out.flush() // out records the error
			case <-over:
				return
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(over)
		<-written
	})
}

func (e *endings) take() []adminapi.Line {
	e.mu.Lock()
	defer e.mu.Unlock()
	lines := e.lines
	e.lines = nil
	return lines
}
