// Package testfiles finds the tests of a package by what they use: those that
// changed lines touch, for tests/stress, and those that use an identifier, for
// tests/tally. It reads files of tests alone and goes by names, without types, so
// that it finds some tests too many, where names are alike.
package testfiles
