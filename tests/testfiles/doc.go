// Package testfiles finds tests of a package by the identifiers that they use: for tests/stress
// those that use changed lines, and for tests/tally those that use a given identifier. It parses
// test files alone and compares names, without types, so that it finds too many tests if
// different things have the same name.
package testfiles
