package tests

import (
	"encoding/binary"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/kit"
	"github.com/hmcfs/hmcfs/tests/mnt"
)

// The inode flags of chattr(1).
const (
	flagImmutable  = 0x10
	flagAppendOnly = 0x20
)

func TestInodeFlagsAreHonouredOrRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		for name, flag := range map[string]int{"immutable": flagImmutable, "append only": flagAppendOnly} {
			create(t, p.path(name), 1, 100)
			f := open(t, p.path(name), os.O_RDONLY)
			err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flag)
			if err != nil {
				// If refused, no flag is reported as set, and the file is still usable.
				if p.isTmpfs() {
					t.Fatal(err)
				}
				wantRefused(t, err)
				if got, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS); err == nil && got&flag != 0 {
					t.Errorf("%s was refused, but is told to be set: %#x", name, got)
				}
				must(t, os.Remove(p.path(name)))
				continue
			}
			wantErrno(t, os.Remove(p.path(name)), unix.EPERM)
			wantErrno(t, os.Truncate(p.path(name), 0), unix.EPERM)
			must(t, unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0))
		}
	})
}

// wantRefused checks that an operation was refused permanently, not with an errno that makes
// programs retry or assume success.
func wantRefused(t *testing.T, err error) {
	t.Helper()
	if err != unix.EOPNOTSUPP && err != unix.ENOTTY { //nolint:errorlint // package unix returns it bare
		t.Errorf("refused with %v, want EOPNOTSUPP or ENOTTY", err)
	}
}

// acl returns an access control list that lets alice read: version 2, then tag, permissions
// and ID of each entry.
func acl() []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	const nobodyInParticular = 0xffffffff
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{
		{0x01, 6, nobodyInParticular},
		{0x02, 4, alice},
		{0x04, 0, nobodyInParticular},
		{0x10, 4, nobodyInParticular},
		{0x20, 0, nobodyInParticular},
	} {
		b = binary.LittleEndian.AppendUint16(b, e.tag)
		b = binary.LittleEndian.AppendUint16(b, e.perm)
		b = binary.LittleEndian.AppendUint32(b, e.id)
	}
	return b
}

func TestAccessListsAreHonouredOrRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, p place) {
		create(t, p.path("a"), 1, 100)
		must(t, unix.Chmod(p.path("a"), 0o600))
		must(t, os.Mkdir(p.path("d"), 0o755))
		err := unix.Setxattr(p.path("a"), "system.posix_acl_access", acl(), 0)
		honoured := err == nil
		if !honoured {
			wantErrno(t, err, unix.EOPNOTSUPP)
			wantErrno(t, unix.Setxattr(p.path("d"), "system.posix_acl_default", acl(), 0), unix.EOPNOTSUPP)
			if got := mode(t, p.path("a")); got != 0o600 {
				t.Errorf("a refused list has changed the mode to %o", got)
			}
		}
		mnt.AsUser(t, userAlice(), func() {
			err := withFile(p.path("a"), unix.O_RDONLY, func(*os.File) error { return nil })
			if honoured && err != nil {
				t.Errorf("a list that was taken does not let alice read: %v", err)
			}
			if !honoured {
				wantErrno(t, err, unix.EACCES)
			}
		})
	})
}

func TestToolsAreToldThatFlagsAndListsAreRefused(t *testing.T) {
	kit.Check(t)
	kit.Require(t, "tool:chattr", "tool:setfacl", "tool:setcap")
	m := mnt.Mount(t, mnt.Options{})
	create(t, m.Path("sim0", "a"), 1, 100)
	create(t, m.Path("host", "a"), 1, 100)
	for _, dir := range []string{"sim0", "host"} {
		for _, args := range [][]string{
			{"chattr", "+i"}, {"chattr", "+a"}, {"setfacl", "-m", "u:60001:r"}, {"setcap", "cap_net_raw=ep"},
		} {
			name := m.Path(dir, "a")
			if out, err := exec.Command(args[0], append(args[1:], name)...).CombinedOutput(); err == nil {
				t.Errorf("%q went well: %s", args, out)
			}
		}
		must(t, os.Remove(m.Path(dir, "a")))
	}
}
