package coord

import (
	"crypto/sha256"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// maxStrange bounds the entries that are known by name. Further ones are counted.
	maxStrange = 1 << 14
	// strangeBurst bounds the entries that are reported within a strangePause.
	strangeBurst = 16
	strangePause = time.Minute
	// maxTold is as much of a name as goes into a message.
	maxTold = 128
)

// Strange holds the entries of a service that a reader can't use: a client with the right
// to write there may write anything. Each is reported once, and again when it has changed; of
// many at once the first are told. Its methods may be called from any goroutine.
// The zero value has none.
type Strange struct {
	mu sync.Mutex
	// known are the revisions at which entries were found, by the hashes of their
	// names: a name may be as long as the service lets it.
	// +checklocks:mu
	known map[[sha256.Size]byte]Revision
	// unnamed counts the finds of entries that are not in known.
	// +checklocks:mu
	unnamed int
	// told counts the reports since the time of since.
	// +checklocks:mu
	told int
	// +checklocks:mu
	since time.Time
}

// Found notes an entry and tells it with a message, unless it was told.
func (s *Strange) Found(log *zap.Logger, message string, e Entry, err error) {
	if s.note(e) {
		log.Warn(message, zap.String("name", Shortened(e.Name)), zap.Error(err))
	}
}

func (s *Strange) note(e Entry) (tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := sha256.Sum256([]byte(e.Name))
	was, had := s.known[name]
	if had && was == e.Revision {
		return false
	}
	if !had && len(s.known) == maxStrange {
		s.unnamed++
		return false
	}
	if s.known == nil {
		s.known = map[[sha256.Size]byte]Revision{}
	}
	s.known[name] = e.Revision
	if now := time.Now(); now.Sub(s.since) >= strangePause {
		s.since, s.told = now, 0
	}
	s.told++
	return s.told <= strangeBurst
}

// Gone notes that a name has no entry any more, or one that can be used.
func (s *Strange) Gone(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, sha256.Sum256([]byte(name)))
	if len(s.known) == 0 {
		s.unnamed = 0
	}
}

// Count returns how many were found and are not gone.
func (s *Strange) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known) + s.unnamed
}

// Shortened is as much of a name as goes into a message.
func Shortened(name string) string { return name[:min(len(name), maxTold)] }
