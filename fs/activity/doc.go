// Package activity records, in bounded memory, which processes move bytes ([Processes]), and which
// operations took long ([SlowLog]). Noting costs about a hundred nanoseconds, and more for a thread that
// was not seen before, which is looked up once.
//
// # Lock order
//
// set.mu and SlowLog.mu are leaves, held while memory is accessed.
package activity
