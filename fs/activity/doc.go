// Package activity records, in bounded memory, which processes move bytes ([Processes]), and which
// operations took long ([SlowLog]). Noting costs about a hundred nanoseconds, more for a thread that was
// not seen before, and never waits for a reader of the records.
//
// # Lock order
//
// slot.mu and SlowLog.mu are leaves, held while memory is accessed.
package activity
