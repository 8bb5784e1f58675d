package metadata

import "sync"

const lockStripes = 128

// lockTable keeps concurrent operations on one inode from conflicting. Different inodes may
// share a lock.
type lockTable struct {
	mu [lockStripes]sync.Mutex
}

func (l *lockTable) index(ino Ino) int {
	// Consecutive numbers use different locks.
	return int(ino % lockStripes)
}

// lock locks one inode and returns a function that unlocks it.
//
// +checklocksignore: the lock is held when it returns.
func (l *lockTable) lock(ino Ino) (unlock func()) {
	mu := &l.mu[l.index(ino)]
	mu.Lock()
	return mu.Unlock
}

// lock2 locks two inodes, which may be the same, in ascending order of the locks.
//
// +checklocksignore: the locks are held when it returns.
func (l *lockTable) lock2(a, b Ino) (unlock func()) {
	i, j := l.index(a), l.index(b)
	if i == j {
		return l.lock(a)
	}
	if i > j {
		i, j = j, i
	}
	l.mu[i].Lock()
	l.mu[j].Lock()
	return func() {
		l.mu[j].Unlock()
		l.mu[i].Unlock()
	}
}
