package objects

import "sync"

// keyedState is what the store knows of keys beyond their records.
type keyedState struct {
	// turn is held for reading by who gives a file a key that nobody has, and
	// for writing by who takes a key from a file that was judged before. No
	// device copy runs under it.
	turn     sync.RWMutex
	arrivals arrivals
	expiry   expiry
}
