// Package gate lets operations in until it is shut, and tells when those that
// are inside have left.
package gate
