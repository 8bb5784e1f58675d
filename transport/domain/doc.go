// Package domain is point to point: domains of some ranks of a job, which send
// to and receive from each other by rank and tag.
package domain
