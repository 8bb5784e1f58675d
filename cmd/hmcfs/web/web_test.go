package web

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// serve starts a server with a handler, and returns its address.
func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	s, err := Listen(t.Context(), "http", "127.0.0.1:0", zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.Serve(handler)
	return s.Addr()
}

// ask sends a request with headers, which are pairs; Host is one.
func ask(t *testing.T, method, url string, body io.Reader, headers ...string) (status int, header http.Header, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // it has been read
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

func TestPageAdmits(t *testing.T) {
	data := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "data") })
	at := serve(t, Page("TOKEN", data))
	const auth = "Authorization"
	for _, c := range []struct {
		name, method, path string
		body               string
		headers            []string
		want               int
	}{
		{"the page", http.MethodGet, "/", "", nil, http.StatusOK},
		{"its script", http.MethodGet, "/page.js", "", nil, http.StatusOK},
		{"its style", http.MethodGet, "/page.css", "", nil, http.StatusOK},
		{"another file", http.MethodGet, "/page.go", "", nil, http.StatusNotFound},
		{"a way out", http.MethodGet, "/..%2f..%2fetc/passwd", "", nil, http.StatusNotFound},
		{"a change of the page", http.MethodPost, "/", "", nil, http.StatusMethodNotAllowed},
		{"data", http.MethodGet, "/v1/status", "", []string{auth, "Bearer TOKEN"}, http.StatusOK},
		{"data without a token", http.MethodGet, "/v1/status", "", nil, http.StatusUnauthorized},
		{"an empty token", http.MethodGet, "/v1/status", "", []string{auth, "Bearer "}, http.StatusUnauthorized},
		{"a wrong token", http.MethodGet, "/v1/status", "", []string{auth, "Bearer TOKEM"}, http.StatusUnauthorized},
		{"a part of the token", http.MethodGet, "/v1/status", "", []string{auth, "Bearer TOKE"}, http.StatusUnauthorized},
		{"the token in the address", http.MethodGet, "/v1/status?token=TOKEN", "", nil, http.StatusUnauthorized},
		{"from this page", http.MethodGet, "/v1/status", "", []string{auth, "Bearer TOKEN", "Origin", "http://" + at, "Sec-Fetch-Site", "same-origin"}, http.StatusOK},
		{"from another page", http.MethodGet, "/v1/status", "", []string{auth, "Bearer TOKEN", "Origin", "http://other.example"}, http.StatusForbidden},
		{"from no page", http.MethodGet, "/v1/status", "", []string{auth, "Bearer TOKEN", "Origin", "null"}, http.StatusForbidden},
		{"from another site", http.MethodGet, "/v1/status", "", []string{auth, "Bearer TOKEN", "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"by another name", http.MethodGet, "/v1/status", "", []string{auth, "Bearer TOKEN", "Host", "rebound.example"}, http.StatusMisdirectedRequest},
		{"the page by another name", http.MethodGet, "/", "", []string{"Host", "127.0.0.1.rebound.example"}, http.StatusMisdirectedRequest},
		{"by the name of this machine", http.MethodGet, "/", "", []string{"Host", "LOCALHOST:1"}, http.StatusOK},
		{"by its other address", http.MethodGet, "/", "", []string{"Host", "[::1]:80"}, http.StatusOK},
		{"without a name", http.MethodGet, "/", "", []string{"Host", ":80"}, http.StatusMisdirectedRequest},
		{"with a body", http.MethodGet, "/v1/status", "body", []string{auth, "Bearer TOKEN"}, http.StatusBadRequest},
	} {
		var body io.Reader
		if c.body != "" {
			body = strings.NewReader(c.body)
		}
		status, header, text := ask(t, c.method, "http://"+at+c.path, body, c.headers...)
		if status != c.want || strings.Contains(text, "data") && !strings.HasPrefix(c.path, "/page") && status != http.StatusOK {
			t.Errorf("%s: status %d, want %d: %s", c.name, status, c.want, text)
		}
		if status != http.StatusMisdirectedRequest && !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: no policy in %v", c.name, header)
		}
	}
}

// TestPageStandsAlone checks that the page refers to nothing elsewhere, and never makes markup of text.
func TestPageStandsAlone(t *testing.T) {
	for _, name := range []string{"index.html", "page.js", "page.css"} {
		data, err := assets.ReadFile("page/" + name)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(data), "http://www.w3.org/2000/svg", "")
		for _, bad := range []string{"http:", "https:", "//cdn", "@import", "url(", "innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %q", name, bad)
			}
		}
	}
}

func TestMetricsAlone(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "one"}))
	at := serve(t, Metrics(r))
	if status, _, text := ask(t, http.MethodGet, "http://"+at+"/metrics", nil); status != http.StatusOK || !strings.Contains(text, "\none 0\n") {
		t.Errorf("status %d: %s", status, text)
	}
	for _, path := range []string{"/", "/v1/status", "/page.js"} {
		if status, _, _ := ask(t, http.MethodGet, "http://"+at+path, nil); status != http.StatusNotFound {
			t.Errorf("%s: status %d", path, status)
		}
	}
}

func TestListenFails(t *testing.T) {
	at := serve(t, http.NotFoundHandler())
	_, err := Listen(t.Context(), "metrics", at, zap.NewNop())
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "--metrics "+at) {
		t.Errorf("a taken address: %v", err)
	}
}

// TestCloseWhileServing closes a server under a request in progress, and one that never served.
func TestCloseWhileServing(t *testing.T) {
	began := make(chan struct{})
	s, err := Listen(t.Context(), "http", "127.0.0.1:0", zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
	}))
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }() // the server ends it
	if _, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-began
	s.Close()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute)) // the connection has deadlines
	if n, readErr := c.Read(make([]byte, 1)); readErr == nil {
		t.Errorf("%d bytes after the end", n)
	}
	idle, err := Listen(t.Context(), "http", "127.0.0.1:0", zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	idle.Close()
	(*Server)(nil).Close()
}
