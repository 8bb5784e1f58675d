package tests

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

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

// TestAccessLog sets and reads keys through a session, and compares the bytes, the access log and
// the metrics.
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
	data, err := os.ReadFile(log)
	must(t, err)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	want := []map[string]any{
		{"verb": "d2h", "keys": 1.0, "failed": 0.0, "bytes": 65536.0, "outcome": "ok"},
		{"verb": "mget", "keys": 1.0, "failed": 0.0, "bytes": 65536.0, "outcome": "ok"},
		{"verb": "mget", "keys": 1.0, "failed": 1.0, "bytes": 65536.0, "outcome": "ok"},
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines: %s", len(lines), data)
	}
	for i, line := range lines {
		var got map[string]any
		must(t, json.Unmarshal([]byte(line), &got))
		want[i]["uid"], want[i]["pid"] = float64(os.Getuid()), float64(os.Getpid())
		for name, value := range want[i] {
			if got[name] != value {
				t.Errorf("line %d: %s is %v, want %v: %s", i, name, got[name], value, line)
			}
		}
	}
	text, err := m.Client().Metrics(t.Context())
	must(t, err)
	for _, line := range []string{
		`hmcfs_session_call_seconds_count{verb="mget"} 2`, `hmcfs_session_call_seconds_count{verb="d2h"} 1`,
		`hmcfs_session_keys_total{verb="mget"} 2`, `hmcfs_session_keys_failed_total{verb="mget"} 1`,
		`hmcfs_session_calls_refused_total{verb="mget"} 0`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	if st, err := os.Stat(log); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}
