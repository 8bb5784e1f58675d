package tests

import (
	"slices"
	"testing"
	"time"

	"github.com/hmcfs/hmcfs/objects/client"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/measure"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// sessionMemory bounds the memory of the daemon for one idle session, in bytes.
const sessionMemory = 96 << 10

// sessionFiles is the number of descriptors that the daemon has for a session: the connection, and its end of the channel. otherFiles
// bounds those that it opens meanwhile for something else.
const sessionFiles, otherFiles = 2, 20

// clientFiles is the number of descriptors that a client has for a session whose connection it waits at: an epoll for what arrives,
// and one for the end. spareFiles are for all else that the test opens.
const clientFiles, spareFiles = 4, 1000

// TestManySessions opens sessions, makes a call in each, and ends them all: the daemon answers
// each, needs little memory for those that wait, and keeps nothing of them.
func TestManySessions(t *testing.T) {
	kit.Check(t)
	n := kit.Rounds(200, 1000, 10_000)
	if most := int(kit.AllowDescriptors(t, uint64(n*clientFiles+spareFiles))); most < n*clientFiles+spareFiles {
		n = (most - spareFiles) / clientFiles
		t.Logf("%d sessions, since a process may open only %d files here (ulimit -n)", n, most)
	}
	m := mnt.Mount(t, mnt.Options{})
	pid := m.PID()
	open := func(n int) (grown int64) {
		files := daemonFiles(t, m)
		sessions := make([]*client.Session, n)
		before := ownBytes(t, pid)
		must(t, measure.AtOnce(4, func(part int) (err error) {
			for i := part; i < n && err == nil; i += 4 {
				if sessions[i], err = client.OpenSession(t.Context(), socketOf(m)); err != nil {
					return err
				}
				_, err = sessions[i].Exist(t.Context(), []string{"none"})
			}
			return err
		}))
		grown = ownBytes(t, pid) - before
		if more := daemonFiles(t, m) - files; more > n*sessionFiles+otherFiles {
			t.Errorf("%d sessions use %d descriptors of the daemon, the bound is %d for each, and %d", n, more, sessionFiles, otherFiles)
		}
		must(t, measure.AtOnce(4, func(part int) error {
			for s := range slices.Values(sessions[part*n/4 : (part+1)*n/4]) {
				if err := s.Close(); err != nil {
					return err
				}
			}
			return nil
		}))
		return grown
	}
	open(10) // what the first sessions allocate stays
	before := daemonFiles(t, m)
	// The race detector has memory of its own for each piece.
	if grown := open(n); grown > int64(n)*sessionMemory && !kit.Race() {
		t.Errorf("%d sessions use %d bytes, the bound is %d for each", n, grown, sessionMemory)
	}
	kit.Eventually(t, 10*time.Second, func() bool { return daemonFiles(t, m) <= before })
}
