// Package testfiles finds tests of a package by the identifiers that they use: for
// tests/stress the tests that use changed lines, and for tests/tally those that use a given
// identifier. It parses only test files and compares names, without types, so it finds too
// many tests if different things have the same name.
package testfiles
