package tests

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// watched is a mount that is watched from outside, one of two nodes.
type watched struct {
	*mnt.M
	manager *net.UnixConn
	// prometheus scrapes the mount; nil where it isn't installed.
	prometheus *prometheus
}

// patience bounds what takes milliseconds on an idle machine.
const patience = 30 * time.Second

func TestWatching(t *testing.T) {
	kit.Check(t)
	w := newWatched(t)
	t.Run("ready", w.ready)
	t.Run("metrics", w.metrics)
	t.Run("activity", w.activity)
	t.Run("page", w.page)
	t.Run("top once", w.topOnce)
	t.Run("top", w.top)
	t.Run("dashboard", w.dashboard)
	t.Run("top without a daemon", w.topWithout)
	t.Run("stopping", w.stopping)
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	kit.Require(t, "fuse", "root")
	dir := mnt.TempDir(t)
	secret := filepath.Join(dir, "secret")
	must(t, os.WriteFile(secret, []byte("a secret of the tests that is long enough"), 0o600))
	at := filepath.Join(dir, "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at, Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { _ = manager.Close() }) // it has been read
	node := func(name, other string) []string {
		return []string{
			"--node", name, "--peer", other + "=unix:" + filepath.Join(dir, other), "--listen", "unix:" + filepath.Join(dir, name),
			"--secret-file", secret, "--squash", "none",
		}
	}
	mnt.Mount(t, mnt.Options{Devices: []string{"host,size=1MiB"}, Extra: node("b", "a")})
	m := mnt.Mount(t, mnt.Options{
		Extra: append(node("a", "b"), "--metrics", ":0", "--http", "127.0.0.1:0"),
		Env:   []string{"NOTIFY_SOCKET=" + at},
	})
	w := &watched{M: m, manager: manager}
	if kit.Missing("tool:prometheus") == nil {
		w.prometheus = startPrometheus(t, w.Status().Metrics) // it scrapes after 5 s
	}
	return w
}

// told returns the next message to the service manager.
func (w *watched) told(t *testing.T) string {
	t.Helper()
	must(t, w.manager.SetReadDeadline(time.Now().Add(patience)))
	buf := make([]byte, 4096)
	n, err := w.manager.Read(buf)
	must(t, err)
	return string(buf[:n])
}

func (w *watched) ready(t *testing.T) {
	if got, want := w.told(t), "READY=1\nSTATUS=Serving "+w.Dir; got != want {
		t.Errorf("the service manager was told %q, want %q", got, want)
	}
}

// stopping must be the last.
func (w *watched) stopping(t *testing.T) {
	at := w.Status().Metrics
	w.Umount()
	if got, want := w.told(t), "STOPPING=1\nSTATUS=Ending "+w.Dir; got != want {
		t.Errorf("the service manager was told %q, want %q", got, want)
	}
	if _, err := net.Dial("tcp", at); err == nil {
		t.Errorf("a server still listens at %s", at)
	}
}

// request returns the status and the body of an answer. Headers follow as pairs; Host is one.
func request(t *testing.T, method, url string, headers ...string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	must(t, err)
	for pair := range slices.Chunk(headers, 2) {
		r.Header.Set(pair[0], pair[1])
		if pair[0] == "Host" {
			r.Host = pair[1]
		}
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(r)
	must(t, err)
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	must(t, resp.Body.Close())
	return resp.StatusCode, string(data)
}

func (w *watched) metrics(t *testing.T) {
	at := w.Status().Metrics
	if host, _, err := net.SplitHostPort(at); err != nil || host != "127.0.0.1" {
		t.Fatalf("without a host the metrics are at %q", at)
	}
	status, body := request(t, http.MethodGet, "http://"+at+"/metrics")
	text, err := w.Client().Metrics(t.Context())
	must(t, err)
	if names := metricNames(body); status != http.StatusOK || !slices.Equal(names, metricNames(text)) {
		t.Errorf("status %d, metrics %q; over the socket %q", status, names, metricNames(text))
	}
	for _, c := range []struct {
		name, method, path, host string
		want                     int
	}{
		{"the status", http.MethodGet, adminapi.PathStatus, "", http.StatusNotFound},
		{"an unmount", http.MethodPost, adminapi.PathUmount, "", http.StatusNotFound},
		{"a file", http.MethodGet, adminapi.PathFiles, "", http.StatusNotFound},
		{"profiles", http.MethodGet, "/debug/pprof/", "", http.StatusNotFound},
		{"the root", http.MethodGet, "/", "", http.StatusNotFound},
		{"another method", http.MethodPost, adminapi.PathMetrics, "", http.StatusMethodNotAllowed},
		{"by the name of this machine", http.MethodGet, adminapi.PathMetrics, "localhost:9", http.StatusOK},
		{"by another name", http.MethodGet, adminapi.PathMetrics, "rebound.example.com", http.StatusMisdirectedRequest},
		{"by another address", http.MethodGet, adminapi.PathMetrics, "192.0.2.1:80", http.StatusMisdirectedRequest},
	} {
		var headers []string
		if c.host != "" {
			headers = []string{"Host", c.host}
		}
		if got, body := request(t, c.method, "http://"+at+c.path, headers...); got != c.want {
			t.Errorf("%s: status %d, want %d: %s", c.name, got, c.want, body)
		}
	}
	// The address is taken: another mount is refused, and leaves nothing behind.
	other := mnt.TempDir(t)
	must(t, os.Mkdir(other+"/m", 0o755))
	out, err := w.Run("mount", "-f", "--metrics", at, "--state-dir", other+"/s", "--runtime-dir", other+"/r", other+"/m")
	if err == nil || !strings.Contains(err.Error(), "--metrics "+at) || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a second mount at the address: %v %s", err, out)
	}
}

// metricNames returns the names of the metrics in a text for Prometheus, in order.
func metricNames(text string) (names []string) {
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok && !strings.HasPrefix(name, "hmcfs_fs_") {
			names = append(names, strings.Fields(name)[0])
		}
	}
	return names
}

// move writes, copies and reads files, and sets a key and gets it by a session.
func (w *watched) move(t *testing.T, s *client.Session, seed uint64) {
	t.Helper()
	const size = 1<<20 + 17
	create(t, w.Path("sim0", "a"), seed, size)
	run(t, "cp", w.Path("sim0", "a"), w.Path("sim1", "b"))
	wantContent(t, w.Path("sim1", "b"), seed, size)
	files := s.Files()
	data, err := files.ReadFile("sim0/a")
	if err != nil || kit.DiffAt(data, seed, 0) >= 0 || len(data) != size {
		t.Fatalf("by the session: %d bytes, %v", len(data), err)
	}
	_, err = s.Exist(t.Context(), []string{"none"}) // which asks the other node
	must(t, err)
}

func (w *watched) session(t *testing.T) *client.Session {
	t.Helper()
	s, err := client.OpenSession(t.Context(), w.Client().Socket())
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func (w *watched) activity(t *testing.T) {
	s := w.session(t)
	w.move(t, s, 1)
	a, err := w.Client().Activity(t.Context())
	must(t, err)
	own := func(session bool) adminapi.Process {
		at := slices.IndexFunc(a.Processes, func(p adminapi.Process) bool { return p.PID == os.Getpid() && p.Session == session })
		if at < 0 {
			t.Fatalf("this process is not there: %+v", a.Processes)
		}
		return a.Processes[at]
	}
	const size = 1<<20 + 17
	if p := own(false); p.WrittenBytes < size || p.ReadBytes < size || p.UID != 0 || p.Command == "" {
		t.Errorf("by the mount: %+v", p)
	}
	if !slices.ContainsFunc(a.Processes, func(p adminapi.Process) bool { return p.Command == "cp" && p.Ended && p.ReadBytes == size }) {
		t.Errorf("cp is not there: %+v", a.Processes)
	}
	if p := own(true); p.ReadBytes != size || p.WrittenBytes != 0 {
		t.Errorf("by the session: %+v", p)
	}
	if !slices.ContainsFunc(a.Sessions, func(s adminapi.Session) bool { return s.PID == os.Getpid() && !s.Begun.IsZero() }) {
		t.Errorf("the session is not there: %+v", a.Sessions)
	}
}

// dashboard has every query of the dashboard answered by a Prometheus that scrapes the mount.
func (w *watched) dashboard(t *testing.T) {
	kit.Require(t, "tool:prometheus")
	open := dashboardQueries(t)
	s := w.session(t)
	seed := uint64(2)
	kit.Eventually(t, patience, func() (err error) {
		seed++
		w.move(t, s, seed)
		open = slices.DeleteFunc(open, func(query string) bool {
			failure := w.prometheus.hasValue(t, query)
			err = cmp.Or(err, failure)
			return failure == nil
		})
		return err
	})
}

// dashboardQueries returns the queries of docs/deploy/grafana.json, with values for its variables.
func dashboardQueries(t *testing.T) (queries []string) {
	t.Helper()
	data, err := os.ReadFile("../docs/deploy/grafana.json")
	must(t, err)
	var board struct {
		Title  string
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct {
				Expr, RefID string
				Datasource  struct{ Type, UID string }
			}
		}
	}
	must(t, json.Unmarshal(data, &board))
	taken := map[[2]int]string{}
	for _, p := range board.Panels {
		if len(p.Targets) == 0 && p.Type != "row" {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if taken[at] != "" || at[0] >= 24 {
					t.Fatalf("panel %q is over panel %q, or too wide", p.Title, taken[at])
				}
				taken[at] = p.Title
			}
		}
		for _, q := range p.Targets {
			if q.Datasource.Type != "prometheus" || q.Datasource.UID != "${datasource}" {
				t.Errorf("panel %q: data source %+v", p.Title, q.Datasource)
			}
			queries = append(queries, strings.NewReplacer("$__rate_interval", "3s", "$instance", ".*").Replace(q.Expr))
		}
	}
	if len(queries) < 20 {
		t.Fatalf("only %d queries", len(queries))
	}
	return queries
}

// prometheus is a running server.
type prometheus struct{ addr string }

// startPrometheus starts a Prometheus that scrapes a target; it ends with the test.
func startPrometheus(t *testing.T, target string) *prometheus {
	t.Helper()
	dir := mnt.TempDir(t)
	const host = "127.0.0.1"
	port, err := kit.FreePort(host)
	must(t, err)
	p := &prometheus{addr: net.JoinHostPort(host, strconv.Itoa(port))}
	config := fmt.Sprintf("global: {scrape_interval: 200ms, scrape_timeout: 200ms}\nscrape_configs:\n- job_name: hmcfs\n  static_configs: [{targets: [%q]}]\n", target)
	must(t, os.WriteFile(filepath.Join(dir, "config.yml"), []byte(config), 0o600))
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "config.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+p.addr, "--log.level=error")
	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // its data is removed
		_ = cmd.Wait()
		if data, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("prometheus:\n%s", data)
		}
		must(t, log.Close())
	})
	return p
}

// hasValue returns an error unless a query has a result, and each value of it is a number.
func (p *prometheus) hasValue(t *testing.T, query string) error {
	t.Helper()
	resp, err := http.Get("http://" + p.addr + "/api/v1/query?" + url.Values{"query": {query}}.Encode())
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it has been read
	var got struct {
		Status, Error string
		Data          struct{ Result []struct{ Value [2]any } }
	}
	if err = json.NewDecoder(resp.Body).Decode(&got); err != nil {
		return err
	}
	if got.Status == "error" {
		t.Fatalf("%s: %s", query, got.Error)
	}
	if !slices.ContainsFunc(got.Data.Result, func(r struct{ Value [2]any }) bool { return r.Value[1] != "NaN" }) {
		return fmt.Errorf("%s: no value in %+v", query, got.Data.Result)
	}
	return nil
}
