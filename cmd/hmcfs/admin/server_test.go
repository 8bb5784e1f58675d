package admin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/admin"
	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/fs"
	"github.com/hmcfs/hmcfs/metadata"
	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/objects"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/transport"
)

const owner = 1234

// backend returns what the test has set.
type backend struct {
	umountErr error
	forgotten members.Name
	fsck      adminapi.FsckRequest
	alone     bool
}

func (b *backend) Version() adminapi.Version { return adminapi.Version{Version: "v1"} }

func (b *backend) Status(_ context.Context, count bool) (adminapi.Status, error) {
	s := adminapi.Status{Version: "v1", PID: 42, Devices: []adminapi.Device{{Name: "sim0"}}}
	if count {
		n := 7
		s.Devices[0].Objects = &n
	}
	return s, nil
}

func (b *backend) Object(_ context.Context, ino metadata.Ino) (adminapi.Object, error) {
	if ino != 1024 {
		return adminapi.Object{}, fmt.Errorf("inode %d: %w", ino, admin.ErrNotFound)
	}
	return adminapi.Object{Ino: ino, Path: "sim0/a", Extents: []adminapi.Extent{{Len: 4096}}}, nil
}

func (b *backend) Config() []adminapi.Setting {
	return []adminapi.Setting{{Name: "slots", Value: 4, Source: "default"}}
}

func (b *backend) Cluster() (adminapi.Cluster, error) {
	if b.alone {
		return adminapi.Cluster{}, fmt.Errorf("no other machines: %w", admin.ErrNotFound)
	}
	return adminapi.Cluster{
		Name: "lab", Self: members.Record{Name: "a", Epoch: 7},
		State:   members.State{Backend: "etcd", UnreachableSince: time.Now().Add(-time.Hour)},
		Nodes:   []members.Peer{{Record: members.Record{Name: "b"}, Connected: true, Transport: "tcp"}, {Record: members.Record{Name: "c"}}},
		Traffic: members.Traffic{Questions: 21, Answers: 22, Failures: 23, BytesIn: 24, BytesOut: 25, InvalidationsOut: 26, InvalidationsIn: 27},
	}, nil
}

func (b *backend) Forget(_ context.Context, name members.Name) error {
	if name == "b" {
		return fmt.Errorf("node %s is connected: %w", name, admin.ErrBusy)
	}
	if name != "c" {
		return fmt.Errorf("node %q: %w", name, admin.ErrNotFound)
	}
	b.forgotten = name
	return nil
}

func (b *backend) Fsck(_ context.Context, r adminapi.FsckRequest) (adminapi.FsckReport, error) {
	b.fsck = r
	return adminapi.FsckReport{Checked: 3}, nil
}

func (b *backend) Umount(context.Context, adminapi.UmountRequest) (adminapi.UmountAnswer, error) {
	return adminapi.UmountAnswer{PID: 42, Kept: true}, b.umountErr
}

func (b *backend) Upgrade(context.Context, adminapi.UpgradeRequest) (adminapi.UpgradeAnswer, error) {
	return adminapi.UpgradeAnswer{PID: 42}, nil
}

// serve starts a server whose peers all are of one user.
func serve(t *testing.T, b *backend, uid int, debug bool) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "admin.sock")
	m := admin.Metrics{
		Version: "v1", Cluster: b.Cluster,
		Transfers: func() transport.Stats {
			return transport.Stats{Registered: transport.RegisteredStats{Bytes: 7, Hits: 8, Failures: 9, DirectBytes: 10}, PinFailures: 11, Paths: []transport.PathStats{{
				Path: transport.PathH2D, Device: "sim0", Operations: 3, Bytes: 99, Errors: 1, Seconds: 0.5,
				Latency: []transport.Bucket{{LE: 0.1, Count: 2}, {LE: 1, Count: 3}},
			}}}
		},
		Devices: func(context.Context) ([]objects.DeviceStatus, error) {
			return []objects.DeviceStatus{{
				Info: devices.Info{Name: "sim0", Family: "sim"}, Epoch: 5,
				Usage: devices.Usage{Total: 10, Used: 4, Free: 6},
			}}, nil
		},
		Operations: func() []fs.OperationStats {
			return []fs.OperationStats{{Name: "read", Count: 8, Errors: 2, Seconds: 1}}
		},
	}
	s, err := admin.Listen(t.Context(), admin.Options{
		Socket: socket, Backend: b, Owner: owner, Gatherer: m.Registry(), Debug: debug,
		Peer: func(*net.UnixConn) (admin.Peer, error) {
			if uid < 0 {
				return admin.Peer{}, errors.New("unknown")
			}
			return admin.Peer{UID: uid}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return socket
}

func TestOnlyRootAndOwnerAreAnswered(t *testing.T) {
	for _, c := range []struct {
		uid       int
		forbidden bool
	}{{0, false}, {owner, false}, {owner + 1, true}, {-1, true}} {
		socket := serve(t, &backend{}, c.uid, true)
		_, err := client.New(socket).Version(t.Context())
		if client.IsForbidden(err) != c.forbidden {
			t.Errorf("user %d: %v", c.uid, err)
		}
		for _, path := range []string{"/metrics", "/debug/pprof/", "/", "/v1/status"} {
			code, _ := get(t, socket, http.MethodGet, path, "")
			if (code == http.StatusForbidden) != c.forbidden {
				t.Errorf("user %d, %s: %d", c.uid, path, code)
			}
		}
	}
}

func TestKernelTellsThePeer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	s, err := admin.Listen(t.Context(), admin.Options{Socket: socket, Backend: &backend{}, Owner: os.Geteuid()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(context.Background()) }()
	if _, err := client.New(socket).Version(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAnswers(t *testing.T) {
	b := &backend{}
	c := client.New(serve(t, b, 0, false))
	ctx := t.Context()
	if s, err := c.Status(ctx, false); err != nil || s.PID != 42 || s.Devices[0].Objects != nil {
		t.Errorf("Status: %+v, %v", s, err)
	}
	if s, err := c.Status(ctx, true); err != nil || *s.Devices[0].Objects != 7 {
		t.Errorf("Status with a count: %+v, %v", s, err)
	}
	if o, err := c.Object(ctx, 1024); err != nil || len(o.Extents) != 1 {
		t.Errorf("Object: %+v, %v", o, err)
	}
	if _, err := c.Object(ctx, 5); !client.IsNotFound(err) || err.Error() != "inode 5: no such object" {
		t.Errorf("Object that is not there: %v", err)
	}
	if s, err := c.Config(ctx); err != nil || s[0].Name != "slots" {
		t.Errorf("Config: %+v, %v", s, err)
	}
	if k, err := c.Cluster(ctx); err != nil || k.Self.Name != "a" || len(k.Nodes) != 2 || !k.Nodes[0].Connected {
		t.Errorf("Cluster: %+v, %v", k, err)
	}
	if k, err := c.Forget(ctx, "c"); err != nil || b.forgotten != "c" || k.Name != "lab" {
		t.Errorf("forget: %+v, %q, %v", k, b.forgotten, err)
	}
	if _, err := c.Forget(ctx, "b"); err == nil || err.Error() != "node b is connected: busy" {
		t.Errorf("forget a node that is there: %v", err)
	}
	if _, err := c.Forget(ctx, "z"); !client.IsNotFound(err) {
		t.Errorf("forget a node that is not there: %v", err)
	}
	b.alone = true
	if _, err := c.Cluster(ctx); !client.IsNotFound(err) {
		t.Errorf("Cluster of a mount of its own: %v", err)
	}
	if f, err := c.Fsck(ctx, adminapi.FsckRequest{RemoveLost: true}); err != nil || f.Checked != 3 || !b.fsck.RemoveLost {
		t.Errorf("Fsck: %+v, %v", f, err)
	}
	if a, err := c.Umount(ctx, adminapi.UmountRequest{}); err != nil || !a.Kept {
		t.Errorf("Umount: %+v, %v", a, err)
	}
	b.umountErr = fmt.Errorf("/mnt: %w", admin.ErrBusy)
	if _, err := c.Umount(ctx, adminapi.UmountRequest{}); !client.IsBusy(err) {
		t.Errorf("Umount of a busy mount: %v", err)
	}
	b.umountErr = errors.New("a cause")
	if _, err := c.Umount(ctx, adminapi.UmountRequest{}); err == nil || client.IsBusy(err) || err.Error() != "a cause" {
		t.Errorf("Umount that fails: %v", err)
	}
}

func TestBadRequests(t *testing.T) {
	socket := serve(t, &backend{}, 0, false)
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"GET", "/v1/object?ino=x", "", 400},
		{"GET", "/v1/object", "", 400},
		{"GET", "/v1/object?ino=-1", "", 400},
		{"POST", "/v1/fsck", "{", 400},
		{"POST", "/v1/fsck", `{"remove_los": true}`, 400},
		{"POST", "/v1/fsck", "", 200},
		{"GET", "/v1/nothing", "", 404},
		{"GET", "/v1/umount", "", 404},
		{"GET", "/debug/pprof/", "", 404},
	} {
		code, body := get(t, socket, c.method, c.path, c.body)
		if code != c.want {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, code, body, c.want)
		}
		if code != 200 && !strings.Contains(body, `"error":`) {
			t.Errorf("%s %s: the body is no Error: %s", c.method, c.path, body)
		}
	}
}

func TestMetrics(t *testing.T) {
	text, err := client.New(serve(t, &backend{}, 0, false)).Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`hmcfs_build_info{version="v1"} 1`,
		`hmcfs_transfer_bytes_total{device="sim0",path="h2d"} 99`,
		`hmcfs_transfer_errors_total{device="sim0",path="h2d"} 1`,
		`hmcfs_transfer_seconds_bucket{device="sim0",path="h2d",le="0.1"} 2`,
		`hmcfs_transfer_seconds_bucket{device="sim0",path="h2d",le="+Inf"} 3`,
		`hmcfs_device_memory_used_bytes{device="sim0",family="sim"} 4`,
		`hmcfs_fs_errors_total{operation="read"} 2`,
		`hmcfs_registered_bytes 7`, `hmcfs_registered_transfer_bytes_total 10`, `hmcfs_pin_failures_total 11`,
		`hmcfs_registered_pieces_total{outcome="hit"} 8`, `hmcfs_registered_pieces_total{outcome="failed"} 9`,
		`process_open_fds`, `go_goroutines`,
		`hmcfs_cluster_info{backend="etcd",cluster="lab",epoch="7",node="a"} 1`,
		`hmcfs_cluster_nodes 2`, `hmcfs_cluster_node_connected{node="b"} 1`, `hmcfs_cluster_node_connected{node="c"} 0`,
		`hmcfs_cluster_service_unreachable_seconds 36`, `hmcfs_cluster_questions_total 21`, `hmcfs_cluster_answers_total 22`,
		`hmcfs_cluster_failures_total 23`, `hmcfs_cluster_received_bytes_total 24`, `hmcfs_cluster_sent_bytes_total 25`,
		`hmcfs_cluster_invalidations_sent_total 26`, `hmcfs_cluster_invalidations_received_total 27`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	text, err = client.New(serve(t, &backend{alone: true}, 0, false)).Metrics(t.Context())
	if err != nil || strings.Contains(text, "hmcfs_cluster") {
		t.Errorf("a mount of its own has metrics of a cluster: %v", err)
	}
}

func TestNoDaemon(t *testing.T) {
	_, err := client.New(filepath.Join(t.TempDir(), "none")).Version(t.Context())
	if !errors.Is(err, client.ErrNoDaemon) {
		t.Errorf("error %v", err)
	}
}

// get makes a raw request.
func get(t *testing.T, socket, method, path, body string) (code int, text string) {
	t.Helper()
	h := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://hmcfs"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := h.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}
