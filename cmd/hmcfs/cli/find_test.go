package cli

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/tests/kit"
)

// TestHearRevived asks a daemon that cuts off connections, as one does that dies, and then answers. One that
// always does so is not asked for ever.
func TestHearRevived(t *testing.T) {
	for _, tt := range []struct {
		cuts  int
		holds bool
		want  bool
	}{
		{cuts: 0, want: true},
		{cuts: 1, holds: true, want: true},
		{cuts: 5, holds: true, want: true},
		{cuts: 6, holds: true},
		{cuts: 1},
	} {
		t.Run(fmt.Sprintf("%d cuts, held %t", tt.cuts, tt.holds), func(t *testing.T) {
			kit.Check(t)
			p := place.Paths{Runtime: t.TempDir()}
			fakeDaemon(t, p.Socket(), tt.cuts)
			if tt.holds {
				fakeHolder(t, p.Holder())
			}
			v, err := hearRevived(t.Context(), client.NewOf(p.Socket(), os.Getuid()), p)
			if (err == nil) != tt.want || tt.want && v.Version != "9.9" || !tt.want && !client.IsDeath(err) {
				t.Errorf("heard %q, %v", v.Version, err)
			}
		})
	}
}

// fakeDaemon is a daemon that cuts off a number of connections, and answers those that follow.
func fakeDaemon(t *testing.T, socket string, cuts int) {
	t.Helper()
	serve(t, "unix", socket, func(n int, c net.Conn) {
		request, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil || n < cuts {
			return
		}
		_ = request.Body.Close() // it has none
		const text = `{"version":"9.9"}`
		_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	})
}

// fakeHolder is the holder of a daemon, which starts it again.
func fakeHolder(t *testing.T, socket string) {
	t.Helper()
	serve(t, "unixpacket", socket, func(_ int, c net.Conn) {
		p := make([]byte, 1000)
		if _, err := c.Read(p); err == nil {
			_, _ = c.Write([]byte(`{"status":{}}`))
		}
	})
}

// serve passes connections to fn, with their number, until the test ends.
func serve(t *testing.T, network, socket string, fn func(n int, c net.Conn)) {
	t.Helper()
	l, err := net.Listen(network, socket) //nolint:noctx // it waits for nobody
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fn(n, c)
			_ = c.Close() // the peer sees it
		}
	}()
}
