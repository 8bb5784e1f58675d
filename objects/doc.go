// Package objects is the object store: it binds keys and names to device
// memory, and owns life cycle, semantics and recovery. It is the only place
// where metadata and data meet.
package objects
