// Package faulty is a metadata.KV that fails when it is told to, for tests of
// what is built on the seam.
package faulty
