package coord

import (
	"crypto/sha256"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// maxStrange bounds the entries that are recorded by name. Further ones are only
	// counted.
	maxStrange = 1 << 14
	// strangeBurst bounds the entries that are reported per strangePause.
	strangeBurst = 16
	strangePause = time.Minute
	// maxTold is the maximum length, in bytes, of a name in a message.
	maxTold = 128
)

// Strange records the entries of a service that a reader can't use: any client with write
// access may write anything. Each entry is reported once, and again when it has changed; of
// many in a short time only the first are reported. Its methods are safe for concurrent
// use. The zero value is empty and ready to use.
type Strange struct {
	mu sync.Mutex
	// known maps hashes of entry names to the revisions at which the entries were found.
	// Names are hashed because they may be as long as the service allows.
	// +checklocks:mu
	known map[[sha256.Size]byte]Revision
	// unnamed counts the found entries that are not in known.
	// +checklocks:mu
	unnamed int
	// told counts the reports since the time in since.
	// +checklocks:mu
	told int
	// +checklocks:mu
	since time.Time
}

// Found records an entry and logs it with a message, unless it was reported before.
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

// Gone records that the entry of a name has been removed or has become usable.
func (s *Strange) Gone(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, sha256.Sum256([]byte(name)))
	if len(s.known) == 0 {
		s.unnamed = 0
	}
}

// Count returns the number of entries that were found and are still unusable.
func (s *Strange) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known) + s.unnamed
}

// Shortened returns name, cut to a length that fits a message.
func Shortened(name string) string { return name[:min(len(name), maxTold)] }
