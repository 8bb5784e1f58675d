package badgerkv

import (
	"errors"
	"fmt"
	"os"
)

// A store that a repair builds has the first suffix while it is built, and the second when
// it is complete, until it replaces the damaged one.
const (
	mendingSuffix = ".mending"
	mendedSuffix  = ".mended"
)

// finishRepair moves a repaired store to its final name if the damaged one was moved aside
// already: the process that repaired it was killed in between.
func finishRepair(dir string) error {
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(dir+mendedSuffix, dir); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// dropRepair removes what an interrupted repair has left. The store's directory is locked,
// so no repair is running.
func dropRepair(dir string) error {
	return errors.Join(os.RemoveAll(dir+mendingSuffix), os.RemoveAll(dir+mendedSuffix))
}

// freeName returns an unused name for the damaged records.
func freeName(dir string) (string, error) {
	for n := 1; ; n++ {
		name := fmt.Sprintf("%s.damaged-%d", dir, n)
		if _, err := os.Lstat(name); errors.Is(err, os.ErrNotExist) {
			return name, nil
		} else if err != nil {
			return "", err
		}
	}
}

// takePlace replaces the damaged store with the new one, and returns the path to which the
// damaged one was moved.
func takePlace(dir string) (aside string, err error) {
	if aside, err = freeName(dir); err != nil {
		return "", err
	}
	if err = os.Rename(dir+mendingSuffix, dir+mendedSuffix); err == nil {
		err = os.Rename(dir, aside)
	}
	if err == nil {
		err = os.Rename(dir+mendedSuffix, dir)
	}
	return aside, err
}
