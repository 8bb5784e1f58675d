package tests

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/objects/share"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// sharedMemory is memory of this process that a session has registered.
type sharedMemory struct {
	bytes []byte
	id    hetero.MemoryID
}

func registerMemory(t *testing.T, s *client.Session, size int) sharedMemory {
	t.Helper()
	f := kit.Memfd(t, 0, size)
	data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	t.Cleanup(func() { _ = unix.Munmap(data) })
	first := 0
	id, err := s.PreRegister(t.Context(), hetero.Memory{
		Device: "host", Files: []*os.File{f},
		Share: &share.Memory{
			Family: "host", Size: devices.Size(size), PID: os.Getpid(),
			Pieces: []share.Piece{{Kind: devices.HandleMemfd, FD: &first, Size: devices.Size(size)}},
		},
	})
	must(t, err)
	return sharedMemory{data, id}
}

// list describes the first bytes of the memory.
func (m sharedMemory) list(size int) []hetero.DeviceBlobList {
	return []hetero.DeviceBlobList{{Device: "host", Blobs: []hetero.Blob{{Memory: m.id, Size: devices.Size(size)}}}}
}

// TestAccessLog sets and reads keys through a session, reads a file, lists the keys, and compares the
// bytes, the access log and the metrics.
func TestAccessLog(t *testing.T) {
	kit.Check(t)
	log := filepath.Join(t.TempDir(), "access.log")
	m := mnt.Mount(t, mnt.Options{Extra: []string{"--access-log", log}})
	s, err := client.OpenSession(t.Context(), socketOf(m))
	must(t, err)
	defer func() { must(t, s.Close()) }()
	const size = 64 << 10
	from, to := registerMemory(t, s, size), registerMemory(t, s, size)
	copy(from.bytes, kit.Bytes(1, 0, size))
	key := []string{"kv"}
	_, err = s.MSetD2H(t.Context(), key, from.list(size), hetero.SetOptions{})
	must(t, err)
	_, err = s.DevMGet(t.Context(), key, to.list(size), hetero.GetOptions{})
	must(t, err)
	if !bytes.Equal(to.bytes, kit.Bytes(1, 0, size)) {
		t.Error("other bytes arrived")
	}
	if _, err = s.DevMGet(t.Context(), []string{"none"}, to.list(size), hetero.GetOptions{}); err == nil {
		t.Error("a key that does not exist was read")
	}
	if err = s.Unregister(t.Context(), from.id+to.id); err == nil {
		t.Error("memory that does not exist was unregistered")
	}
	must(t, os.WriteFile(m.Path("host/f"), kit.Bytes(2, 0, 5000), 0o600))
	if data, rerr := s.Files().ReadFile("host/f"); rerr != nil || !bytes.Equal(data, kit.Bytes(2, 0, 5000)) {
		t.Errorf("read %d bytes, %v", len(data), rerr)
	}
	if keys, kerr := m.Client().Keys(t.Context(), "k", false); kerr != nil || len(keys) != 1 {
		t.Errorf("keys %v, %v", keys, kerr)
	}
	got := accessLines(t, log)
	for i, want := range []map[string]any{
		{"verb": "register", "keys": 0.0, "failed": 0.0, "bytes": 0.0, "outcome": "ok"},
		{"verb": "register", "keys": 0.0, "failed": 0.0, "bytes": 0.0, "outcome": "ok"},
		{"verb": "d2h", "keys": 1.0, "failed": 0.0, "bytes": 65536.0, "outcome": "ok"},
		{"verb": "mget", "keys": 1.0, "failed": 0.0, "bytes": 65536.0, "outcome": "ok"},
		{"verb": "mget", "keys": 1.0, "failed": 1.0, "bytes": 65536.0, "outcome": "ok"},
		{"verb": "unregister", "keys": 0.0, "failed": 0.0, "bytes": 0.0, "outcome": "not_found"},
		{"verb": "file-open", "outcome": "ok"},
		{"verb": "file-read", "keys": 0.0, "failed": 0.0, "bytes": 5000.0, "outcome": "ok"},
		{"verb": "keys", "keys": 1.0, "failed": 0.0, "bytes": 0.0, "outcome": "ok"},
	} {
		for len(got) > 0 && i > 6 && got[0]["verb"] != want["verb"] {
			got = got[1:] // the package reads a file with some more calls
		}
		if len(got) == 0 {
			t.Fatalf("there is no line %v", want)
		}
		want["uid"], want["pid"] = float64(os.Getuid()), float64(os.Getpid())
		for name, value := range want {
			if got[0][name] != value {
				t.Errorf("line %d: %s is %v, want %v: %v", i, name, got[0][name], value, got[0])
			}
		}
		got = got[1:]
	}
	text, err := m.Client().Metrics(t.Context())
	must(t, err)
	for _, line := range []string{
		`hmcfs_session_call_seconds_count{verb="mget"} 2`, `hmcfs_session_call_seconds_count{verb="d2h"} 1`,
		`hmcfs_session_keys_total{verb="mget"} 2`, `hmcfs_session_keys_failed_total{verb="mget"} 1`,
		`hmcfs_session_calls_refused_total{verb="mget"} 0`,
		`hmcfs_session_calls_refused_total{verb="unregister"} 1`, `hmcfs_session_call_seconds_count{verb="register"} 2`,
		`hmcfs_session_call_seconds_count{verb="keys"} 1`, `hmcfs_session_keys_total{verb="keys"} 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	if st, err := os.Stat(log); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

// accessLines returns the lines of an access log, each of which has the time and the duration of a call.
func accessLines(t *testing.T, name string) (out []map[string]any) {
	t.Helper()
	data, err := os.ReadFile(name)
	must(t, err)
	for line := range strings.Lines(string(data)) {
		var one map[string]any
		must(t, json.Unmarshal([]byte(line), &one))
		ts, _ := one["ts"].(string)
		if _, err = time.Parse(time.RFC3339Nano, ts); err != nil {
			t.Errorf("%v: %s", err, line)
		}
		if us, ok := one["us"].(float64); !ok || us < 0 || us != math.Trunc(us) {
			t.Errorf("it took %v: %s", one["us"], line)
		}
		out = append(out, one)
	}
	return out
}

// TestNoAccessLog makes a call, a request and a call on a file of a mount without the option: no file
// beside the mount names them.
func TestNoAccessLog(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	s, err := client.OpenSession(t.Context(), socketOf(m))
	must(t, err)
	defer func() { must(t, s.Close()) }()
	registerMemory(t, s, 4096)
	_, err = s.Exist(t.Context(), []string{"kv"})
	must(t, err)
	_, err = s.Files().Stat("host")
	must(t, err)
	must(t, filepath.WalkDir(filepath.Dir(m.Dir), func(name string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // the daemon replaces files meanwhile
			return nil
		case err != nil:
			return err
		case name == m.Dir:
			return fs.SkipDir
		case !e.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if bytes.Contains(data, []byte(`"verb":`)) {
			t.Errorf("%s has calls: %.200q", name, data)
		}
		return err
	}))
}
