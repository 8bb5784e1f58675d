package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/tests/measure"
)

// nobody is the ID of a user that owns nothing here.
const nobody = 65534

// nobodyArg is the first argument of the process that acts as nobody:
//
//	gpu nobody set FILE NAME VALUE
//	gpu nobody get FILE NAME
//
// It prints the error number, 0 for success.
const nobodyArg = "nobody"

// actAsNobody executes the arguments and returns true if this process was started to act as
// nobody.
func actAsNobody(args []string) bool {
	if len(args) < 5 || args[1] != nobodyArg {
		return false
	}
	var err error
	if args[2] == "set" && len(args) == 6 {
		err = unix.Setxattr(args[3], args[4], []byte(args[5]), 0)
	} else {
		_, err = unix.Getxattr(args[3], args[4], make([]byte, 1<<16))
	}
	errno, _ := errors.AsType[unix.Errno](err)
	fmt.Fprintln(os.Stdout, int(errno))
	return true
}

// asNobody reads or sets an attribute as a user that owns nothing, and returns the error that
// this user gets.
func (s *suite) asNobody(ctx context.Context, args ...string) error {
	if os.Geteuid() != 0 {
		return skip("only root can become another user")
	}
	// This path works even if the program's directory is not accessible to other users.
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{nobodyArg}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	cmd.Dir = "/"
	out, err := measure.Output(cmd)
	if err != nil {
		return err
	}
	var errno int
	if _, err := fmt.Sscan(out, &errno); err != nil {
		return fmt.Errorf("the process of nobody says %q", out)
	}
	if errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}

// strangers checks that other users can neither bind memory nor export a file without the
// right to do so.
func (s shared) strangers(ctx context.Context) (_ string, err error) {
	owner, text, err := s.own(ctx, s.kind, 1<<20, 1, 0)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, owner.end()) }()
	bound, readable := s.path("for-all"), s.path("readable")
	defer func() { _ = remove(bound, readable) }()
	empty := func(*os.File) error { return nil }
	if err = errors.Join(create(bound, empty), os.Chmod(bound, 0o666), writeContent(readable, seedB, 4096, 4096),
		os.Chmod(readable, 0o644)); err != nil {
		return "", err
	}
	denied := []unix.Errno{unix.EPERM, unix.EACCES}
	err = errors.Join(
		refused(s.asNobody(ctx, "set", bound, bindAttr, s.handleOf(text)), "bind another user's memory", denied...),
		refused(s.asNobody(ctx, "get", readable, handleAttr), "export what one may only read", denied...),
		sameContent(readable, seedB, 4096, 4096), owner.agree(verify(seedA)))
	return "uid 65534 can neither bind root's memory nor export a file that it may only read", err
}
