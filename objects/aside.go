package objects

import (
	"errors"
	"fmt"

	"github.com/hmcfs/hmcfs/devices"
)

// Aside lists the files of host memory that had no record in a start, of this run or an
// earlier one, in which the records were older than the memory.
func (s *Store) Aside() ([]devices.AsideFile, error) {
	var all []devices.AsideFile
	for _, t := range s.tiers {
		if t.Files == nil {
			continue
		}
		some, err := t.Files.Aside()
		if err != nil {
			return nil, fmt.Errorf("list the files set aside on %s: %w", t.Name, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// RemoveAside frees the memory of one of the files that Aside lists.
func (s *Store) RemoveAside(name string) error {
	var errs []error
	for _, t := range s.tiers {
		if t.Files != nil {
			errs = append(errs, t.Files.RemoveAside(name))
		}
	}
	return errors.Join(errs...)
}
