// Package kit holds helpers that tests share: leak checks, waiting without sleeping, content
// that depends on its position, and the rule for when a test may be skipped.
//
// It is imported by _test.go files, by the fault wrappers and by the conformance suites, never
// by shipped code.
package kit
