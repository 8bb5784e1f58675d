// Package memkv is a metadata.KV in memory, for tests and for mounts that
// keep nothing. Readers see snapshots of a copy-on-write tree and never wait;
// writers run one after the other, so no transaction is ever repeated.
//
// # Lock order
//
// KV.mu alone. It is held by the one transaction that writes, while its
// function runs, so that function must not begin another one that writes.
package memkv
