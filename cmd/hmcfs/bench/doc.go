// Package bench measures a mount from outside, as its users see it, beside a
// directory on tmpfs in the same run.
package bench
