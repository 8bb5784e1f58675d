package badgerkv

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"go.uber.org/zap"
)

// logSuffix ends the names of Badger's write-ahead logs, which are numbered with
// five digits at least, from the oldest to the newest.
const logSuffix = ".mem"

// dropEmptyLogs removes logs without a byte, at which Badger stops. A death leaves
// them in two places: the newest is made empty, and the oldest is emptied before it
// goes, when all that it had is in a table. One between others has lost its bytes:
// then nothing is removed.
func dropEmptyLogs(opts Options) error {
	names, err := filepath.Glob(filepath.Join(opts.Dir, "*"+logSuffix))
	if err != nil {
		return err
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	var empty []string
	older := false // a log that has bytes
	for i, name := range names {
		st, err := os.Stat(name)
		if err != nil {
			return err
		}
		switch {
		case st.Size() > 0:
			older = true
			continue
		case older && i < len(names)-1:
			return fmt.Errorf("log %s is empty, and there are older and newer ones", filepath.Base(name))
		}
		empty = append(empty, name)
	}
	for _, name := range empty {
		opts.Logger.Info("removing a log without a byte", zap.String("log", filepath.Base(name)))
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	return nil
}
