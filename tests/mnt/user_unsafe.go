package mnt

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// User is a system user as which a test acts.
type User struct {
	UID, GID int
	// Groups are the supplementary groups.
	Groups []int
}

// Credential returns the user for a command's SysProcAttr.
func (u User) Credential() *syscall.Credential {
	c := &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
	for _, g := range u.Groups {
		c.Groups = append(c.Groups, uint32(g))
	}
	return c
}

// AsUser runs fn on a thread with the user's identity and without any capability, and returns
// when fn does. The rest of the process keeps its rights: fn must not start goroutines that
// need the user's. A process that fn starts runs as the user. The caller is root.
//
// fn may call t.Errorf, but neither t.Fatal nor t.Skip.
func AsUser(t testing.TB, u User, fn func()) {
	t.Helper()
	done := make(chan error)
	go onThread(func() {
		err := become(u)
		if err == nil {
			fn()
		}
		done <- err
	})
	if err := <-done; err != nil {
		t.Fatalf("become user %d: %v", u.UID, err)
	}
}

// onThread runs fn on a thread that nothing else uses and that ends with the goroutine, since it
// is never unlocked. It must not be the main thread: that one never ends, and /proc reports its
// rights as those of the process.
func onThread(fn func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		fn()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		onThread(fn)
	}()
	<-done
	runtime.UnlockOSThread()
}

// become gives the user's rights to the calling thread alone. The wrappers of packages syscall
// and unix would change the whole process.
func become(u User) error {
	groups := make([]uint32, len(u.Groups), len(u.Groups)+1)
	for i, g := range u.Groups {
		groups[i] = uint32(g)
	}
	if _, _, e := syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0); e != 0 {
		return fmt.Errorf("set groups: %w", e)
	}
	gid, uid := uintptr(u.GID), uintptr(u.UID)
	if _, _, e := syscall.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); e != 0 {
		return fmt.Errorf("set gid: %w", e)
	}
	if _, _, e := syscall.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); e != 0 {
		return fmt.Errorf("set uid: %w", e)
	}
	return nil
}
