package proto

import "fmt"

// MaxKeys is how many keys are asked for at once.
const MaxKeys = 192

// HaveKeysAsk asks whether a node has keys that can be seen there. With Claim
// the asker, Node, is about to make them its own, where there is no index: of
// two nodes that do so at once the one with the lesser name has the key.
type HaveKeysAsk struct {
	_       struct{} `cbor:",toarray"`
	Keys    []string // at most MaxKeys
	Publish bool
	Claim   bool
	Node    string
}

// HaveKeysAnswer tells it of each key, in order.
type HaveKeysAnswer struct {
	_     struct{} `cbor:",toarray"`
	There []bool
}

func (a *HaveKeysAsk) check() error {
	if len(a.Keys) > MaxKeys {
		return fmt.Errorf("%d keys, at most %d", len(a.Keys), MaxKeys)
	}
	return nil
}
