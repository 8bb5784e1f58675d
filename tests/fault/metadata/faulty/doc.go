// Package faulty wraps a metadata.KV so that chosen operations fail, for tests of the code
// that uses the interface.
package faulty
