// Package memkv is a metadata.KV in memory: nothing of it outlives Close.
package memkv

import "github.com/hmcfs/hmcfs/metadata"

// New returns an empty store.
func New() metadata.KV { return nil }
