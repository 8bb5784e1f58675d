// Package lint holds the project's own rules as tests: those that the linters of .golangci.yml
// cannot express, and those that must hold even where the linters are not installed. It only
// parses files, so it runs in about a second, and early in .ci/run.
//
// Each rule is a function from the tree to its offenders. rules_test.go has examples for each
// that it must find and that it must accept, so that a rule that can no longer fail is noticed.
package lint
