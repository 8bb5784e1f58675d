package tests

import (
	"bufio"
	"fmt"
	"os"
	"testing"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// hmcfs mget --replica preserves the keys of a process when that is killed, until the user
// ends the command.
func TestReplicaOfTheShell(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	set, reader := startRank(t, m, 0, "sim0", 1, rankSize), startRank(t, m, 0, "sim1", 2, rankSize)
	set.do(adminapi.VerbMSet, "w")
	holder := m.Command("mget", "--mount", m.Dir, "--replica", "--timeout", "30s", "w")
	out, err := holder.StdoutPipe()
	must(t, err)
	must(t, holder.Start())
	t.Cleanup(func() { _ = holder.Process.Kill() }) // it may have ended
	line, err := bufio.NewReader(out).ReadString('\n')
	if want := fmt.Sprintf("w: replica of %d bytes\n", rankSize-blobGap); err != nil || line != want {
		t.Fatalf("%q, %v, want %q", line, err, want)
	}
	set.kill()
	waitKey(t, m, "w", "host", "bound")
	reader.do(adminapi.VerbMGet, "w")
	reader.has(1, 1)
	must(t, holder.Process.Signal(os.Interrupt))
	if err = holder.Wait(); holder.ProcessState.ExitCode() != 130 {
		t.Errorf("ended by ^C: %v", err)
	}
	waitKey(t, m, "w", "host", "lost")
	for _, flag := range []string{"--offset=1", "--length=1", "--dir=."} {
		if _, err = m.Run("mget", "--mount", m.Dir, "--replica", flag, "w"); err == nil {
			t.Errorf("%s has no meaning with --replica", flag)
		}
	}
	if _, err = m.Run("mget", "--mount", m.Dir, "--replica", "none"); err == nil {
		t.Error("a replica of nothing")
	}
	_, err = m.Run("del", "--mount", m.Dir, "w")
	must(t, err)
}

// waitKey waits until a key is on a device, in a state.
func waitKey(t *testing.T, m *mnt.M, key, device, state string) {
	t.Helper()
	kit.Eventually(t, mntPatience, func() error {
		keys, err := m.Client().Keys(t.Context(), key, false)
		if err == nil && (len(keys) != 1 || string(keys[0].Device) != device || keys[0].State != state) {
			err = fmt.Errorf("%+v, want %s on %s", keys, state, device)
		}
		return err
	})
}
