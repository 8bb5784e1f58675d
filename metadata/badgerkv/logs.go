package badgerkv

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"
)

// logSuffix ends the names of Badger's write-ahead logs, which are numbered in order of age
// with at least five digits.
const logSuffix = ".mem"

// dropUseless removes files without records that Badger would fail on. A crash leaves empty
// logs in two cases: the newest ones are created empty, and the oldest is truncated before
// it is removed, when all of its content is in a table.
func dropUseless(opts Options, names []string) error {
	for _, name := range names {
		opts.Logger.Info("removing a file without records", zap.String("file", name))
		if err := os.Remove(filepath.Join(opts.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// logsIn lists the paths of the logs in a directory, oldest first.
func logsIn(dir string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"+logSuffix))
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return names, err
}

// numbersOfLogs lists the numbers of the logs in a directory, oldest first.
func numbersOfLogs(dir string) ([]int, error) {
	names, err := logsIn(dir)
	if err != nil {
		return nil, err
	}
	out := make([]int, len(names))
	for i, name := range names {
		if out[i], err = strconv.Atoi(strings.TrimSuffix(filepath.Base(name), logSuffix)); err != nil {
			return nil, fmt.Errorf("invalid number in the name of log %s: %w", name, err)
		}
	}
	return out, nil
}

func logName(log int) string { return fmt.Sprintf("%05d%s", log, logSuffix) }
