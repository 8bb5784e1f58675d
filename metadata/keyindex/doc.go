// Package keyindex is which node has which key: of keys/ and of publish/.
//
// # Who may have a key
//
// A key belongs to the first node that claims it, until it releases it, or is
// gone with its lease. So two nodes that set one key at once find out before
// either shows it. While the service is away claims are granted without being
// asked for: local work goes on; when it is back they are made good, and of two
// nodes the one that comes second keeps its object without the key being known
// to others (State tells how many of these there are).
//
// Nobody keeps a copy of the index. A key is asked for when it is needed, and
// remembered for a short time.
package keyindex
