package daemon

import (
	"net"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestTell(t *testing.T) {
	for _, path := range []string{t.TempDir() + "/notify", "@hmcfs-test-" + strings.ReplaceAll(t.TempDir(), "/", "-")} {
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		d := &Daemon{opts: Options{NotifySocket: path}, log: zap.NewNop()}
		d.tell("READY=1", "STATUS=here")
		buf := make([]byte, 100)
		n, err := l.Read(buf)
		if got := string(buf[:n]); err != nil || got != "READY=1\nSTATUS=here" {
			t.Errorf("%s: told %q, %v", path, got, err)
		}
		if err = l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTellNobody checks that a daemon does not depend on a service manager.
func TestTellNobody(t *testing.T) {
	core, logged := observer.New(zap.WarnLevel)
	d := &Daemon{log: zap.New(core)}
	d.tell("READY=1")
	if logged.Len() != 0 {
		t.Errorf("without a service manager: %v", logged.All())
	}
	d.opts.NotifySocket = t.TempDir() + "/none"
	d.tell("READY=1")
	if logged.Len() != 1 {
		t.Errorf("with one that is gone: %v", logged.All())
	}
}
