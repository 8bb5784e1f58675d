// Package lint holds the project's own rules as tests: what the linters of
// .golangci.yml can't know, and what must hold even where they are not
// installed. It only parses files, so it runs in about a second and comes
// early in .ci/run.
//
// Each rule is a function from the tree to its offenders, and each has
// examples in rules_test.go that it must find and that it must let pass: a
// rule that can't fail any more is noticed.
package lint
