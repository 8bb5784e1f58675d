// Package queue implements a FIFO queue.
package queue
