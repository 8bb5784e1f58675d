package proto

import "fmt"

// MaxKeys bounds the keys that are asked for at once.
const MaxKeys = 192

// HaveKeysAsk asks whether a node has keys that can be seen there. With Claim
// the asker, Node, is about to make them its own, where there is no index: of
// two nodes that do so at once the one with the lesser name has the key. With
// Unindexed an index, if there is one, does not know of the claim.
type HaveKeysAsk struct {
	_         struct{} `cbor:",toarray"`
	Keys      []string // at most MaxKeys
	Publish   bool
	Claim     bool
	Node      string
	Unindexed bool
}

// HaveKeysAnswer tells it of each key, in order.
type HaveKeysAnswer struct {
	_     struct{} `cbor:",toarray"`
	There []bool
}

// MeetKeysAsk tells keys that are in use at the asker, Node, and when their
// objects were made.
type MeetKeysAsk struct {
	_       struct{} `cbor:",toarray"`
	Node    string
	Publish bool
	Keys    []string // at most MaxKeys
	Made    []Time   // as many
}

// MeetKeysAnswer tells which of them are in use at the answerer too, by place,
// and when their objects were made.
type MeetKeysAnswer struct {
	_    struct{} `cbor:",toarray"`
	Both []uint64
	Made []Time // as many
}

func (a *MeetKeysAsk) check() error {
	if len(a.Keys) > MaxKeys || len(a.Made) != len(a.Keys) {
		return fmt.Errorf("%d keys with %d times, at most %d", len(a.Keys), len(a.Made), MaxKeys)
	}
	return checkTimes(a.Made...)
}

func (a *MeetKeysAnswer) check() error {
	if len(a.Both) > MaxKeys || len(a.Made) != len(a.Both) {
		return fmt.Errorf("%d keys with %d times, at most %d", len(a.Both), len(a.Made), MaxKeys)
	}
	return checkTimes(a.Made...)
}

func (a *HaveKeysAsk) check() error {
	if len(a.Keys) > MaxKeys {
		return fmt.Errorf("%d keys, at most %d", len(a.Keys), MaxKeys)
	}
	return nil
}
