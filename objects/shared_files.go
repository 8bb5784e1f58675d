package objects

import (
	"sync"

	"github.com/hmcfs/hmcfs/objects/owner"
)

// shared counts the exports of files of this mount to other processes.
type shared struct {
	mu sync.Mutex
	// +checklocks:mu
	files map[owner.FileID]int
}

func (s *shared) add(id owner.FileID, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files[id] += n; s.files[id] <= 0 {
		delete(s.files, id)
	}
}

func (s *shared) has(id owner.FileID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files[id] > 0
}
