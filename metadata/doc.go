// Package metadata keeps the namespace and the object records, in
// transactions over a small ordered key-value seam.
package metadata
