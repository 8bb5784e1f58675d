package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ownerKilled kills the owner of bound memory while it is read.
func (s shared) ownerKilled(ctx context.Context) (string, error) {
	owner, handle, err := s.own(ctx, s.kind, s.sizes.check, 1, 0)
	if err != nil {
		return "", err
	}
	defer owner.kill()
	file := s.path("orphan")
	defer func() { _ = remove(file) }()
	if err = errors.Join(s.bind(file, s.handleOf(handle)), sameContent(file, seedA, s.sizes.check, 1<<20)); err != nil {
		return "", err
	}
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- readUntilError(file, started) }()
	<-started
	begin := time.Now()
	owner.kill()
	select {
	case err = <-ended:
	case <-time.After(patience):
		return "", fmt.Errorf("the reader still reads %v after the end of the owner", patience)
	}
	took := time.Since(begin)
	failed := within(ctx, patience, func() error { return s.isIn(file, "lost") })
	return fmt.Sprintf("EIO %v after the kill", took.Round(time.Millisecond)),
		errors.Join(refused(err, "read of the bound file", unix.EIO), failed, os.Remove(file))
}

// within polls until a condition holds.
func within(ctx context.Context, limit time.Duration, holds func() error) error {
	for end := time.Now().Add(limit); ; {
		err := holds()
		if err == nil || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// readUntilError reads a file repeatedly until an error.
func readUntilError(file string, started chan<- struct{}) error {
	f, err := os.Open(file)
	if err != nil {
		close(started)
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written
	p := make([]byte, 1<<20)
	for first := true; ; first = false {
		_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.NewSectionReader(f, 0, 1<<62), p)
		if first {
			close(started)
		}
		if err != nil {
			return err
		}
	}
}

// refusedBinds tries binds that must fail, and checks that the owner's memory and the files
// are unchanged.
func (s shared) refusedBinds(ctx context.Context) (_ string, err error) {
	owner, text, err := s.own(ctx, s.kind, 1<<20, 1, 0)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, owner.end()) }()
	handle := s.handleOf(text)
	var errs []error
	for name, broken := range s.brokenHandles(handle) {
		errs = append(errs, s.refusedNew(name, broken))
	}
	errs = append(errs, s.refusedTwice(handle), s.refusedFull(handle), owner.agree(verify(seedA)), owner.agree("guards"))
	return fmt.Sprintf("%d kinds of wrong handles; twice; onto a file with content", len(s.brokenHandles(handle))),
		errors.Join(errs...)
}

// brokenHandles returns handles that name no memory here.
func (s shared) brokenHandles(handle string) map[string]string {
	broken := map[string]string{
		"no JSON":                     "not a handle",
		"no pieces":                   `{"family":"` + s.family + `","size":4096,"pieces":[]}`,
		"a family of other devices":   strings.Replace(handle, `"family":"`+s.family, `"family":"other`, 1),
		"beyond the allocation":       sized(handle, 64<<20),
		"an offset beyond everything": regexp.MustCompile(`"offset":\d+`).ReplaceAllString(handle, `"offset":1099511627776`),
		"a process that is not there": regexp.MustCompile(`"pid":\d+`).ReplaceAllString(handle, `"pid":4194300`),
	}
	switch s.kind {
	case "ipc":
		broken["other bytes"] = regexp.MustCompile(`"handle":"[0-9a-f]+"`).
			ReplaceAllString(handle, `"handle":"`+strings.Repeat("5a", 64)+`"`)
		broken["too few bytes"] = regexp.MustCompile(`"handle":"[0-9a-f]+"`).ReplaceAllString(handle, `"handle":"00ff"`)
	default:
		broken["a descriptor that is not there"] = regexp.MustCompile(`"fd":\d+`).ReplaceAllString(handle, `"fd":9999`)
		broken["a descriptor of something else"] = regexp.MustCompile(`"fd":\d+`).ReplaceAllString(handle, `"fd":0`)
	}
	if s.family == "cuda" {
		broken["another card"] = regexp.MustCompile(`"device":"[^"]+"`).
			ReplaceAllString(handle, `"device":"GPU-00000000-dead-beef-0000-000000000000"`)
	}
	return broken
}

// sized returns a handle with another size.
func sized(handle string, size int) string {
	handle = regexp.MustCompile(`"size":\d+`).ReplaceAllString(handle, fmt.Sprintf(`"size":%d`, size))
	return regexp.MustCompile(`,"allocation":\d+`).ReplaceAllString(handle, "")
}

// refusedNew binds a new file, which must fail and leave it empty.
func (s shared) refusedNew(name, handle string) error {
	file := s.path("refused")
	defer func() { _ = remove(file) }()
	if err := create(file, func(*os.File) error { return nil }); err != nil {
		return err
	}
	err := refused(setBind(file, handle), name, unix.EINVAL, unix.EPERM, unix.EACCES, unix.ESRCH, unix.EOPNOTSUPP)
	st, failed := os.Stat(file)
	if failed == nil && st.Size() != 0 {
		failed = fmt.Errorf("%s: the file has %d bytes after the refusal", name, st.Size())
	}
	return errors.Join(err, failed)
}

// refusedTwice binds a bound file again.
func (s shared) refusedTwice(handle string) error {
	file := s.path("twice")
	defer func() { _ = remove(file) }()
	if err := s.bind(file, handle); err != nil {
		return err
	}
	return errors.Join(refused(setBind(file, handle), "bind twice", unix.EBUSY, unix.EEXIST, unix.EINVAL),
		sameContent(file, seedA, 1<<20, odd))
}

// refusedFull binds a file that has content.
func (s shared) refusedFull(handle string) error {
	file := s.path("full")
	defer func() { _ = remove(file) }()
	if err := writeContent(file, seedB, 4096, 4096); err != nil {
		return err
	}
	return errors.Join(
		refused(setBind(file, handle), "bind a file with content", unix.EBUSY, unix.EEXIST, unix.EINVAL, unix.ENOTEMPTY, unix.EFBIG),
		sameContent(file, seedB, 4096, 4096))
}
