// Package domaintest is the conformance suite of domains: the requirements for every transport
// between two ranks.
//
// A test calls [Run] once for each transport, as with commtest.
package domaintest
