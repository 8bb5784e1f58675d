package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/cmd/hmcfs/copier"
	"github.com/hmcfs/hmcfs/objects/hetero"
)

// seconds is a flag value for a time: 20s, 1m30s, or plain seconds.
type seconds struct {
	time.Duration

	given bool
}

// Set reads the flag.
func (s *seconds) Set(text string) error {
	d, err := time.ParseDuration(text)
	if n, nerr := strconv.ParseUint(text, 10, 31); nerr == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || d < 0 {
		return errors.New("write it as 20s, 1m30s or 20")
	}
	s.Duration, s.given = d, true
	return nil
}

// check returns an error if --timeout is too long.
func (s *seconds) check() error {
	if err := (hetero.GetOptions{Timeout: s.Duration}).Validate(); err != nil {
		return usage(fmt.Errorf("--timeout: %w", err))
	}
	return nil
}

// String returns the value before anything is set.
func (s *seconds) String() string {
	if s.Duration == 0 {
		return ""
	}
	return s.Duration.String()
}

// Type returns the name of the type for help texts.
func (s *seconds) Type() string { return "duration" }

// orDefault returns the time to wait for n keys.
func (s *seconds) orDefault(n int) (time.Duration, error) {
	o := hetero.SubscribeOptions{Timeout: s.Duration}
	if !s.given {
		o.EnsureDefaults(n)
	}
	if err := o.Validate(); err != nil {
		return 0, usage(fmt.Errorf("--timeout: %w", err))
	}
	return o.Timeout, nil
}

// aimed reads the pairs of a command that writes the bytes of keys, and determines the target
// of each key: its path, a file in the directory of the path or of --dir, or standard output.
// toOutput is set if one of them is standard output.
func (a keyVerbs) aimed(args []string, dir string, with pairing) (pairs []keyPath, toOutput bool, err error) {
	if dir != "" {
		with = keysAlone
	}
	if pairs, err = keyArgs(args, a.Stdin, with); err != nil {
		return nil, false, err
	}
	for i := range pairs {
		p := &pairs[i]
		p.path = cmp.Or(p.path, dir, standardStream)
		if p.path == standardStream {
			toOutput = true
			continue
		}
		st, serr := os.Stat(p.path)
		switch {
		case serr == nil && st.IsDir():
			p.path = filepath.Join(p.path, p.key)
		case dir != "":
			return nil, false, usage(fmt.Errorf("--dir %s is not a directory; create it first: mkdir %s", dir, dir))
		}
	}
	return pairs, toOutput, nil
}

// unmixed refuses --json if bytes go to standard output too.
func unmixed(toOutput, asJSON bool) error {
	if toOutput && asJSON {
		return usage(errors.New("--json would mix with the bytes on standard output; send those elsewhere with KEY=PATH or --dir"))
	}
	return nil
}

// rename renames a file; a signal can interrupt it. Unless replace is set, an existing
// target is an error.
func rename(ctx context.Context, from, to string, replace bool) error {
	flags := uint(unix.RENAME_NOREPLACE)
	if replace {
		flags = 0
	}
	var err error
	copier.Interruptibly(ctx, func() {
		err = unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags)
	})
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
}
