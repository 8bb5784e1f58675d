package fs

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/hmcfs/hmcfs/metadata/members"
	"github.com/hmcfs/hmcfs/tests/clustertest"
)

// TestRemoteKeys: keys/ leads to objects on any node, lists all of them once and in order, and
// does not allow changing them.
func TestRemoteKeys(t *testing.T) {
	r := newRemoteRig(t, clustertest.Options{Names: []members.Name{"a", "b", "c"}})
	for i, name := range []members.Name{"a", "b", "c", "a", "b", "c"} {
		n := r.Node(name)
		ino := n.File("sim0", fmt.Sprintf("f%d", i), []byte("of "+string(name)))
		must(t, n.Store.SetXattr(t.Context(), ino, "user.hmc.key", fmt.Appendf(nil, "key%d", i), 0))
	}
	keys := r.dir(keysName)
	if got, want := r.listAll(keys), strings.Fields(". .. key0 key1 key2 key3 key4 key5"); !slices.Equal(got, want) {
		t.Errorf("keys/ holds %v, want %v", got, want)
	}
	for key, want := range map[string]string{"key0": "../sim0/f0", "key1": "../nodes/b/sim0/f1", "key5": "../nodes/c/sim0/f5"} {
		out := r.lookup(keys, key)
		h := header(out.NodeId)
		to, status := r.Readlink(nil, &h)
		if status != fuse.OK || string(to) != want || out.Size != uint64(len(want)) {
			t.Errorf("%s leads to %q of %d bytes, %v; want %q", key, to, out.Size, status, want)
		}
		if a := r.stat(out.NodeId); a.Mode != syscall.S_IFLNK|0o777 || a.Ino != out.NodeId {
			t.Errorf("%s has mode %o", key, a.Mode)
		}
	}
	for _, key := range []string{"key9", "no/key"} {
		_, status := r.find(keys, key)
		r.want(status, syscall.ENOENT)
	}
	h := header(keys)
	r.want(r.Unlink(nil, &h, "key1"), syscall.EPERM)
	r.remoteKeyGoes(keys)
}

// remoteKeyGoes: a link exists as long as its key, and its number until the kernel has
// forgotten it.
func (r *remoteRig) remoteKeyGoes(keys uint64) {
	r.t.Helper()
	link := r.lookup(keys, "key1").NodeId
	b := r.Node("b")
	must(r.t, b.Store.Unlink(r.t.Context(), b.Dir("sim0"), "f1"))
	r.want(r.GetAttr(nil, &fuse.GetAttrIn{InHeader: header(link)}, &fuse.AttrOut{}), syscall.ESTALE)
	_, status := r.find(keys, "key1")
	r.want(status, syscall.ENOENT)
	r.Forget(link, 100)
	r.otherKeys.mu.Lock()
	defer r.otherKeys.mu.Unlock()
	for _, known := range r.otherKeys.keys {
		if known.key == "key1" {
			r.t.Error("a key that the kernel has forgotten is remembered")
		}
	}
}

// TestCreds: a caller's groups are those of the thread that the kernel names.
func TestCreds(t *testing.T) {
	var all creds
	groups, err := os.Getgroups()
	must(t, err)
	who := fuse.Caller{Owner: fuse.Owner{Uid: uint32(os.Getuid()), Gid: 7}, Pid: uint32(os.Getpid())}
	for range 2 {
		got := all.of(&who)
		if got.UID != who.Uid || got.GID != 7 || len(got.Groups) != len(groups) {
			t.Errorf("%+v, want the groups %v", got, groups)
		}
	}
	other := who
	other.Uid += 4711
	if got := all.of(&other); len(got.Groups) != 0 {
		t.Errorf("a user who the process is not has its groups: %+v", got)
	}
	other = fuse.Caller{Owner: who.Owner}
	if got := all.of(&other); got.UID != who.Uid || len(got.Groups) != 0 {
		t.Errorf("a caller without a process: %+v", got)
	}
}
