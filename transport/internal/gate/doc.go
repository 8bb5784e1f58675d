// Package gate admits operations until it is shut, and reports when those inside
// have left.
package gate
