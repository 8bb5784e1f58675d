// Package measure holds what the programs that measure hmcfs share, apart from the rows
// themselves, which cmd/hmcfs/bench measures in turns (Probe, Interleave, Series): mounts of the
// program that is measured, commands, the machine's properties, cleanup, and the measured
// sections of documents.
package measure
