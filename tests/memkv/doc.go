// Package memkv implements metadata.KV in memory, for tests and for mounts without persistent
// records. Readers see snapshots of a copy-on-write tree and never wait. Writers run one after
// the other, so no transaction is ever retried.
//
// # Lock order
//
// KV.mu alone. The writing transaction holds it while its function runs, so that function must
// not start another writing transaction.
package memkv
