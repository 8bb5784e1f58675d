package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hmcfs/hmcfs/devices"
	"github.com/hmcfs/hmcfs/metadata"
)

// limitOf is the name of a limit with its field of Limits.
type limitOf struct {
	name  string
	field *uint64
}

func limitNames(l *metadata.Limits) []limitOf {
	return []limitOf{
		{"user-names", &l.UserNames},
		{"user-xattr-bytes", &l.UserXattrBytes},
		{"inode-xattrs", &l.InodeXattrs},
		{"inode-xattr-bytes", &l.InodeXattrBytes},
	}
}

// Records returns the limits of the records. Those that are not set are zero.
func (o *Options) Records() (metadata.Limits, error) {
	var l metadata.Limits
	var faults []error
	for _, text := range o.Limits {
		if err := setLimit(&l, text); err != nil {
			faults = append(faults, fmt.Errorf("limit: %w", err))
		}
	}
	return l, errors.Join(faults...)
}

func setLimit(l *metadata.Limits, text string) error {
	name, value, _ := strings.Cut(text, "=")
	var names []string
	for _, of := range limitNames(l) {
		names = append(names, of.name)
		if of.name != name {
			continue
		}
		n, err := devices.ParseSize(value)
		if err != nil || n == 0 || n > 1<<62 {
			return fmt.Errorf("%q is not a limit of %s; give a number from 1, such as %s=1000 or %s=1MiB", value, name, name, name)
		}
		*of.field = uint64(n)
		return nil
	}
	return fmt.Errorf("%q is not NAME=VALUE with one of %s", text, strings.Join(names, ", "))
}
