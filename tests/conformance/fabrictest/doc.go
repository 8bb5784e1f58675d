// Package fabrictest is the conformance suite of fabrics: the requirements for every fabric,
// whichever route its bytes take. A test of a fabric calls [Run] once for each way to connect
// ranks.
package fabrictest
