package mnt

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/place"
	"github.com/hmcfs/hmcfs/fs"
	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/transport"
)

// Stats is the content of .hmcfs/stats.
type Stats struct {
	Transfers transport.Stats   `json:"transfers"`
	Devices   []adminapi.Device `json:"devices"`
	Memory    adminapi.Memory   `json:"memory"`
	Mount     fs.Status         `json:"mount"`
}

// Bytes returns the number of bytes that took a path, to distinguish device-to-device copies
// from others.
func (s Stats) Bytes(path string) uint64 {
	var n uint64
	for _, p := range s.Transfers.Paths {
		if string(p.Path) == path {
			n += uint64(p.Bytes)
		}
	}
	return n
}

// Status queries the daemon over its admin socket. A daemon that a holder has started again serves
// files a moment before it has that socket.
func (m *M) Status() (s adminapi.Status) {
	m.t.Helper()
	kit.Eventually(m.t, patience, func() (err error) {
		s, err = m.status()
		return err
	})
	return s
}

func (m *M) status() (adminapi.Status, error) { return m.Client().Status(m.t.Context(), true) }

// Client returns a client of the daemon's admin socket.
func (m *M) Client() *client.Client {
	return client.New(filepath.Join(m.RuntimeDir, "admin.sock"))
}

// Device returns the state of one device.
func (m *M) Device(name string) adminapi.Device {
	m.t.Helper()
	for _, d := range m.Status().Devices {
		if string(d.Name) == name {
			return d
		}
	}
	m.t.Fatalf("the mount has no device %s", name)
	return adminapi.Device{}
}

// AwaitUnused returns when no memory of a device is in use.
func (m *M) AwaitUnused(timeout time.Duration, device string) {
	m.t.Helper()
	kit.Eventually(m.t, timeout, func() error {
		if used := m.Device(device).Used; used != 0 {
			return inUseError{m: m, what: fmt.Sprintf("%v of %s", used, device)}
		}
		return nil
	})
}

// inUseError is the error of memory that should be free. It asks what has that memory once it is printed.
type inUseError struct {
	m    *M
	what string
}

func (e inUseError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s on %s is in use", e.what, e.m.Dir)
	for _, args := range [][]string{{"df", "--json", e.m.Dir}, {"ls-keys", "--json", "--mount", e.m.Dir}} {
		out, err := e.m.Run(args...)
		if err != nil {
			out = err.Error()
		}
		fmt.Fprintf(&text, "\n%s: %s", args[0], out)
	}
	return text.String()
}

// Stats reads .hmcfs/stats.
func (m *M) Stats() Stats {
	m.t.Helper()
	data, err := os.ReadFile(m.Path(".hmcfs", "stats"))
	if err != nil {
		m.t.Fatal(err)
	}
	var s Stats
	if err := json.Unmarshal(data, &s); err != nil {
		m.t.Fatalf("%s: %v\n%s", m.Path(".hmcfs", "stats"), err, data)
	}
	return s
}

// PID returns the daemon's process ID.
func (m *M) PID() int { return m.daemon.process.Pid }

// Living returns the process of the daemon that serves the mount now, which a holder may have
// started; 0 if there is none.
func (m *M) Living() int {
	who, living, err := place.ReadHolder(filepath.Join(m.RuntimeDir, "lock"))
	if err != nil || !living {
		return 0
	}
	return who.PID
}

// AwaitWritten returns when the daemon has written all changes of the records that its journal has.
func (m *M) AwaitWritten() {
	m.t.Helper()
	// The numbers of bytes in the two halves of the journal, in its first page; see badgerkv.
	const at, length = 192, 16
	kit.Eventually(m.t, time.Minute, func() error {
		journals, err := filepath.Glob(filepath.Join(m.RuntimeDir, "records-*.journal"))
		if err != nil || len(journals) != 1 {
			return fmt.Errorf("the journals are %q, %w", journals, err)
		}
		page, err := os.ReadFile(journals[0])
		if err != nil {
			return err
		}
		if unwritten := page[at:][:length]; !bytes.Equal(unwritten, make([]byte, length)) {
			return fmt.Errorf("the journal has %x", unwritten)
		}
		return nil
	})
}

// Command returns a command that runs hmcfs.
func (m *M) Command(args ...string) *exec.Cmd { return Itself(programName, args...) }

// Run runs hmcfs and returns its standard output. The error includes its standard error.
func (m *M) Run(args ...string) (string, error) {
	cmd := m.Command(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("hmcfs %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}
