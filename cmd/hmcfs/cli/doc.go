// Package cli is the command line: one file for each verb, listed by hand in
// verbs. It can be run inside a test: all that it takes from the process
// comes in an [Env].
//
// Answers go to standard output, everything else to standard error. A fault
// is one line that names the thing, the cause and the way out.
package cli
