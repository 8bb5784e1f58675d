package keep

import (
	"errors"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/hmcfs/hmcfs/devices"
)

// Store holds descriptors. The zero value is usable.
type Store struct {
	mu sync.Mutex
	// +checklocks:mu
	files map[string]*os.File
	// +checklocks:mu
	refused error
}

var _ devices.DescriptorStore = (*Store)(nil)

// Refuse makes every later Keep fail with err; nil ends that.
func (s *Store) Refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = err
}

// Keep implements devices.DescriptorStore.
func (s *Store) Keep(name string, f *os.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused != nil {
		return s.refused
	}
	mine, err := duplicate(f)
	if err != nil {
		return err
	}
	err = s.dropLocked(name)
	if s.files == nil {
		s.files = map[string]*os.File{}
	}
	s.files[name] = mine
	return err
}

// Kept implements devices.DescriptorStore.
func (s *Store) Kept(prefix string) (map[string]*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]*os.File{}
	for name, f := range s.files {
		if strings.HasPrefix(name, prefix) {
			theirs, err := duplicate(f)
			if err != nil {
				return found, err
			}
			found[name] = theirs
		}
	}
	return found, nil
}

// Drop implements devices.DescriptorStore.
func (s *Store) Drop(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropLocked(name)
}

// +checklocks:s.mu
func (s *Store) dropLocked(name string) error {
	f := s.files[name]
	if f == nil {
		return nil
	}
	delete(s.files, name)
	return f.Close()
}

// Len returns the number of descriptors.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.files)
}

// Close releases all descriptors.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for name := range s.files {
		errs = append(errs, s.dropLocked(name))
	}
	return errors.Join(errs...)
}

func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
