package web

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// pipes is a listener whose connections are pipes, so that time is that of a bubble.
type pipes struct{ queue chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	if c, open := <-p.queue; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { close(p.queue); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// dial connects a client, which sends text whenever the server reads it.
func (p pipes) dial(text string) net.Conn {
	client, server := net.Pipe()
	p.queue <- server
	go func() { _, _ = io.WriteString(client, text) }() // the server may close it
	return client
}

const request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

// answered returns whether a request gets its answer.
func answered(c net.Conn) bool {
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK
}

// servePipes serves pipes with a handler until the end of the bubble's test.
func servePipes(t *testing.T, handler http.HandlerFunc) (p pipes, end func()) {
	t.Helper()
	p = pipes{make(chan net.Conn, 1000)}
	s := &Server{listener: newPlaces(p, maxConnections), log: zap.NewNop()}
	s.Serve(handler)
	return p, s.Close
}

// TestIdleConnectionsGiveWay has more connections than there are places, none with a request, and
// asks by another one: it waits for none of them.
func TestIdleConnectionsGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, end := servePipes(t, func(http.ResponseWriter, *http.Request) {})
		defer end()
		var idle []net.Conn
		for range maxConnections / 2 {
			idle = append(idle, p.dial(request))
			if !answered(idle[len(idle)-1]) {
				t.Error("one of the first requests has no answer")
			}
		}
		for range maxConnections {
			idle = append(idle, p.dial(""), p.dial(request[:20]))
		}
		start := time.Now()
		if !answered(p.dial(request)) || time.Since(start) > 0 {
			t.Errorf("a request was answered after %v", time.Since(start))
		}
		synctest.Wait()
		closed := 0
		for i, c := range idle {
			_ = c.SetReadDeadline(time.Now().Add(time.Nanosecond))
			if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
				closed++
				if i >= len(idle)-maxConnections/2 {
					t.Errorf("connection %d of %d had to give way", i, len(idle))
				}
			}
			_ = c.Close()
		}
		if want := len(idle) + 1 - maxConnections; closed != want {
			t.Errorf("%d connections had to give way, want %d", closed, want)
		}
	})
}

// TestRequestsKeepTheirPlaces has a request in progress in every place: another one waits for the
// first that ends.
func TestRequestsKeepTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		p, stop := servePipes(t, func(http.ResponseWriter, *http.Request) { <-end })
		var busy []net.Conn
		for range maxConnections {
			busy = append(busy, p.dial(request))
		}
		synctest.Wait()
		late := make(chan bool)
		go func() { late <- answered(p.dial(request)) }()
		synctest.Wait()
		select {
		case <-late:
			t.Error("a request without a place was answered")
		case end <- struct{}{}:
		}
		go func() {
			for range maxConnections {
				end <- struct{}{}
			}
		}()
		for i, c := range busy {
			if !answered(c) {
				t.Errorf("request %d has no answer", i)
			}
		}
		if !<-late {
			t.Error("the late request has no answer")
		}
		stop()
	})
}

// TestCloseWhileWaiting closes a server at which a connection waits for a place.
func TestCloseWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, stop := servePipes(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		for range maxConnections + 1 {
			p.dial(request)
		}
		synctest.Wait()
		stop()
	})
}
