package tests

import (
	"fmt"
	"os"
	"testing"

	"github.com/hmcfs/hmcfs/objects/adminapi"
	"github.com/hmcfs/hmcfs/objects/hetero"
	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// The memory of a rank of these tests: many blobs, of which a slow device copies the first
// long before the last.
const (
	rankSize  = 2 << 20
	rankBlobs = 16
)

// slowKeys mounts devices that need about two seconds for a rank's memory, if it is a file.
func slowKeys(t *testing.T) *mnt.M {
	t.Helper()
	kit.Check(t)
	return mnt.Mount(t, mnt.Options{Devices: []string{
		"host,size=64MiB",
		"sim:0,size=64MiB,bandwidth=1MB/s,copybandwidth=1MB/s", "sim:1,size=64MiB,bandwidth=1MB/s,copybandwidth=1MB/s",
	}})
}

// onPairs runs a test with publisher and subscriber on one device, and on two.
func onPairs(t *testing.T, fn func(t *testing.T, m *mnt.M, from, to string)) {
	t.Helper()
	m := slowKeys(t)
	for _, to := range []string{"sim0", "sim1"} {
		t.Run("sim0 to "+to, func(t *testing.T) { fn(t, m, "sim0", to) })
	}
}

// inTheMiddle returns when the first bytes of a copy have arrived.
func inTheMiddle(t *testing.T, m *mnt.M, before uint64) {
	t.Helper()
	kit.Eventually(t, mntPatience, func() bool { return bytesMoved(m) > before })
}

// wantNothingPublished waits for a publication to be removed.
func wantNothingPublished(t *testing.T, m *mnt.M, key string) {
	t.Helper()
	kit.Eventually(t, mntPatience, func() error {
		if _, err := os.Lstat(m.Path("publish", key)); !os.IsNotExist(err) {
			return fmt.Errorf("publish/%s: %w", key, err)
		}
		return nil
	})
}

// A publisher that is killed, at any stage, removes its publication. A subscriber that waits
// for the key gets the next one.
func TestPublisherKilled(t *testing.T) {
	onPairs(t, func(t *testing.T, m *mnt.M, from, to string) {
		sub := startRank(t, m, 0, to, 9, rankSize)
		t.Run("before the answer", func(t *testing.T) {
			pub := startRank(t, m, 0, from, 1, rankSize)
			pub.order(adminapi.VerbPublish, "before", rankBlobs)
			pub.kill()
			wantNothingPublished(t, m, "before")
		})
		t.Run("before anybody subscribes", func(t *testing.T) {
			pub := startRank(t, m, 0, from, 1, rankSize)
			pub.begin(adminapi.VerbPublish, "unseen")
			_, err := os.Stat(m.Path("publish", "unseen"))
			must(t, err)
			pub.kill()
			wantNothingPublished(t, m, "unseen")
		})
		t.Run("while somebody waits", func(t *testing.T) {
			sub.t = t
			sub.begin(adminapi.VerbSubscribe, "next")
			first, second := startRank(t, m, 0, from, 1, rankSize), startRank(t, m, 0, from, 2, rankSize)
			// It has another key than the one that the subscriber waits for.
			first.begin(adminapi.VerbPublish, "other")
			first.kill()
			second.begin(adminapi.VerbPublish, "next")
			second.hears("next", "")
			sub.hears("next", "")
			sub.has(2, rankBlobs)
		})
		t.Run("in the middle", func(t *testing.T) {
			pub, slow := startRank(t, m, 0, from, 3, rankSize), startFileRank(t, m, to, rankSize)
			pub.begin(adminapi.VerbPublish, "middle")
			before := bytesMoved(m)
			slow.begin(adminapi.VerbSubscribe, "middle")
			inTheMiddle(t, m, before)
			pub.kill()
			slow.hears("middle", "owner_gone")
			wantNothingPublished(t, m, "middle")
		})
		// Nothing is left of them.
		sub.t = t
		again := startRank(t, m, 0, from, 4, rankSize)
		again.begin(adminapi.VerbPublish, "middle")
		sub.begin(adminapi.VerbSubscribe, "middle")
		sub.hears("middle", "")
		again.hears("middle", "")
		sub.has(4, rankBlobs)
	})
}

// A subscriber that is killed, at any stage, has either received everything, or consumed
// nothing.
func TestSubscriberKilled(t *testing.T) {
	onPairs(t, func(t *testing.T, m *mnt.M, from, to string) {
		pub := startRank(t, m, 0, from, 1, rankSize)
		t.Run("while it waits", func(t *testing.T) {
			pub.t = t
			first := startRank(t, m, 0, to, 9, rankSize)
			first.do(adminapi.VerbMSet, "alive")
			first.begin(adminapi.VerbSubscribe, "waits")
			first.kill()
			// Until the daemon detects its end, the publication could still be assigned to it;
			// the loss of its keys shows that the daemon has.
			kit.Eventually(t, mntPatience, func() error {
				keys, err := m.Client().Keys(t.Context(), "alive", false)
				if err == nil && (len(keys) != 1 || keys[0].State != "lost") {
					err = fmt.Errorf("the killed one has %+v", keys)
				}
				return err
			})
			pub.begin(adminapi.VerbPublish, "waits")
			wantReceived(t, m, pub, to, "waits")
			first.has(9, rankBlobs)
		})
		t.Run("in the middle", func(t *testing.T) {
			pub.t = t
			first := startFileRank(t, m, to, rankSize)
			pub.begin(adminapi.VerbPublish, "middle")
			before := bytesMoved(m)
			first.begin(adminapi.VerbSubscribe, "middle")
			inTheMiddle(t, m, before)
			first.kill()
			wantReceived(t, m, pub, to, "middle")
		})
		t.Run("behind the last byte", func(t *testing.T) {
			pub.t = t
			first := startRank(t, m, 0, to, 9, rankSize)
			pub.begin(adminapi.VerbPublish, "done")
			first.begin(adminapi.VerbSubscribe, "done")
			first.hears("done", "")
			first.kill()
			pub.hears("done", "")
			first.has(1, rankBlobs)
			wantNothingPublished(t, m, "done")
		})
	})
}

// wantReceived checks that a rank's publication is complete: another rank receives it.
func wantReceived(t *testing.T, m *mnt.M, pub *rank, to, key string) {
	t.Helper()
	sub := startRank(t, m, 0, to, 8, rankSize)
	sub.begin(adminapi.VerbSubscribe, key)
	sub.hears(key, "")
	sub.has(1, rankBlobs)
	pub.hears(key, "")
	wantNothingPublished(t, m, key)
}

// Whenever a subscriber is killed, its publisher is notified once: of the subscriber that has
// all bytes, dead or alive.
func TestSubscriberKilledAtAnyTime(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	for i := range kit.Rounds(4, 4, 24) {
		key := fmt.Sprintf("k%d", i)
		pub := startRank(t, m, 0, "sim0", uint64(100+i), rankSize)
		first, second := startRank(t, m, 0, "sim1", 9, rankSize), startRank(t, m, 0, "sim1", 8, rankSize)
		pub.begin(adminapi.VerbPublish, key)
		first.order(adminapi.VerbSubscribe, key, rankBlobs)
		if i%2 == 0 {
			first.hear() // that it has started
		}
		first.kill()
		second.begin(adminapi.VerbSubscribe, key)
		pub.hears(key, "")
		got, gotToo := first.diff(uint64(100+i), rankBlobs) < 0, second.diff(uint64(100+i), rankBlobs) < 0
		if !got && !gotToo {
			t.Errorf("round %d: nobody has it", i)
		}
		if !gotToo {
			second.kill() // it waits for the publication that the first one has received
			continue
		}
		second.hears(key, "")
	}
}

// Keys that a process has set are lost when it is killed, unless a replica takes over.
func TestSetterKilled(t *testing.T) {
	kit.Check(t)
	m := mnt.Mount(t, mnt.Options{})
	set, reader := startRank(t, m, 0, "sim0", 1, rankSize), startRank(t, m, 0, "sim1", 2, rankSize)
	last := startRank(t, m, 0, "sim0", 3, rankSize)
	set.do(adminapi.VerbMSet, "lost")
	set.do(adminapi.VerbDelete, "lost")
	set.do(adminapi.VerbMSet, "lost")
	reader.send(adminapi.VerbMGet, adminapi.Call{Keys: []string{"lost"}, Lists: []hetero.DeviceBlobList{reader.list(1)}})
	reader.hears("lost", "")
	reader.has(1, 1)
	last.fill(4)
	last.do(adminapi.VerbMSet, "kept")
	reader.send(adminapi.VerbMGet, adminapi.Call{Keys: []string{"kept"}, Lists: []hetero.DeviceBlobList{reader.list(1)}, Replica: true})
	reader.hears("kept", "")
	set.kill()
	last.kill()
	third := startRank(t, m, 0, "sim1", 5, rankSize)
	kit.Eventually(t, mntPatience, func() bool {
		third.order(adminapi.VerbMGet, "lost", 1)
		return third.hear().Code == "lost"
	})
	third.do(adminapi.VerbMGet, "kept")
	third.has(4, 1)
	// A lost key can be set again.
	third.do(adminapi.VerbMSet, "lost")
	reader.do(adminapi.VerbDelete, "kept")
}
