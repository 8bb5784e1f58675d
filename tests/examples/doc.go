// Package examples runs the programs below it as the ranks of jobs, as a person
// would: docs/run.md shows them.
package examples
