// Package domaintest is the conformance list of domains: what holds whichever
// way the bytes take between two ranks.
//
// A test calls [Run] once for each way, as with commtest.
package domaintest
