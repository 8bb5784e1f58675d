// Package fabrictest is the conformance list of fabrics: what every fabric must
// do, whichever way its bytes take. A test of a fabric calls [Run] once for each
// way to join ranks.
package fabrictest
