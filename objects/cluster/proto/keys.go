package proto

import "fmt"

// MaxKeys bounds the keys of one request.
const MaxKeys = 192

// HaveKeysAsk asks whether keys are visible at a node. With Claim the requester, Node, is
// about to make them its own, where there is no index: if two nodes do so at once the one with
// the lesser name gets the key. With Unindexed the claim is not known to an index, if there is
// one.
type HaveKeysAsk struct {
	_         struct{} `cbor:",toarray"`
	Keys      []string // at most MaxKeys
	Publish   bool
	Claim     bool
	Node      string
	Unindexed bool
}

// HaveKeysAnswer reports it for each key, in order.
type HaveKeysAnswer struct {
	_     struct{} `cbor:",toarray"`
	There []bool
}

// CompareKeysAsk lists keys that are in use at the requester, Node, and the creation times of
// their objects.
type CompareKeysAsk struct {
	_       struct{} `cbor:",toarray"`
	Node    string
	Publish bool
	Keys    []string // at most MaxKeys
	Made    []Time   // one for each key
}

// CompareKeysAnswer lists which of them are in use at the responder too, by index, and the
// creation times of their objects.
type CompareKeysAnswer struct {
	_    struct{} `cbor:",toarray"`
	Both []uint64
	Made []Time // one for each index
}

func (a *CompareKeysAsk) check() error    { return checkMade(len(a.Keys), a.Made) }
func (a *CompareKeysAnswer) check() error { return checkMade(len(a.Both), a.Made) }

// checkMade checks a list of keys with the creation times of their objects.
func checkMade(keys int, made []Time) error {
	if keys > MaxKeys || len(made) != keys {
		return fmt.Errorf("invalid list: %d keys with %d times, the maximum is %d", keys, len(made), MaxKeys)
	}
	return checkTimes(made...)
}

func (a *HaveKeysAsk) check() error {
	if len(a.Keys) > MaxKeys {
		return fmt.Errorf("%d keys, the maximum is %d", len(a.Keys), MaxKeys)
	}
	return nil
}
