// Package memfd makes files in memory whose size is fixed, so that access to a mapping of
// them never faults, and maps them as bytes or as atomic words.
//
// What a process has stored in a shared mapping is there after its death, whatever ended
// it, as long as another process has a descriptor of the file.
package memfd
