package fs

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/metadata"
)

func setAttr(ino uint64, valid uint32) *fuse.SetAttrIn {
	in := &fuse.SetAttrIn{}
	in.NodeId, in.Valid = ino, valid
	return in
}

func TestSetAttr(t *testing.T) {
	r := newRig(t)
	f := r.create(r.root("sim0"), "a")
	f.write(pattern(10000, 1))
	in := setAttr(f.ino, fuse.FATTR_MODE|fuse.FATTR_UID|fuse.FATTR_GID|fuse.FATTR_SIZE|fuse.FATTR_ATIME|fuse.FATTR_MTIME)
	in.Mode, in.Uid, in.Gid, in.Size = syscall.S_IFREG|0o640, 7, 8, 5000
	in.Atime, in.Atimensec = 1000, 999_999_999
	before1970 := int64(-5)
	in.Mtime, in.Mtimensec = uint64(before1970), 1
	var out fuse.AttrOut
	r.ok(r.SetAttr(nil, in, &out))
	want := fuse.Attr{
		Mode: syscall.S_IFREG | 0o640, Owner: fuse.Owner{Uid: 7, Gid: 8}, Size: 5000,
		Atime: 1000, Atimensec: 999_999_999, Mtime: uint64(before1970), Mtimensec: 1,
	}
	got := out.Attr
	if got.Mode != want.Mode || got.Owner != want.Owner || got.Size != want.Size ||
		got.Atime != want.Atime || got.Atimensec != want.Atimensec ||
		got.Mtime != want.Mtime || got.Mtimensec != want.Mtimensec {
		t.Errorf("attributes %+v, want %+v", got, want)
	}
	now := time.Now()
	r.ok(r.SetAttr(nil, setAttr(f.ino, fuse.FATTR_ATIME|fuse.FATTR_ATIME_NOW|fuse.FATTR_MTIME|fuse.FATTR_MTIME_NOW), &out))
	if out.AccessTime().Before(now) || out.ModTime().Before(now) || out.ChangeTime().Before(now) {
		t.Errorf("times %v, %v, %v are before %v", out.AccessTime(), out.ModTime(), out.ChangeTime(), now)
	}
	dir := setAttr(r.root("sim0"), fuse.FATTR_SIZE)
	if status := r.SetAttr(nil, dir, &out); status == fuse.OK {
		t.Error("a directory was truncated")
	}
}

// TestSetIDBits clears set-id bits in each of the ways that the kernel requests it.
func TestSetIDBits(t *testing.T) {
	r := newRig(t)
	sim0 := r.root("sim0")
	for name, clear := range map[string]func(f *file){
		"truncate by another user": func(f *file) {
			r.ok(r.SetAttr(nil, setAttr(f.ino, fuse.FATTR_SIZE|fuse.FATTR_KILL_SUIDGID), &fuse.AttrOut{}))
		},
		"chown": func(f *file) {
			r.ok(r.SetAttr(nil, setAttr(f.ino, fuse.FATTR_UID|fuse.FATTR_KILL_SUIDGID), &fuse.AttrOut{}))
		},
		"before passthrough, fallocate and copy": func(f *file) {
			r.ok(r.SetAttr(nil, setAttr(f.ino, 0), &fuse.AttrOut{}))
		},
		"write": func(f *file) {
			in := fuse.WriteIn{InHeader: header(f.ino), Fh: f.fh, WriteFlags: fuse.WRITE_KILL_SUIDGID}
			_, status := r.Writev(nil, &in, [][]byte{[]byte("x")})
			r.ok(status)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := r.create(sim0, strings.ReplaceAll(name, " ", "-"))
			in := setAttr(f.ino, fuse.FATTR_MODE)
			in.Mode = 0o6777
			var out fuse.AttrOut
			r.ok(r.SetAttr(nil, in, &out))
			if out.Mode != syscall.S_IFREG|0o6777 {
				t.Fatalf("mode %o", out.Mode)
			}
			clear(f)
			if a := r.stat(f.ino); a.Mode != syscall.S_IFREG|0o777 {
				t.Errorf("mode %o, want 777", a.Mode)
			}
		})
	}
}

func TestAttrOfOtherTypes(t *testing.T) {
	r := newRig(t)
	sim0 := r.root("sim0")
	var out fuse.EntryOut
	dev := fuse.MknodIn{InHeader: header(sim0), Mode: syscall.S_IFCHR | 0o600, Rdev: 0x103}
	r.ok(r.Mknod(nil, &dev, "null", &out))
	if out.Mode != syscall.S_IFCHR|0o600 || out.Rdev != 0x103 {
		t.Errorf("mode %o, device %x", out.Mode, out.Rdev)
	}
	h := header(sim0)
	r.ok(r.Symlink(nil, &h, "some/where", "link", &out))
	target, status := r.Readlink(nil, &fuse.InHeader{NodeId: out.NodeId})
	r.ok(status)
	if string(target) != "some/where" || out.Size != uint64(len(target)) {
		t.Errorf("target %q, size %d", target, out.Size)
	}
	_, status = r.Readlink(nil, &fuse.InHeader{NodeId: sim0})
	r.want(status, syscall.EINVAL)
	r.want(r.Symlink(nil, &h, strings.Repeat("x", 4096), "long", &out), syscall.ENAMETOOLONG)

	f := r.create(sim0, "a")
	var birth fuse.StatxOut
	r.ok(r.Statx(nil, &fuse.StatxIn{InHeader: header(f.ino)}, &birth))
	if birth.Mask&unix.STATX_BTIME == 0 || birth.Btime.Sec == 0 || birth.Blksize != fileIOSize {
		t.Errorf("statx: mask %x, born %d, block size %d", birth.Mask, birth.Btime.Sec, birth.Blksize)
	}
}

func TestXattr(t *testing.T) {
	r := newRig(t)
	f := r.create(r.root("sim0"), "a")
	h := header(f.ino)
	set := func(name, value string, flags uint32) fuse.Status {
		return r.SetXAttr(nil, &fuse.SetXAttrIn{InHeader: h, Flags: flags}, name, []byte(value))
	}
	get := func(name string, room int) (string, fuse.Status) {
		dest := make([]byte, room)
		n, status := r.GetXAttr(nil, &h, name, dest)
		return string(dest[:min(int(n), room)]), status
	}
	r.ok(set("user.a", "value", 0))
	r.want(set("user.a", "x", unix.XATTR_CREATE), syscall.EEXIST)
	r.want(set("user.b", "x", unix.XATTR_REPLACE), syscall.ENODATA)
	if v, status := get("user.a", 100); status != fuse.OK || v != "value" {
		t.Errorf("user.a is %q: %v", v, status)
	}
	if n, status := r.GetXAttr(nil, &h, "user.a", nil); n != 5 || status != fuse.ERANGE {
		t.Errorf("probe: %d, %v", n, status)
	}
	_, status := get("user.a", 4)
	r.want(status, syscall.ERANGE)
	_, status = get("user.none", 4)
	r.want(status, syscall.ENODATA)
	r.ok(set("trusted.t", "1", 0))
	r.ok(set("security.selinux", "label", 0))

	dest := make([]byte, 4096)
	n, status := r.ListXAttr(nil, &h, dest)
	r.ok(status)
	for _, name := range []string{"user.a", "trusted.t", "security.selinux"} {
		if !bytes.Contains(dest[:n], append([]byte(name), 0)) {
			t.Errorf("%s is not listed in %q", name, dest[:n])
		}
	}
	_, status = r.ListXAttr(nil, &h, dest[:3])
	r.want(status, syscall.ERANGE)
	r.ok(r.RemoveXAttr(nil, &h, "user.a"))
	r.want(r.RemoveXAttr(nil, &h, "user.a"), syscall.ENODATA)

	for _, c := range []struct {
		name, value string
		want        syscall.Errno
	}{
		{"user.", "x", syscall.EINVAL},
		{"other.x", "x", syscall.EOPNOTSUPP},
		{"system.posix_acl_access", "x", syscall.EOPNOTSUPP},
		{"system.posix_acl_default", "x", syscall.EOPNOTSUPP},
		{"security.capability", "x", syscall.EOPNOTSUPP},
		{"user.big", strings.Repeat("x", metadata.MaxXattr+1), syscall.E2BIG},
		{"user." + strings.Repeat("x", 251), "x", syscall.ERANGE},
		{"user.hmc.state", "live", syscall.EOPNOTSUPP},
		{"user.hmc.handle", "x", syscall.EOPNOTSUPP},
		{"user.hmc.key", "a/b", syscall.EINVAL},
	} {
		r.want(set(c.name, c.value, 0), c.want)
	}
	_, status = get("security.capability", 100)
	r.want(status, syscall.ENODATA)
	_, status = get("system.posix_acl_access", 100)
	r.want(status, syscall.EOPNOTSUPP)
	r.want(r.RemoveXAttr(nil, &h, "security.capability"), syscall.ENODATA)
	r.want(r.RemoveXAttr(nil, &h, "system.posix_acl_access"), syscall.ENODATA)
}

func TestStatFs(t *testing.T) {
	r := newRig(t)
	stat := func(ino uint64) fuse.StatfsOut {
		var out fuse.StatfsOut
		h := header(ino)
		r.ok(r.StatFs(nil, &h, &out))
		return out
	}
	const device = 64 << 20 / fragment
	before := stat(r.root("sim0"))
	if before.Blocks != device || before.NameLen != 255 || before.Bsize != fragment {
		t.Errorf("sim0: %+v", before)
	}
	for _, ino := range []uint64{rootIno, uint64(keysIno), uint64(controlIno)} {
		if all := stat(ino); all.Blocks != 2*device {
			t.Errorf("all devices: %d blocks, want %d", all.Blocks, 2*device)
		}
	}
	f := r.create(r.root("sim0"), "a")
	f.write(pattern(8<<20, 1))
	if after := stat(f.ino); after.Bfree > before.Bfree-8<<20/fragment {
		t.Errorf("%d blocks free after 8 MiB were written, %d before", after.Bfree, before.Bfree)
	}
}

func TestUnsupported(t *testing.T) {
	r := newRig(t)
	r.want(r.Ioctl(nil, nil, nil, nil, nil), syscall.ENOTTY)
	r.want(r.Tmpfile(nil, nil, nil), syscall.EOPNOTSUPP)
	r.want(r.GetLk(nil, nil, nil), syscall.EOPNOTSUPP)
	r.want(r.SetLk(nil, nil), syscall.EOPNOTSUPP)
	r.want(r.SetLkw(nil, nil), syscall.EOPNOTSUPP)
	r.want(r.Access(nil, nil), 0)
	r.want(r.Flush(nil, &fuse.FlushIn{}), 0)
	r.want(r.FsyncDir(nil, nil), 0)
}
