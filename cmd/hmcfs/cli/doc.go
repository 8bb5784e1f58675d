// Package cli is the command line of hmcfs. Each command ("verb") has a file of its
// own, and verbs in cli.go lists them all. [Run] executes one command. Everything that
// it uses of its process comes in an [Env], so that tests can run commands inside
// their own process.
//
// Answers go to standard output, everything else to standard error. An error is one
// line that names the object, the cause and the remedy; its exit code is one of those
// in errors.go. The documents that `hmcfs docs` writes are made from the templates in docs/.
package cli
