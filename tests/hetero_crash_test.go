package tests

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// offerSize is the size of the publications in these rounds, readPiece the maximum that one
// read of cat transfers.
const (
	offerSize = rankSize
	readPiece = 128 << 10
)

// The daemon is killed somewhere between the publishing of a host file and its consumption:
// the file is either delivered or still published, complete, and never both.
func TestDaemonKilledBetweenReceiveAndDelete(t *testing.T) {
	kit.Check(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	m := mnt.Mount(t, mnt.Options{})
	for i := range kit.Rounds(4, 4, 24) {
		key := fmt.Sprintf("k%d", i)
		create(t, m.Path("host", key), uint64(i), offerSize)
		must(t, os.Rename(m.Path("host", key), m.Path("publish", key)))
		receive := receiveByRank
		if i%2 == 1 {
			receive = receiveByCat
		}
		// Within this time some have received it, and others have not started.
		pause := time.Duration(rng.IntN(6000)) * time.Microsecond
		delivered := receive(t, m, key, uint64(i), func() {
			<-time.After(pause)
			m.Kill()
		})
		m.Start()
		t.Logf("round %d: killed after %v, delivered: %v", i, pause, delivered)
		there := wholeOrGone(t, m.Path("publish", key), uint64(i))
		if there == delivered {
			t.Errorf("round %d: it is delivered: %v; it is there: %v", i, delivered, there)
		}
		if there {
			must(t, os.Remove(m.Path("publish", key)))
		}
		if t.Failed() {
			t.Fatalf("in round %d", i)
		}
	}
}

// wholeOrGone reports whether a publication exists, and checks that it is then complete.
func wholeOrGone(t *testing.T, path string, seed uint64) bool {
	t.Helper()
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return false
	}
	must(t, err)
	defer func() { must(t, f.Close()) }()
	// Reading all but the last byte does not consume it.
	got := make([]byte, offerSize-1)
	_, err = f.ReadAt(got, 0)
	must(t, err)
	if at := kit.DiffAt(got, seed, 0); at >= 0 {
		t.Errorf("byte %d of what is there is wrong", at)
	}
	st, err := f.Stat()
	must(t, err)
	if st.Size() != offerSize {
		t.Errorf("%d bytes are there", st.Size())
	}
	return true
}

// receiveByRank subscribes in another process while kill is called, and reports whether that
// process received the object: it may have all bytes before it is notified.
func receiveByRank(t *testing.T, m *mnt.M, key string, seed uint64, kill func()) bool {
	t.Helper()
	sub := startRank(t, m, 0, "host", 77, offerSize)
	sub.send(adminapi.VerbSubscribe, adminapi.Call{Keys: []string{key}, Lists: sub.whole(), Timeout: adminapi.Duration(mntPatience)})
	kill()
	told := sub.ends().Code == ""
	got := make([]byte, offerSize)
	_, err := sub.memory.ReadAt(got, 0)
	must(t, err)
	whole := kit.DiffAt(got, seed, 0) < 0
	if told && !whole {
		t.Error("it is told to have bytes that it has not")
	}
	// The bytes arrive before the removal: a process that was not notified may have received
	// it, or not.
	if !told && whole {
		return !exists(t, m, key)
	}
	return told
}

// exists reports whether a publication exists in the next run.
func exists(t *testing.T, m *mnt.M, key string) bool {
	t.Helper()
	m.Start()
	_, err := os.Lstat(m.Path("publish", key))
	there := err == nil
	m.Kill()
	return there
}

// receiveByCat reads in another process while kill is called, and reports whether that process
// received the object. The last read claims it, and the daemon may be killed before it
// answers.
func receiveByCat(t *testing.T, m *mnt.M, key string, seed uint64, kill func()) bool {
	t.Helper()
	cmd := exec.Command("cat", filepath.Join(m.Dir, "publish", key))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var got bytes.Buffer
	cmd.Stdout = &got
	must(t, cmd.Start())
	kill()
	err := cmd.Wait()
	if at := kit.DiffAt(got.Bytes(), seed, 0); at >= 0 {
		t.Errorf("byte %d of cat's is wrong", at)
	}
	if got.Len() == offerSize {
		return true
	}
	if err == nil {
		t.Errorf("cat ends well with %d bytes", got.Len())
	}
	if got.Len() >= offerSize-readPiece {
		return !exists(t, m, key)
	}
	return false
}
