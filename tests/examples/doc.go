// Package examples runs the programs below it as the ranks of jobs, in the way that docs/run.md
// shows to users.
package examples
